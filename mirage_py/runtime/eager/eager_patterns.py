"""Compositions of operators that PyTorch has one function for: softmax, rms_norm, layer_norm.

A program spells them out. Who writes PyTorch by hand calls the function, which is faster and, for
softmax, safe; a baseline without them would flatter us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isclose, prod

from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program

_TRUTH = ("mask", "lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True, slots=True)
class Softmax:
    """softmax of ``scores`` over ``dims``, or its logarithm; minus infinity where one of ``masks``
    is 0.

    ``is_safe``: a row that is minus infinity everywhere gives 0, not NaN.
    """

    scores: int
    masks: tuple[int, ...]
    dims: tuple[str, ...]
    is_safe: bool = False
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax times ``values``: the weighted sum divided by the sum of its weights."""

    weights: Softmax
    weights_node: int
    matmul: int


@dataclass(frozen=True, slots=True)
class Norm:
    """rms_norm or layer_norm of ``x`` over ``dims``."""

    function: str
    x: int
    dims: tuple[str, ...]
    eps: float


Pattern = Softmax | Attention | Norm


class Patterns:
    """Recognises what a node of a program computes."""

    def __init__(self, program: Program) -> None:
        self.nodes: Sequence[Node] = program.nodes
        self.sizes = program.sizes

    def match(self, number: int) -> Pattern | None:
        """The one function that computes the node, if there is one."""
        node = self.nodes[number]
        if node.op == "div":
            numerator, denominator = node.args
            return (
                self._softmax(numerator, denominator)
                or self._attention(numerator, denominator)
                or self._norm(numerator, self._argument(denominator, "sqrt"))
            )
        if node.op == "mul":
            for x, scale in (node.args, node.args[::-1]):
                total = self._argument(scale, "reciprocal_no_nan")
                safe = None if total is None else self._safe_softmax(x, total)
                if safe is not None:
                    return safe
                found = self._norm(x, self._argument(scale, "rsqrt"))
                if found is not None:
                    return found
        return self._log_softmax(*node.args) if node.op == "sub" else None

    # -- softmax ---------------------------------------------------------------------------------

    def _safe_softmax(self, numerator: int, total: int) -> Softmax | Attention | None:
        found = self._softmax(numerator, total)
        if found is not None:
            return replace(found, is_safe=True)
        attention = self._attention(numerator, total)
        if attention is None:
            return None
        return replace(attention, weights=replace(attention.weights, is_safe=True))

    def _softmax(self, numerator: int, denominator: int) -> Softmax | None:
        total = self.nodes[denominator]
        if total.op != "sum" or total.args != (numerator,):
            return None
        return self._weights(numerator, total.reduced)

    def _log_softmax(self, x: int, total: int) -> Softmax | None:
        """x - log(sum(exp(x))), or with the maximum of x subtracted below and added again: of large
        numbers that sum is the maximum alone.
        """
        log, peak = total, None
        if self.nodes[total].op == "add":
            log, peak = self.nodes[total].args
            if self.nodes[log].op != "log":
                log, peak = peak, log
        inside = self._argument(log, "log")
        if inside is None or self.nodes[inside].op != "sum":
            return None
        dims, (terms,) = self.nodes[inside].reduced, self.nodes[inside].args
        found = self._weights(terms, dims)
        exponent = self._argument(terms, "exp")
        if found is None or exponent is None or found.scores != x:
            return None
        subtracted = None if exponent == x else self.nodes[exponent].args[1]
        return replace(found, is_log=True) if subtracted == peak else None

    def _attention(self, numerator: int, denominator: int) -> Attention | None:
        """(exp(z) @ v) / sum(exp(z)): the division moved after the matmul."""
        total, product = self.nodes[denominator], self.nodes[numerator]
        if total.op != "sum" or product.op != "matmul" or total.reduced != product.reduced:
            return None
        (weights,) = total.args
        if product.args.count(weights) != 1:
            return None
        found = self._weights(weights, total.reduced)
        return None if found is None else Attention(found, weights, numerator)

    def _weights(self, number: int, dims: tuple[str, ...]) -> Softmax | None:
        """exp(z), exp(z) times masks, or either with the maximum of z subtracted."""
        node = self.nodes[number]
        if node.op == "mul":
            for x, mask in (node.args, node.args[::-1]):
                inner = self._weights(x, dims) if self.nodes[mask].op in _TRUTH else None
                if inner is not None:
                    return Softmax(inner.scores, (*inner.masks, mask), dims)
            return None
        if node.op != "exp":
            return None
        (scores,) = node.args
        shifted = self.nodes[scores]
        if shifted.op == "sub":
            x, peak = shifted.args
            top = self.nodes[peak]
            if top.op == "max" and top.args == (x,) and top.reduced == dims:
                scores = x
        return Softmax(scores, (), dims) if set(dims) <= set(self.nodes[scores].dims) else None

    # -- norms -----------------------------------------------------------------------------------

    def _norm(self, x: int, variance: int | None) -> Norm | None:
        """``variance`` is what stands under the root."""
        if variance is None:
            return None
        node = self.nodes[variance]
        eps = 0.0
        if node.op == "add":
            value = self._constant(node.args[1])
            mean = node.args[0]
            if value is None:
                value, mean = self._constant(node.args[0]), node.args[1]
            if value is None:
                return None
            eps, variance = value, mean
        found = self._mean(variance)
        if found is None or not self._is_square(found[0], x):
            return None
        dims = found[1]
        centred = self.nodes[x]
        if centred.op == "sub":
            mean_of = self._mean(centred.args[1])
            if mean_of is not None and mean_of == (centred.args[0], dims):
                return Norm("layer_norm", centred.args[0], dims, eps)
        return Norm("rms_norm", x, dims, eps)

    def _is_square(self, number: int, of: int) -> bool:
        node = self.nodes[number]
        return (node.op, node.args) in (("square", (of,)), ("mul", (of, of)))

    def _mean(self, number: int) -> tuple[int, tuple[str, ...]] | None:
        """What is averaged, and over which dimensions."""
        divisor = 1.0
        node = self.nodes[number]
        while node.op == "div" or (node.op == "mul" and self._constant(node.args[1]) is not None):
            value = self._constant(node.args[1])
            if value is None or value == 0.0:
                return None
            divisor *= value if node.op == "div" else 1.0 / value
            node = self.nodes[node.args[0]]
        if node.op != "sum":
            return None
        points = prod(self.sizes[d] for d in node.reduced)
        return (node.args[0], node.reduced) if isclose(divisor, points) else None

    def _argument(self, number: int, op: str) -> int | None:
        node = self.nodes[number]
        return node.args[0] if node.op == op else None

    def _constant(self, number: int) -> float | None:
        node = self.nodes[number]
        if node.op == "const" and isinstance(node.attr, float):
            return node.attr
        return float(self.sizes[str(node.attr)]) if node.op == "size" else None
