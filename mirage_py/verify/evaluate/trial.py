"""One trial over a finite field: fresh inputs, and an order that suits the program's constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from math import isfinite
from typing import TypeVar

import numpy as np

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.field import DivisionByZero, Field, FieldArray, FieldOps
from mirage_py.ugraph.field.reading import Reading, prime_factors
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.lossy_casts import observed_casts
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.operators import named, operator
from mirage_py.verify.evaluate.labels import Positions, looked_up

T = TypeVar("T")

MAX_DRAWS = 64
# A divisor of a right program is zero by chance once in a million draws or less.
MAX_DIVISIONS = 6

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# Operators whose meaning is the keyed random order of the field (mirage_py.ugraph.field.order).
ORDERED = ("max", *named(lambda o: o.is_ordered))
# Further operators that depend on the sign of their operand.
_POWERS = ("sqrt", "rsqrt", "pow")
# Operators that are keyed random functions.
KEYED = named(lambda o: o.is_keyed)
# What is said of the operators below where they are keyed.
OF_AN_EXPONENTIAL = "of an exponential"
# Operators defined through exp: of a value without a q part they are keyed, and have no q part
# either.
EXPONENTIAL = named(lambda o: o.is_exponential)


def random_inputs(program: Program, ops: FieldOps) -> dict[str, FieldArray]:
    """Uniform elements for every input. Of truth values one in eight is 0: fair bits as the mask of
    a softmax would leave some short row nothing, in every draw, and divide by zero. Positions are
    small integers.
    """
    positions = looked_up(program)
    drawn = {t.name: ops.random(t.shape, f"input {t.name}") for t in program.inputs}
    return {
        t.name: _truths(ops, t)
        if t.dtype == BOOL
        else placed(drawn[t.name], positions[t.name], ops)
        if t.name in positions
        else drawn[t.name]
        for t in program.inputs
    }


def placed(drawn: FieldArray, positions: Positions, ops: FieldOps) -> FieldArray:
    """Positions made of random elements."""
    whole = positions.of(drawn.p)
    return FieldArray(whole % ops.field.p, whole % ops.field.q)


def _truths(ops: FieldOps, tensor: Tensor) -> FieldArray:
    drawn = [ops.random_bits(tensor.shape, f"input {tensor.name} {n}").p for n in range(3)]
    bits = np.maximum.reduce(drawn)
    return FieldArray(bits, bits)


def redrawn(
    program: Program,
    field: Field,
    seed: int,
    attempt: Callable[[FieldOps], T],
    *,
    other: Program | None = None,
    filled: bool = False,
) -> T:
    """``attempt`` with the first draw that divides by no zero and orders the constants truly.

    Where the program compares, a draw whose order contradicts the order of its constants may not
    depend on an input at all (see ``FieldOps.orders_truly``). If no draw fits, the order is let go.
    The draw reads constants and casts as the program, or the ``other`` one, needs it. If every draw
    divides by zero, as where(relu(x) > 0, y / relu(x), 0) does, then 1 / 0 is a random element in
    some more, with ``filled`` in all: ``attempt`` has to evaluate the program by ``defined``.
    Raises UnsupportedError if the program divides by zero in these too.
    """
    constants: list[float] = []
    if any(n.op in ORDERED for n in program.nodes):
        floats = [n.attr for n in program.nodes if n.op == "const" and isinstance(n.attr, float)]
        constants = [c for c in floats if isfinite(c)]
    reading = reading_of(program, other)
    draws = [FieldOps(field, seed * MAX_DRAWS + number, reading) for number in range(MAX_DRAWS)]
    # Lazily: the first draw nearly always fits.
    fitting = (ops for ops in draws if not constants or ops.orders_truly(constants))
    first = () if filled else islice(chain(fitting, draws), MAX_DIVISIONS)
    others = (FieldOps(field, ops.seed, reading, fills="1 / 0") for ops in draws[:MAX_DIVISIONS])
    return first_defined(program, chain(first, others), attempt)


def defined(
    ops: FieldOps, evaluate: Callable[[], T], arrays: Callable[[T], Sequence[FieldArray]]
) -> T:
    """What ``evaluate`` gives: where it divides by zeros, twice, and DivisionByZero if the values
    of the two are not the same.
    """
    found = evaluate()
    if ops.zero_divisors:
        pairs = zip(arrays(found), arrays(evaluate()), strict=True)
        if not all(ops.equal(one, other) for one, other in pairs):
            raise DivisionByZero("a result depends on what 1 / 0 is")
    return found


def first_defined(
    program: Program, draws: Iterable[FieldOps], attempt: Callable[[FieldOps], T]
) -> T:
    """``attempt`` with the first of a few draws that divides by no zero, or UnsupportedError."""
    for ops in draws:
        try:
            return attempt(ops)
        except DivisionByZero:
            continue
    raise UnsupportedError(
        "every random draw divides by zero",
        where=program.name,
        why="a divisor of the program is zero whatever its inputs are",
        repair="look for x / (y - y) and the like",
    )


def reading_of(program: Program, other: Program | None = None) -> Reading:
    """How one or two programs are read: constants have a sign where that matters."""
    both = [p for p in (program, other) if p is not None]
    signed = any(n.op in (*ORDERED, *_POWERS) for p in both for n in p.nodes)
    kept = dict.fromkeys(f for p in both for d in p.dims for f in prime_factors(d.size))
    return Reading(opaque_casts(program, other), positive=signed, kept=tuple(kept))


def opaque_casts(program: Program, other: Program | None = None) -> tuple[str, ...]:
    """Types to which a cast is no more than a function in either of two programs."""
    found = [observed_casts(p) for p in (program, other) if p is not None]
    return tuple(sorted({name for names in found for name in names}))


def has_q_part(node: Node, operands: Sequence[bool], *, constant_power: bool) -> bool:
    """Whether a node's value can be an exponent, from whether its operands' values can.

    A random function of a residue modulo p has a q part again, and so has a truth value.
    """
    if operator(node.op).is_fresh:
        return True
    if node.op in EXPONENTIAL or (node.op == "pow" and not constant_power):
        return False
    return all(operands)


def is_constant_power(node: Node, nodes: Sequence[Node]) -> bool:
    """Whether it is a power by a number: that is a fixed exponent in the field too."""
    return node.op == "pow" and nodes[node.args[1]].op == "const"


def keyed_operators(program: Program) -> tuple[str, ...]:
    """Operators of the program that the field knows only as random functions or a random order."""
    found = dict.fromkeys(f"cast to {name}" for name in observed_casts(program))
    has_q: list[bool] = []
    for node in program.nodes:
        operands = [has_q[a] for a in node.args]
        constant_power = is_constant_power(node, program.nodes)
        if (node.op in ORDERED or node.op in KEYED) and not constant_power:
            found[node.op] = None
        if node.op in EXPONENTIAL and not all(operands):
            found[f"{node.op} {OF_AN_EXPONENTIAL}"] = None
        has_q.append(has_q_part(node, operands, constant_power=constant_power))
    return tuple(found)
