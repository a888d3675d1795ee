"""What a graph costs, as numbers that are compared one by one: no weights, so no opinion."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from completeness.graphs import Graph

from mirage_py.ugraph.operators import CONTRACT, ELEMENTWISE, REDUCE, STATE, operator
from mirage_py.ugraph.program import Program

ITERATIONS = 16


@dataclass(frozen=True, slots=True)
class Cost:
    """Operators, each as often as it stands in a section (a contraction is a product and a sum);
    arithmetic at the program's sizes; elements of all values that are built; bytes that the loads
    read; loops.
    """

    elementwise: int
    reductions: int
    accumulators: int
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
    """The cost of a graph. A loop has ``ITERATIONS`` iterations."""
    count = dict.fromkeys((ELEMENTWISE, REDUCE, CONTRACT, STATE), 0)
    flops = elements = bytes_ = 0.0
    tensors = program.tensors

    def points(dims, loop) -> float:
        found = 1.0 if loop is None or loop in dims else float(ITERATIONS)
        for d in dims:
            found *= program.sizes[d]
        return found

    for loop, n in graph.executions():
        step = graph.steps[n]
        kinds = [graph.steps[a].kind.dims for a in step.args]
        over = tuple(dict.fromkeys([*step.kind.dims, *(d for dims in kinds for d in dims)]))
        elements += points(step.kind.dims, loop)
        if step.op == "div":
            # One reciprocal for each element of the divisor, where that lives, then products: what
            # emitters make of it (codegen/strength.py).
            lives = graph.steps[step.args[1]].kind.looped
            flops += points(kinds[1], lives) * operator("div").flops + points(over, loop)
        elif step.args:
            flops += points(over, loop) * operator(step.op).flops
        elif step.op == "load":
            bytes_ += points(over, loop) * tensors[step.attr.tensor].dtype.bytes
        if step.args:
            count[operator(step.op).kind] += 1
    return Cost(
        count[ELEMENTWISE] + count[CONTRACT], count[REDUCE] + count[CONTRACT], count[STATE],
        flops, elements, bytes_, len(graph.loops),
    )  # fmt: skip
