"""Whether a µGraph has a number wherever the program has one.

In a field roots respect all products: sqrt(a) sqrt(b) = sqrt(a b), sqrt(a)^2 = sqrt(a^2). Over the
real numbers that holds where neither is negative, and elsewhere one side is not a number. So where
a root, a logarithm or a power is taken of what may be negative, both are evaluated in floats too,
on numbers of both signs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirage_py.errors import ValidationError
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.meaning import FloatMeaning
from mirage_py.ugraph.node import Node
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.verify.difference import Mismatch

_DRAWS = 4
_PARTIAL = ("sqrt", "rsqrt", "log", "pow")
# Never negative, and never where an operand is not.
_POSITIVE = ("square", "exp", "abs", "relu", "sigmoid", "mask", "size")
_PASSED_ON = ("add", "mul", "div", "sum", "max", "matmul", "sqrt", "rsqrt", "maximum", "minimum")
_KEPT = ("cast", "accum_sum", "accum_max", "accum_rescaled")


def undefined(program: Program, ugraph: UGraph, *, seed: int) -> Mismatch | None:
    """Where the µGraph is not a number and the program is one; both at small sizes, with tiles."""
    if not _may_be_undefined(ugraph):
        return None
    for number in range(_DRAWS):
        draw = np.random.default_rng([seed, number])
        inputs = {t.name: draw.normal(size=t.shape) for t in program.inputs}
        expected = evaluate_program(program, inputs, FloatMeaning())
        try:
            found = evaluate_ugraph(ugraph, inputs, FloatMeaning())
        except ValidationError as error:
            return Mismatch("", (), str(error))
        for name, value in expected.items():
            places = np.argwhere(np.isfinite(value) & np.isnan(found[name]))
            if len(places):
                where = ", ".join(map(str, places[0]))
                return Mismatch(name, (), f"{name}[{where}] is not a number in the µGraph only")
    return None


def _may_be_undefined(ugraph: UGraph) -> bool:
    for kernel in ugraph.kernels:
        if isinstance(kernel, LibraryCall):
            if kernel.op in _PARTIAL:
                return True
        elif _takes_root_of_negative(kernel):
            return True
    return False


def _takes_root_of_negative(block: BlockGraph) -> bool:
    """Whether of anything a root is taken that is not seen at once to be positive."""
    known: list[bool] = []
    for node in block.nodes:
        known.append(_is_positive(node, known))
    return any(n.op in _PARTIAL and not known[n.args[0]] for n in block.nodes)


def _is_positive(node: Node, known: Sequence[bool]) -> bool:
    if node.op in _POSITIVE:
        return True
    if node.op == "const":
        return isinstance(node.attr, float) and node.attr >= 0.0
    if node.op in ("mul", "matmul") and node.args[0] == node.args[1]:
        return True
    if node.op in _KEPT:
        return known[node.args[0]]
    return node.op in _PASSED_ON and all(known[a] for a in node.args)
