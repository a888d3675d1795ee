"""The test whether a block graph is one of the derivations that a pool holds.

Steps are found in the pool by what they are: this operator on these tensors. What is said in
several ways is looked up in the pool's: operands that commute in either order, x * x as a square,
the sum of a product that is not built as a contraction, sums over two dimensions in either order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from completeness.graphs import Graph, Step
from completeness.kinds import HAND

from mirage_py.search.closure.pool import Pool
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.operators import operator


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """The product of two tensors of the pool, which it does not build, summed over ``dims``."""

    factors: tuple[int, ...]
    dims: tuple[str, ...] = ()


Place = int | Unbuilt | None


def commutes(op: str) -> bool:
    """Whether the order of the operands says nothing."""
    return op == "matmul" or (op != HAND and operator(op).commutative)


def spelling(graph: Graph) -> tuple[object, ...]:
    """A key that graphs share exactly if they differ in the order of operands that commute."""
    known: list[tuple[object, ...]] = []
    for step in graph.steps:
        args = [known[a] for a in step.args]
        if commutes(step.op):
            args.sort(key=repr)
        known.append((step.op, str(step.attr), step.kind.looped, step.kind.kernel, *args))
    return tuple(known[o] for o in graph.outputs)


class Index:
    """The alternatives of a pool by what they say."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._made = {
            (way.op, way.args, way.attr, tensor.looped): number
            for number, tensor in enumerate(pool.tensors)
            for way in tensor.alternatives
        }

    def place(self, step: Step, args: Sequence[Place]) -> Place:
        """The tensor that a step makes of others; None where no tensor is made so."""
        known = [a for a in args if isinstance(a, int)]
        if len(known) < len(args):
            return self._contraction(step, args)
        if commutes(step.op):
            known.sort()
        found = self._find(step.op, known, step.attr, step)
        if found is None and step.op == "mul" and known[0] == known[1]:
            return self._find("square", known[:1], None, step)
        if found is None and step.op == "mul":
            return Unbuilt(tuple(known))
        return found

    def _contraction(self, step: Step, args: Sequence[Place]) -> Place:
        if step.op != "sum" or not isinstance(args[0], Unbuilt):
            return None
        assert isinstance(step.attr, tuple)
        summed = Unbuilt(args[0].factors, (*args[0].dims, *(str(d) for d in step.attr)))
        for dims in (summed.dims, tuple(sorted(summed.dims))):
            found = self._find("matmul", summed.factors, dims, step)
            if found is not None:
                return found
        return summed

    def _find(self, op: str, args: Sequence[int], attr: Attr, step: Step) -> int | None:
        return self._made.get((op, tuple(args), attr, step.kind.looped))
