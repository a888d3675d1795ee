"""A proven bound on the probability that the field test accepts a wrong µGraph.

Take exp, sqrt, log and the like for unknown functions
(mirage_py.verify.field_test.unknown_functions). Then program and µGraph are rational functions of
the inputs and of the values that those functions take. If the two differ as such, one trial misses
it only if

* two different arguments of an unknown function happen to have equal values, so that it gives equal
  values where it need not: for M evaluations of one function fewer than M^2 pairs (an odd law
  compares a with b and with -b), each coinciding with probability at most (deg a + deg b) / q; or
* the difference of the outputs, a rational function that is not zero, vanishes at the random point:
  at most its degree / q.

Both by Schwartz (1980) and Zippel (1979): a polynomial of degree d that is not zero vanishes with
probability at most d / |S| at a point drawn from S^n. Variables are drawn from the nonzero residues
modulo p or, shifts, from the q powers of a generator, so |S| >= q. Draws that divide by zero are
drawn again, which divides the bound by the probability of a draw that does not. Trials are
independent: their bounds multiply.

Positions that are data are whole numbers from a small range: a program with some has no bound.

What has two values in a program has all of them here. A truth value is an element like any other,
and a selection by it the blend c a + (1 - c) b: what holds for all c holds for 0 and 1. Where a
selection is by something else there is no bound. The prime factors of constants are variables too,
but for those of sizes, so that no coefficient is a multiple of a prime because of them.

The theorem of Mirage (OSDI 2025) for exponentials, 8 d k^4 / q + q^(-1 / k^2), is above 1 as soon
as k, the number of exponentials in an output, is a handful. This bound needs no such law of exp,
and pays for it: a µGraph that is right by exp(a) exp(b) = exp(a + b) gets none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirage_py.errors import UnsupportedError, ValidationError
from mirage_py.reasons import Code, Reason, reason
from mirage_py.ugraph.field import FIELDS, Field, FieldArray, FieldOps
from mirage_py.ugraph.field.reading import Reading
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.operators import ELEMENTWISE, named
from mirage_py.verify.evaluate.labels import looked_up
from mirage_py.verify.evaluate.trial import (
    COMPARISONS,
    MAX_DIVISIONS,
    MAX_DRAWS,
    first_defined,
    reading_of,
)
from mirage_py.verify.field_test.polynomial_degree import DegreeMeaning, Degrees
from mirage_py.verify.field_test.unknown_functions import UnknownFunctionMeaning

# Operators that the field takes for less general functions than the proof does.
_LAWFUL = ("max", *named(lambda o: o.kind == ELEMENTWISE and not o.is_rational))


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """``probability`` that a wrong µGraph passes, or None; ``reason`` says why, either way."""

    probability: float | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Trial:
    missed: int
    divisor_degrees: int


def error_bound(program: Program, ugraph: UGraph, *, trials: int, seed: int) -> ErrorBound:
    """The bound for ``trials`` more trials, which are run here, at the sizes that are given.

    It is about program and µGraph at these sizes, over the field.
    """
    if not _selects_by_truth(program, ugraph):
        return ErrorBound(None, Reason(Code.SELECTS_BY_NO_TRUTH_VALUE))
    if looked_up(program):
        return ErrorBound(None, reason(Code.NO_BOUND, "positions that are data"))
    reading = replace(reading_of(program), positive=False, generic=True)
    for trial in range(trials):
        field, first = FIELDS[trial % len(FIELDS)], (seed + trial) * MAX_DRAWS
        draws = (FieldOps(field, first + number, reading) for number in range(MAX_DIVISIONS))
        try:
            agrees = first_defined(program, draws, lambda ops: _agree(program, ugraph, ops))
        except UnsupportedError as error:
            return ErrorBound(None, reason(Code.NO_BOUND, error.what))
        if not agrees:
            return ErrorBound(None, _lawful_reason(program))
    degrees = _degrees(program, ugraph, reading)
    probability = 1.0
    for trial in range(trials):
        probability *= _missed(degrees, FIELDS[trial % len(FIELDS)])
    if probability >= 1.0:
        return ErrorBound(None, Reason(Code.BOUND_ABOVE_ONE))
    return ErrorBound(probability, reason(Code.SCHWARTZ_ZIPPEL, trials, degrees.missed))


def _agree(program: Program, ugraph: UGraph, ops: FieldOps) -> bool:
    meaning = UnknownFunctionMeaning(ops)
    drawn = {t.name: ops.random(t.shape, f"input {t.name}") for t in program.inputs}
    inputs = {name: FieldArray(a.p, None) for name, a in drawn.items()}
    expected = evaluate_program(program, inputs, meaning)
    try:
        found = evaluate_ugraph(ugraph, inputs, meaning)
    except ValidationError:
        # Two writes of one element that are equal by a law only.
        return False
    # A q part here is a maximum or a shift that is a result itself: nothing is known of its value.
    known = all(a.q is None for a in (*expected.values(), *found.values()))
    return known and all(ops.equal(expected[name], found[name]) for name in expected)


def _selects_by_truth(program: Program, ugraph: UGraph) -> bool:
    """Whether every condition is 0 or 1."""
    blocks = [k.nodes for k in ugraph.kernels if isinstance(k, BlockGraph)]
    truths = [t.name for t in program.inputs if t.dtype == BOOL]
    for nodes in (program.nodes, *blocks):
        known: list[bool] = []
        for node in nodes:
            known.append(_is_truth(node, nodes, known, truths))
        if any(n.op == "where" and not known[n.args[0]] for n in nodes):
            return False
    return True


def _is_truth(
    node: Node, nodes: Sequence[Node], known: Sequence[bool], truths: Sequence[str]
) -> bool:
    if node.op == "load":
        return node.access.tensor in truths
    if node.op in ("cast", "mul"):
        return all(known[a] for a in node.args)
    if node.op == "sub":
        first = nodes[node.args[0]]
        return first.op == "const" and first.attr == 1.0 and known[node.args[1]]
    return node.op in ("mask", *COMPARISONS)


def _lawful_reason(program: Program) -> Reason:
    known = ", ".join(op for op in _LAWFUL if any(n.op == op for n in program.nodes))
    if any(t.dtype == BOOL for t in program.inputs):
        known = ", ".join(filter(None, (known, "truth values")))
    return reason(Code.EQUAL_BY_LAWS, known or "its operators")


def _degrees(program: Program, ugraph: UGraph, reading: Reading = Reading()) -> _Trial:  # noqa: B008
    meaning = DegreeMeaning(reading)
    inputs = {t.name: Degrees(t.shape, 1) for t in program.inputs}
    expected = evaluate_program(program, inputs, meaning)
    found = evaluate_ugraph(ugraph, inputs, meaning)
    outputs = max(
        max(
            expected[o].numerator + found[o].denominator,
            expected[o].denominator + found[o].numerator,
        )
        for o in expected
    )
    collisions = sum(a.coincidence_degree for a in meaning.arguments.values())
    return _Trial(outputs + collisions, meaning.divisor_degrees)


def _missed(trial: _Trial, field: Field) -> float:
    """Probability that one trial misses a difference, given that it divided by no zero."""
    divides = trial.divisor_degrees / field.q
    return trial.missed / field.q / (1.0 - divides) if divides < 1.0 else 1.0
