"""Reasons why a search need not hold a graph: a derivation beats it, and one of these says why.

Each reason is checked on the graph, over a finite field where it is about values. They are tried in
order. None of them can hide a loss: a graph with fewer operators, or as many, that a reason points
to (the factor not multiplied and divided by, the product not multiplied out) is enumerated too.
What lets through what a mask leaves out is no candidate at all, whatever it costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from completeness.containment import spelling
from completeness.cost import Cost, cost_of
from completeness.draws import Draw, drawn
from completeness.graphs import Graph, Step
from completeness.kernels import ugraph_of
from completeness.kinds import HAND
from completeness.programs import Subject

from mirage_py.ugraph.field import DivisionByZero, FieldArray
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.sizes.small_sizes import instantiate_small

_SEED = 2
# Steps that a formula does not count: they are there or not as signs and loops demand.
_FREE = ("const", "neg", "accum_sum", "accum_max", HAND)


@dataclass(frozen=True)
class Rival:
    """A derivation of the pool: its cost, and how it is spelled without signs and means."""

    cost: Cost
    length: int
    unsigned: tuple[object, ...]
    unscaled: tuple[object, ...]

    @classmethod
    def of(cls, program: Program, graph: Graph) -> Rival:
        """What is compared of a derivation."""
        unsigned, unscaled = (stripped(graph, of_sizes=sizes) for sizes in (False, True))
        return cls(cost_of(program, graph), length(graph), unsigned, unscaled)


class Judge:
    """Knows the derivations of a program in a configuration."""

    def __init__(self, subject: Subject, rivals: Sequence[Graph]) -> None:
        self.program = program = subject.program
        self.rivals = [Rival.of(program, g) for g in rivals]
        self._draw, self._expected = drawn(program, subject.configuration, _SEED)
        seed = self._draw.seed
        self._other_sizes = Draw(program, subject.configuration, seed, true_sizes=False)

    def is_beaten(self, graph: Graph) -> bool:
        """Whether a derivation is nowhere worse and somewhere better."""
        cost = cost_of(self.program, graph)
        return any(r.cost.beats(cost) for r in self.rivals)

    def reason(self, graph: Graph) -> str | None:
        """The first reason that holds, None where nothing beats the graph or no reason holds."""
        cost = cost_of(self.program, graph)
        beaten = [r for r in self.rivals if r.cost.beats(cost)]
        if beaten:
            for name, holds in self._reasons(graph, beaten):
                if holds:
                    return name
        unsigned = stripped(graph, of_sizes=False)
        if any(r.unsigned == unsigned and r.cost.is_no_worse(cost) for r in self.rivals):
            return "sign"
        return "mask" if self._lets_through(graph) else None

    def _reasons(self, graph: Graph, beaten: Sequence[Rival]) -> Iterator[tuple[str, bool]]:
        yield "repeat", self._repeats(graph)
        yield "cancel", self._cancels(graph)
        yield "count", self._counts(graph)
        yield "build", self._builds(graph)
        yield "quotient", _divides_by_quotient(graph)
        yield "pure", _stores_without_reduction(graph)
        yield "image", _stores_image(graph)
        # A division by a size stays where it is (axioms/laws/division.py).
        unscaled = stripped(graph, of_sizes=True)
        yield "mean", any(r.unscaled == unscaled for r in beaten)
        # No law of the factored ring makes a formula longer.
        yield "longer", any(r.length < length(graph) for r in beaten)

    def _lets_through(self, graph: Graph) -> bool:
        """An infinite row of an input makes it NaN where the program has a number. Over the field 0
        times anything is 0, in (mask / y) * x as in mask * x / y.
        """
        program = self.program
        if not any(n.op == "mask" for n in program.nodes):
            return False
        rng = np.random.default_rng(_SEED)
        normal = {t.name: rng.normal(size=t.shape) for t in program.inputs}
        ugraph = instantiate_small(ugraph_of(program, graph), fine_axes=0)
        for name, values in normal.items():
            infinite = values.copy()
            infinite[:1] = np.inf
            arrays = {**normal, name: infinite}
            with np.errstate(all="ignore"):
                expected = evaluate_program(program, arrays, FloatMeaning())
                found = evaluate_ugraph(ugraph, arrays, FloatMeaning())
            if any((np.isfinite(e) & np.isnan(found[o])).any() for o, e in expected.items()):
                return True
        return False

    def _repeats(self, graph: Graph) -> bool:
        """Two steps at one place have one value: x * 1, -(-x), (x * y) / y, max(x, x)."""
        places = [
            (step.kind, value.p.tobytes())
            for step, value in zip(graph.steps, self._draw.values(graph), strict=True)
        ]
        return len(dict.fromkeys(places)) < len(places)

    def _cancels(self, graph: Graph) -> bool:
        """Some operands could be anything: another value for all of them at once, and the outputs
        do not change. So in x / (y * x) * z * x, with two of the x.
        """
        tree, origin = unshared(graph)
        values = self._draw.values(tree)
        for n in dict.fromkeys(origin):
            uses = [m for m, o in enumerate(origin) if o == n and m not in tree.outputs]
            for some in (c for size in range(1, len(uses) + 1) for c in combinations(uses, size)):
                other = self._draw.ops.random(values[some[0]].shape, f"instead of {n}")
                if self._gives_outputs(tree, dict.fromkeys(some, other)):
                    return True
        return False

    def _gives_outputs(self, graph: Graph, instead: dict[int, FieldArray]) -> bool:
        try:
            found = self._draw.values(graph, instead)
        except DivisionByZero:
            return False
        pairs = zip(graph.outputs, self._expected, strict=True)
        return all(self._draw.ops.equal(found[o], e) for o, e in pairs)

    def _counts(self, graph: Graph) -> bool:
        """It is equal only because the size of a dimension is the number of its points."""
        draw = self._other_sizes
        try:
            found, expected = draw.values(graph), draw.outputs()
        except DivisionByZero:
            return False
        pairs = zip(graph.outputs, expected, strict=True)
        return not all(draw.ops.equal(found[o], e) for o, e in pairs)

    def _builds(self, graph: Graph) -> bool:
        """A value with more dimensions than each of its operands and than each node of the program
        is built: a product that need only be contracted.
        """
        known = [frozenset(n.dims) for n in self.program.nodes]
        for step in graph.steps:
            dims = frozenset(step.kind.dims)
            operands = [frozenset(graph.steps[a].kind.dims) for a in step.args]
            outgrows = bool(operands) and all(o < dims for o in operands)
            if outgrows and not any(dims <= k for k in known):
                return True
        return False


def _divides_by_quotient(graph: Graph) -> bool:
    """x / (y / z), where x * z / y has one division."""
    return any(s.op == "div" and graph.steps[s.args[1]].op == "div" for s in graph.steps)


def _stores_without_reduction(graph: Graph) -> bool:
    """What the second kernel reads has no reduction in it: it can compute that itself."""
    pure: list[bool] = []
    for step in graph.steps:
        reduces = step.op in REDUCING
        pure.append(not reduces and all(pure[a] for a in step.args))
    return any(s.op == HAND and pure[s.args[0]] for s in graph.steps)


def _stores_image(graph: Graph) -> bool:
    """What the second kernel reads is a function of one tensor of its shape and scalars: it can
    read that.
    """
    for hand in graph.steps:
        if hand.op != HAND:
            continue
        stored = graph.steps[hand.args[0]]
        operands = dict.fromkeys(a for a in stored.args if graph.steps[a].kind.dims)
        if stored.attr is None and [graph.steps[a].kind for a in operands] == [stored.kind]:
            return True
    return False


def stripped(graph: Graph, *, of_sizes: bool) -> tuple[object, ...]:
    """How the graph is spelled if nothing is negated and differences are sums; and, ``of_sizes``,
    if nothing is divided by a size.
    """
    kept: list[Step] = []
    place: list[int] = []
    for step in graph.steps:
        by_size = step.op == "div" and kept[place[step.args[1]]].op == "size"
        if step.op == "neg" or (of_sizes and by_size):
            place.append(place[step.args[0]])
            continue
        place.append(len(kept))
        op = "add" if step.op == "sub" else step.op
        kept.append(replace(step, op=op, args=tuple(place[a] for a in step.args)))
    return spelling(Graph(tuple(kept), tuple(place[o] for o in graph.outputs)))


def unshared(graph: Graph) -> tuple[Graph, list[int]]:
    """The graph as a tree, squares spelled as products; and for each step the one it copies."""
    steps: list[Step] = []
    origin: list[int] = []

    def copy(number: int) -> int:
        step = graph.steps[number]
        if step.op == "square":
            step = replace(step, op="mul", args=step.args * 2)
        args = tuple(copy(a) for a in step.args)
        steps.append(replace(step, args=args))
        origin.append(number)
        return len(steps) - 1

    outputs = tuple(copy(o) for o in graph.outputs)
    return Graph(tuple(steps), outputs), origin


def length(graph: Graph) -> int:
    """Operators and leaves of the formulas written out. A contraction is a product and a sum, an
    accumulator a part of its sum; scalars and signs do not count.
    """
    tree, _ = unshared(graph)
    return sum((s.op not in _FREE) + (s.op == "matmul") for s in tree.steps)
