"""Laws of activations, by their definitions.

A spelled-out activation is recognised and becomes equal to the operator. The reverse, decomposing
an activation that the program has as an operator, adds products and no structure: with silu(x) -> x
sigmoid(x), RMSNorm and gated MLP had 90,000 rows instead of 2,000 in the expanded ring.
"""

from __future__ import annotations

from mirage_py.axioms.laws.notation import exp, maximum, minimum, one, x, y, z, zero
from mirage_py.axioms.terms.law import Law
from mirage_py.axioms.terms.term import apply

SIGMOID, SILU, RELU, ABS = (apply(op, x) for op in ("sigmoid", "silu", "relu", "abs"))

LAWS = (
    Law("activations.silu", x * SIGMOID, SILU),
    Law(
        "activations.sigmoid",
        y / (one + exp(-x)),
        y * SIGMOID,
        why="both 1/(1+exp(-x)) and x/(1+exp(-x)), as written by hand",
    ),
    Law("activations.relu", RELU, maximum(x, zero), both_ways=True),
    Law("activations.abs", maximum(x, -x), ABS),
    Law("activations.abs_of_negative", apply("abs", -x), ABS),
    Law(
        "activations.clamp",
        apply("clamp", x, y, z),
        minimum(maximum(x, y), z),
        disabled="needs y <= z, which over a finite field depends on the order of the trial",
    ),
)
