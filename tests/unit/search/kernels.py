"""Searches whose results several test files use, and questions about their kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from oracles.known_forms.registry import forms_of
from unit.search import programs

from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.ugraph.ir.ugraph import BlockGraph

ALL = {**programs.PROGRAMS, **programs.MORE}
FACTORED = SearchLimits(rings=("factored",))
ONE_KERNEL = replace(FACTORED, max_kernels=1)
EXPANDED = replace(ONE_KERNEL, rings=("expanded",))

_EXAMPLES = Path(__file__).parents[3] / "examples"


@cache
def alone(name):
    """The search for one kernel of a program of programs.py."""
    return search(ALL[name](), limits=ONE_KERNEL)


@cache
def found(program):
    """The search over all kinds of families."""
    return search(program, limits=FACTORED)


@cache
def in_all_rings(program):
    """The search as the pipeline makes it."""
    return search(program)


@cache
def example(name):
    """The search over all kinds of a spec in examples/, as the pipeline makes it."""
    (path,) = [p for p in (_EXAMPLES / name, _EXAMPLES / "large" / name) if p.exists()]
    return found(normalise(parse_file(path)))


@cache
def named(name):
    """The families of an example with the names of their forms."""
    return [(family, forms_of(family)) for family in example(f"{name}.math").families]


def of_kind(result, kind):
    return [f for f in result.families if f.kind == kind]


def block_of(family):
    """The kernel of a family that has only one."""
    (block,) = family.ugraph.kernels
    assert isinstance(block, BlockGraph)
    return block


def loops_of(block):
    """The dimension of each loop with the operators of its body."""
    return [(s.loop, sorted(block.nodes[n].op for n in s.nodes)) for s in block.sections if s.loop]


def ops_after_loops(block):
    last = block.sections[-1]
    return [block.nodes[n].op for n in last.nodes] if last.loop is None else []


def with_tiles(ugraph, grid_tile, loop_tile):
    """Every kernel with small tiles; those of the programs' small sizes divide no dimension."""
    return replace(ugraph, kernels=tuple(_tiled(k, grid_tile, loop_tile) for k in ugraph.kernels))


def _tiled(kernel, grid_tile, loop_tile):
    if not isinstance(kernel, BlockGraph):
        return kernel
    grid = tuple(replace(axis, tile=grid_tile) for axis in kernel.grid)
    sections = tuple(replace(s, tile=loop_tile if s.loop else None) for s in kernel.sections)
    return replace(kernel, grid=grid, sections=sections)


def spread(families, count):
    """So many families of each kind, from the cheapest to the dearest."""
    chosen = []
    for kind in dict.fromkeys(f.kind for f in families):
        alike = [f for f in families if f.kind == kind]
        step = max(1, -(-len(alike) // count))
        chosen += alike[::step]
    return chosen
