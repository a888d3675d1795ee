"""How likely it is that the field test accepts a wrong µGraph, where that can be proven.

Take exp, sqrt, log and the like for unknown functions (mirage_py.verify.unknown_functions). Then
program and µGraph are rational functions of the inputs and of the values that those functions take.
If the two differ as such, one trial misses it only if

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

The theorem of Mirage (OSDI 2025) for exponentials, 8 d k^4 / q + q^(-1 / k^2), is above 1 as soon
as k, the number of exponentials in an output, is a handful. This bound needs no such law of exp,
and pays for it: a µGraph that is right by exp(a) exp(b) = exp(a + b) gets none.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.errors import UnsupportedError, ValidationError
from mirage_py.ugraph.field import FIELDS, Field, FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph
from mirage_py.verify.polynomial_degree import DegreeMeaning, Degrees
from mirage_py.verify.trial import random_inputs, redrawn
from mirage_py.verify.unknown_functions import UnknownFunctionMeaning

_LAWFUL = (
    "max",
    "exp",
    "sqrt",
    "rsqrt",
    "sigmoid",
    "silu",
    "tanh",
    "log",
    "log1p",
    "expm1",
    "abs",
    "relu",
    "erf",
    "pow",
)


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """``probability`` that a wrong µGraph passes, or None; ``reason`` says why, either way."""

    probability: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Trial:
    missed: int
    divisor_degrees: int


def error_bound(program: Program, ugraph: UGraph, *, trials: int, seed: int) -> ErrorBound:
    """The bound for ``trials`` more trials, which are run here, at the sizes that are given.

    It is about program and µGraph at these sizes, over the field.
    """
    for trial in range(trials):
        field = FIELDS[trial % len(FIELDS)]
        try:
            agrees = redrawn(program, field, seed + trial, lambda ops: _agree(program, ugraph, ops))
        except UnsupportedError as error:
            return ErrorBound(None, f"no bound is proven: {error.what}")
        if not agrees:
            return ErrorBound(None, _lawful_reason(program))
    degrees = _degrees(program, ugraph)
    probability = 1.0
    for trial in range(trials):
        probability *= _missed(degrees, FIELDS[trial % len(FIELDS)])
    if probability >= 1.0:
        return ErrorBound(None, "the bound that is proven is above 1")
    return ErrorBound(
        probability,
        f"Schwartz-Zippel for {trials} trials at the small sizes, per trial {degrees.missed} / q, "
        "whatever functions exp, sqrt and the like are",
    )


def _agree(program: Program, ugraph: UGraph, ops: FieldOps) -> bool:
    meaning = UnknownFunctionMeaning(ops)
    inputs = {n: FieldArray(a.p, None) for n, a in random_inputs(program, ops).items()}
    expected = evaluate_program(program, inputs, meaning)
    try:
        found = evaluate_ugraph(ugraph, inputs, meaning)
    except ValidationError:
        # Two writes of one element that are equal by a law only.
        return False
    # A q part here is a maximum or a shift that is a result itself: nothing is known of its value.
    known = all(a.q is None for a in (*expected.values(), *found.values()))
    return known and all(ops.equal(expected[name], found[name]) for name in expected)


def _lawful_reason(program: Program) -> str:
    known = ", ".join(op for op in _LAWFUL if any(n.op == op for n in program.nodes))
    return (
        f"no bound is proven: the µGraph is equal by laws of {known or 'its operators'}, which the "
        "trials check and the proof does not know"
    )


def _degrees(program: Program, ugraph: UGraph) -> _Trial:
    meaning = DegreeMeaning()
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
