"""The search under test: the pool of one configuration, and the tensors that are the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.axioms.law import Ring
from mirage_py.axioms.saturate import saturate
from mirage_py.search.abstraction import abstract
from mirage_py.search.closure import Closure, Ground
from mirage_py.search.counters import Counter
from mirage_py.search.explore import SearchLimits
from mirage_py.search.hits import draw, hits
from mirage_py.search.pool import Pool
from mirage_py.search.spaces import Configuration, representative_space
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.program import Program


@dataclass(frozen=True)
class Searched:
    """``roots`` has every choice of a tensor for each output."""

    pool: Pool
    roots: tuple[tuple[int, ...], ...]


def searched(program: Program, looped: Sequence[str], ring: Ring) -> Searched:
    """As the search does it, one configuration and one ring."""
    limits = SearchLimits()
    form = abstract(program)
    table = saturate(form.roots, form.leaf_axes, axes=form.axes, ring=ring)
    values, targets = draw(program, representative_space(program), FIELDS[0], 0)
    ground = Ground(
        table,
        form.leaves,
        tuple(dict.fromkeys(frozenset(n.dims) for n in program.nodes)),
        limits.max_loops,
        limits.max_tensors,
        skip_divisions=False,
    )
    closure = Closure(ground, values, Configuration(tuple(looped)), Counter())
    assert closure.run()
    return Searched(closure.pool, tuple(hits(program, closure.pool, targets)))
