"""Short formulas for functions whose result is rounded to a half type.

What is right to the last place of float32 takes 25 to 35 instructions for expm1 and 45 to 60 for
softplus: of kernels of bfloat16 that stream, more than the memory leaves time for (28 on an H200).
Where a result is rounded to float16 or bfloat16, and on the way only multiplied, selected or
negated, a relative error of 1e-5 is a hundredth of that rounding:

    expm1(x)     x + x^2 / 2 + x^3 / 6 + x^4 / 24     |x| < 1 / 8
                 exp2(x log2(e)) - 1                  else
    softplus(x)  max(x, 0) + t p(t)                   t = exp2(-|x| log2(e))

Neither form of expm1 is off by more than 3e-6 where it is used, and p(t), a polynomial for
log(1 + t) / t on [0, 1], by 1.3e-6; exp2 of a rounded product adds 4e-6 at |x| = 80. The sum for
expm1 begins with x, so that zeros keep their signs; infinities and NaN go through exp2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import e, log2

from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block

_NEAR = 0.125
_EXPM1 = (1.0, 1 / 2, 1 / 6, 1 / 24)
# Of the least largest relative error of that degree.
_LOG1P = (
    0.999998731, -0.499869654, 0.331094465, -0.235038512, 0.149223708, -0.0664016568, 0.0141409768,
)  # fmt: skip
# What multiplies, selects or negates keeps relative errors.
_KEEPS = ("mul", "where", "neg", "abs", "relu", "maximum", "minimum")


def with_half_functions(block: BlockGraph, tensors: Mapping[str, Tensor]) -> BlockGraph:
    """The block graph with such functions by short formulas; positions of nodes change."""
    if not any(n.op in _FORMULAS for n in block.nodes):
        return block
    kept = _kept_as_half(block, tensors)
    found = {n for n, node in enumerate(block.nodes) if node.op in _FORMULAS and kept[n]}

    def rule(new: NewNodes, number: int) -> int:
        node = block.nodes[number]
        if number not in found:
            return new.copy(number)
        return _FORMULAS[node.op](_Values(new, node.dims), new.place[node.args[0]])

    return rebuild_block(block, rule) if found else block


def _kept_as_half(block: BlockGraph, tensors: Mapping[str, Tensor]) -> list[bool]:
    """Of each node whether all that becomes of it is rounded to half, with its relative error."""
    nodes, users = block.nodes, reads_of(block.nodes)
    found = [False] * len(nodes)
    for number in reversed(range(len(nodes))):
        found[number] = bool(users[number]) and all(
            _is_half(nodes[u].attr)
            if nodes[u].op == "cast"
            else tensors[nodes[u].access.tensor].dtype.is_half
            if nodes[u].op == "store"
            else nodes[u].op in _KEEPS
            and found[u]
            and not (nodes[u].op == "where" and nodes[u].args[0] == number)
            for u in users[number]
        )
    return found


def _is_half(attr: object) -> bool:
    return isinstance(attr, DType) and attr.is_half


class _Values:
    """Nodes over the dimensions of one."""

    def __init__(self, new: NewNodes, dims: tuple[str, ...]) -> None:
        self._new, self._dims = new, dims

    def __call__(self, op: str, *args: int | float) -> int:
        """A node; of float operands the constants are made first."""
        places = [a if isinstance(a, int) else self._new.add("const", (), a) for a in args]
        return self._new.add(op, places, None, self._dims)


def _polynomial(v: _Values, x: int, terms: Sequence[float]) -> int:
    """The polynomial x (a + x (b + x (...)))."""
    series: int | float = terms[-1]
    for term in reversed(terms[:-1]):
        series = v("add", term, v("mul", x, series))
    return v("mul", x, series)


def _expm1(v: _Values, x: int) -> int:
    far = v("sub", v("exp2", v("mul", x, log2(e))), 1.0)
    return v("where", v("lt", v("abs", x), _NEAR), _polynomial(v, x, _EXPM1), far)


def _softplus(v: _Values, x: int) -> int:
    small = v("exp2", v("mul", v("abs", x), -log2(e)))
    return v("add", v("maximum", x, 0.0), _polynomial(v, small, _LOG1P))


_FORMULAS: Mapping[str, Callable[[_Values, int], int]] = {"expm1": _expm1, "softplus": _softplus}
