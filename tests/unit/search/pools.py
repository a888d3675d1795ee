"""The pool of one configuration, without the rest of a search."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.axioms.saturate import saturate
from mirage_py.search.abstraction import abstract
from mirage_py.search.closure import Closure, Ground
from mirage_py.search.counters import Counter
from mirage_py.search.hits import draw, hits
from mirage_py.search.pool import Pool
from mirage_py.search.spaces import Configuration, representative_space
from mirage_py.search.values import Values
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.program import Program


@dataclass(frozen=True)
class Closed:
    """``targets`` are the values of the outputs, ``roots`` the tensors that have them."""

    pool: Pool
    roots: tuple[int, ...]
    values: Values
    targets: tuple[int, ...]
    counter: Counter


def closed(program: Program, *looped: str) -> Closed:
    form = abstract(program)
    table = saturate(form.roots, form.leaf_axes, axes=form.axes)
    values, targets = draw(program, representative_space(program), FIELDS[0], 0)
    buildable = tuple(frozenset(n.dims) for n in program.nodes)
    ground = Ground(table, form.leaves, buildable, 3, 1000, skip_divisions=False)
    counter = Counter()
    closure = Closure(ground, values, Configuration(looped), counter)
    assert closure.run()
    (roots,) = hits(program, closure.pool, targets)
    return Closed(closure.pool, roots, values, targets, counter)
