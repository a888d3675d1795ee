"""Patterns of several matmuls: fused horizontally, chained, and slices of one tensor in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from oracles.known_forms.flow import Flow

# A relu may be written as a maximum.
_ACTIVATIONS = ("relu", "maximum", "silu", "gelu", "sigmoid", "tanh")


def both_products_in_one_loop(flow: Flow) -> bool:
    """Two products with a common operand accumulate in one loop, and are multiplied after it."""
    for gate in flow.all_of("mul"):
        if flow.values[gate].loop is not None:
            continue
        for one, other in _pairs(flow, gate):
            if flow.is_in_one_loop(one, other) and _share_an_operand(flow, one, other):
                return True
    return False


def one_kernel_lora(flow: Flow) -> bool:
    """x @ W + (x @ A) @ B in one kernel, which reads x once."""
    return flow.kernels == 1 and next(_low_rank_sums(flow), None) is not None


def concatenated_lora(flow: Flow) -> bool:
    """[x | x @ A] @ [W; B] in one kernel: one loop adds both products up in one accumulator."""
    return flow.kernels == 1 and any(
        flow.is_in_one_loop(total, plain, second)
        and any(flow.values[u].op == "accum_sum" for u in flow.users(total))
        for total, plain, second in _low_rank_sums(flow)
    )


def merged_weights(flow: Flow) -> bool:
    """A product of parameters is added to other parameters before the data is multiplied."""
    for total in flow.all_of("add"):
        for weights, plain in permutations(flow.values[total].args):
            is_plain = flow.values[plain].op == "load" and not flow.values[plain].args
            products = flow.origins(weights, "matmul")
            readers = [p for p in flow.all_of("matmul") if flow.is_elementwise_in(total, p)]
            readers += [p for p in flow.all_of("matmul") if total in flow.values[p].args]
            if is_plain and products and readers:
                return True
    return False


def activation_in_the_products_kernel(flow: Flow) -> bool:
    """An activation is applied to a product in the kernel that makes it."""
    return any(
        flow.values[product].kernel == flow.values[activation].kernel
        for activation in flow.all_of(*_ACTIVATIONS)
        for product in flow.origins(activation, "matmul")
    )


def gated_product_then_projection(flow: Flow) -> bool:
    """One kernel multiplies two products with each other, a later one contracts the result."""
    for gate in flow.all_of("mul"):
        for one, other in _pairs(flow, gate):
            kernel = flow.values[gate].kernel
            if flow.values[one].kernel != kernel or flow.values[other].kernel != kernel:
                continue
            if any(flow.values[p].kernel > kernel for p in _products_of(flow, gate)):
                return True
    return False


def _pairs(flow: Flow, node: int) -> Iterator[tuple[int, int]]:
    """Products, none made of the other, that the two operands of a node are functions of."""
    left, right = flow.values[node].args
    for one in flow.origins(left, "matmul"):
        for other in flow.origins(right, "matmul"):
            if one != other and not flow.feeds(one, other) and not flow.feeds(other, one):
                yield one, other


def _products_of(flow: Flow, node: int) -> list[int]:
    """The products that have the node, or an elementwise function of it, for an operand."""
    return [
        p
        for p in flow.all_of("matmul")
        if any(flow.is_elementwise_in(node, a) for a in flow.values[p].args)
    ]


def _share_an_operand(flow: Flow, one: int, other: int) -> bool:
    return any(a in flow.values[other].args for a in flow.values[one].args)


def _low_rank_sums(flow: Flow) -> Iterator[tuple[int, int, int]]:
    """Every (sum, x @ W, (x @ A) @ B) with an x that is the same value in both products."""
    for total in flow.all_of("add"):
        for left, right in permutations(flow.values[total].args):
            for plain in flow.origins(left, "matmul"):
                for second in flow.origins(right, "matmul"):
                    inner = [p for a in flow.values[second].args for p in flow.origins(a, "matmul")]
                    if any(p != plain and _share_an_operand(flow, p, plain) for p in inner):
                        yield total, plain, second
