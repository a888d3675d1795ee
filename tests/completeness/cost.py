"""Costs of a graph as numbers that are compared one by one, without weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from completeness.graphs import Graph
from completeness.kernels import intermediates, kernels_of

from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.operators import CONTRACT, ELEMENTWISE, REDUCE, STATE, operator

ITERATIONS = 16


@dataclass(frozen=True, slots=True)
class Cost:
    """Operators, each as often as it stands in a section (a contraction is a product and a sum);
    kernels; arithmetic at the program's sizes; elements of all values that are built; bytes that
    are read, and stored for another kernel; loops.
    """

    elementwise: int
    reductions: int
    accumulators: int
    kernels: int
    flops: float
    elements: float
    bytes: float
    loops: int

    def is_no_worse(self, other: Cost) -> bool:
        """Whether no number is larger."""
        return all(a <= b for a, b in zip(astuple(self), astuple(other), strict=True))

    def beats(self, other: Cost) -> bool:
        """Whether no number is larger and one is smaller."""
        return self.is_no_worse(other) and self != other


def cost_of(program: Program, graph: Graph) -> Cost:
    """The cost of all kernels of a graph. A loop has ``ITERATIONS`` iterations."""
    kernels = kernels_of(program, graph)
    tensors = {t.name: t for t in (*program.inputs, *intermediates(program, kernels))}
    tally = _Tally(program, tensors)
    for kernel in kernels:
        tally.add(kernel.graph)
    tally.bytes += sum(t.bytes for t in tensors.values() if t not in program.inputs)
    count = tally.count
    return Cost(
        count[ELEMENTWISE] + count[CONTRACT], count[REDUCE] + count[CONTRACT], count[STATE],
        len(kernels), tally.flops, tally.elements, tally.bytes,
        sum(len(kernel.graph.loops) for kernel in kernels),
    )  # fmt: skip


class _Tally:
    def __init__(self, program: Program, tensors: Mapping[str, Tensor]) -> None:
        self.program = program
        self.tensors = tensors
        self.count = dict.fromkeys((ELEMENTWISE, REDUCE, CONTRACT, STATE), 0)
        self.flops = self.elements = self.bytes = 0.0

    def add(self, graph: Graph) -> None:
        """Take in a kernel."""
        for loop, n in graph.executions():
            step = graph.steps[n]
            kinds = [graph.steps[a].kind for a in step.args]
            over = tuple(dict.fromkeys(d for k in (step.kind, *kinds) for d in k.dims))
            self.elements += self._points(step.kind.dims, loop)
            if not step.args:
                if step.op == "load":
                    element = self.tensors[step.attr.tensor].dtype.bytes
                    self.bytes += self._points(over, loop) * element
                continue
            row = operator(step.op)
            self.count[row.kind] += 1
            if step.op == "div":
                # One reciprocal for each element of the divisor, where that lives, then products:
                # what emitters make of it (codegen/lowering/lowering.py).
                divisor = kinds[1]
                self.flops += self._points(divisor.dims, divisor.looped) * row.flops
                self.flops += self._points(over, loop)
            else:
                self.flops += self._points(over, loop) * row.flops

    def _points(self, dims: Sequence[str], loop: str | None) -> float:
        found = 1.0 if loop is None or loop in dims else float(ITERATIONS)
        for d in dims:
            found *= self.program.sizes[d]
        return found
