"""The pool of one configuration, without the rest of a search."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.axioms.saturation.saturate import saturate
from mirage_py.search.closure.closure import Closure, Ground
from mirage_py.search.closure.hits import draw, hits
from mirage_py.search.closure.pool import Pool
from mirage_py.search.space.abstraction import abstract
from mirage_py.search.space.counters import Counter
from mirage_py.search.space.spaces import Configuration, representative_space
from mirage_py.search.space.values import Values
from mirage_py.search.space.variants import variants
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.ir.program import Program


@dataclass(frozen=True)
class Closed:
    """``targets`` are the values of the outputs, ``roots`` the tensors that have them, if any."""

    pool: Pool
    roots: tuple[int, ...]
    values: Values
    targets: tuple[int, ...]
    counter: Counter


def closed(program: Program, *looped: str) -> Closed:
    """Of a kernel that computes all of a program."""
    return _closed(program, Configuration(looped), ())


def split_closed(program: Program, split: str, *looped: str) -> Closed:
    """Of a first kernel whose blocks have the splits of a dimension."""
    variant = next(v for v in variants(program) if v.split == split)
    return _closed(variant.program, Configuration(looped, variant.splits), variant.splits)


def _closed(program: Program, configuration: Configuration, splits: tuple[str, ...]) -> Closed:
    form = abstract(program, splits)
    table = saturate(form.roots, form.leaf_axes, axes=form.axes)
    space = representative_space(program, 0, splits)
    values, targets = draw(program, space, FIELDS[0], 0)
    buildable = tuple(frozenset(n.dims) for n in program.nodes)
    ground = Ground(table, form.leaves, buildable, 3, 1000, skip_divisions=False)
    counter = Counter()
    closure = Closure(ground, values, configuration, counter)
    assert closure.run()
    roots = next(hits(program, closure.pool, targets), ())
    return Closed(closure.pool, roots, values, targets, counter)
