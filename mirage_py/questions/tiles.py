"""Answers about tiles: another tile of a grid axis or of a loop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from mirage_py.questions.answer import Answer, Basis, Fact
from mirage_py.questions.question import OfTile, blocks_of
from mirage_py.questions.searched import searched
from mirage_py.questions.subject import Subject, Tried
from mirage_py.questions.tried_plans import answer_sort
from mirage_py.questions.variations import with_kernel
from mirage_py.questions.varied import answer_varied, no_plan
from mirage_py.search.space.splits import split_dims
from mirage_py.search.tilings.roles import grid_tiles, loop_tiles, roles_of
from mirage_py.search.tilings.tilings import has_matmul
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim


def answer_tile(subject: Subject, asked: OfTile) -> Answer:
    """Why a dimension has no tile of that size."""
    what = f"{asked.where} " if asked.where else ""
    question = f"why not {what}{asked.dim} by {asked.size}"
    plan = subject.plan
    if plan is None:
        return no_plan(question, subject)
    varied = list(_varied(plan, subject, asked))
    if not varied:
        return _untiled(question, subject, asked)
    if all(other == plan for _, other in varied):
        verdict = f"The result has that tile: {subject.best_text}."
        return Answer(question, verdict, tuple(_rules(subject, plan, asked)))
    stored = answer_sort(question, subject, lambda t: _has_tile(t, asked))
    rules = tuple(_rules(subject, plan, asked))
    return answer_varied(question, subject, [v for v in varied if v[1] != plan], rules, stored)


def _varied(plan: Plan, subject: Subject, asked: OfTile) -> Iterator[tuple[int, Plan]]:
    """The plan with that tile in each kernel that has one of the dimension."""
    for number, block in blocks_of(subject):
        other = _with_tile(block, asked)
        if other is not None:
            yield number, with_kernel(plan, number, other, plan.options[number])


def _with_tile(block: BlockGraph, asked: OfTile) -> BlockGraph | None:
    on_grid = asked.where != "loop" and any(a.dim == asked.dim for a in block.grid)
    looped = asked.where != "grid" and any(s.loop == asked.dim for s in block.sections)
    if not on_grid and not looped:
        return None
    grid = tuple(
        replace(a, tile=asked.size) if on_grid and a.dim == asked.dim else a for a in block.grid
    )
    sections = tuple(
        replace(s, tile=asked.size) if looped and s.loop == asked.dim else s for s in block.sections
    )
    return replace(block, grid=grid, sections=sections)


def _has_tile(tried: Tried, asked: OfTile) -> bool:
    tile = rf"{re.escape(asked.dim)} by {asked.size}\b"
    where = {"": r"(?:grid [^;|]*?|loop )", "grid": r"grid [^;|]*?", "loop": r"loop "}
    return re.search(rf"\b{where[asked.where]}\b{tile}", tried.tiles) is not None


def _rules(subject: Subject, plan: Plan, asked: OfTile) -> Iterator[Fact]:
    """Which tiles of the dimension the search tries, and whether this is one of them."""
    scope = plan.ugraph.scope
    splits = tuple(outer_dim(d) for d in split_dims(plan.ugraph.program))
    for _, block in blocks_of(subject):
        roles = roles_of(scope, block, splits, plan.backend)
        if asked.where != "loop" and any(a.dim == asked.dim for a in block.grid):
            yield _tried(f"grid of {block.name}", grid_tiles(scope, roles, asked.dim), asked)
        for section in block.sections:
            if asked.where != "grid" and section.loop == asked.dim:
                heavy = has_matmul(block, section)
                tiles = loop_tiles(scope, roles, asked.dim, heavy=heavy)
                yield _tried(f"loop of {block.name}", tiles, asked)


def _tried(where: str, tiles: tuple[int, ...], asked: OfTile) -> Fact:
    listed, is_tried = ", ".join(map(str, tiles)), asked.size in tiles
    text = (
        f"the search tries these tiles for {asked.dim} ({where}): {listed}; {asked.size} is "
        f"{'one' if is_tried else 'none'} of them"
    )
    return Fact(text, Basis.RULE, "" if is_tried else "not_tried")


def _untiled(question: str, subject: Subject, asked: OfTile) -> Answer:
    """The dimension is whole in every block of the result, or in no block at all."""
    kernels = [b.name for _, b in blocks_of(subject) if any(asked.dim in n.dims for n in b.nodes)]
    where = f"whole in each block of {', '.join(kernels)}" if kernels else "in no kernel of ours"
    text = f"{asked.dim} = {subject.program.sizes.get(asked.dim, '?')} is {where}"
    if asked.where and any(_with_tile(b, replace(asked, where="")) for _, b in blocks_of(subject)):
        text = f"no {asked.where} of the result is over {asked.dim}"
    fact = Fact(text, Basis.REPORT)

    def matches(tried: Tried) -> bool:
        return _has_tile(tried, asked)

    stored = answer_sort(question, subject, matches)
    if stored is None:
        return searched(question, subject, matches, (fact,))
    return replace(stored, facts=(fact, *stored.facts))
