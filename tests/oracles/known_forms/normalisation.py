"""Patterns of a matmul of something that is divided by a function of a sum over the same dimension.

RMSNorm before a linear layer is one such program, the weights of a softmax before the values are
another one.
"""

from __future__ import annotations

from collections.abc import Iterator

from oracles.known_forms.flow import Flow


def both_sums_in_one_loop(flow: Flow) -> bool:
    """The product and the sum of the divisor accumulate in one loop; the division comes after."""
    return any(
        flow.is_in_one_loop(product, total)
        for product, total, division in divided_products(flow)
        if flow.values[division].loop is None
        and flow.values[division].kernel == flow.values[product].kernel
        and not flow.feeds(total, product)
    )


def sum_loop_then_product_loop(flow: Flow) -> bool:
    """The sum has a loop of its own in front of the product's; the division comes last."""
    for product, total, division in divided_products(flow):
        one, other, last = (flow.values[n] for n in (total, product, division))
        alike = one.kernel == other.kernel == last.kernel
        if alike and None not in (one.loop, other.loop) and _number(one.loop) < _number(other.loop):
            return True
    return False


def normalised_then_multiplied(flow: Flow) -> bool:
    """An operand of the product is divided by a function of a sum over what is contracted."""
    return any(
        flow.values[division].kernel == flow.values[product].kernel
        for product, division in products_of_quotients(flow)
    )


def normalised_by_an_earlier_kernel(flow: Flow) -> bool:
    """One kernel normalises and stores, a later one, or a library, multiplies."""
    return any(
        flow.values[division].kernel < flow.values[product].kernel
        for product, division in products_of_quotients(flow)
    )


def folded_behind_the_product(flow: Flow) -> bool:
    """What divides the product is a function of a sum over the dimension that it contracts."""
    return next(divided_products(flow), None) is not None


def one_kernel_ntrans(flow: Flow) -> bool:
    """Two normalisations without a product, the second of what the first one gives."""
    if flow.kernels != 1 or any(flow.all_of("matmul")):
        return False
    divisions = list(flow.all_of("div"))
    sums = {d: flow.sources(flow.values[d].args[1], "sum") for d in divisions}
    return any(
        sums[first] and any(flow.feeds(first, total) for total in sums[second])
        for second in divisions
        for first in divisions
    )


def divided_products(flow: Flow) -> Iterator[tuple[int, int, int]]:
    """Every (product, sum, division): the product, or what is elementwise in it, is divided by a
    function of the sum, which goes over what the product contracts.
    """
    for division in flow.all_of("div"):
        numerator, divisor = flow.values[division].args
        totals = [n for n in (divisor, *flow.sources(divisor, "sum")) if flow.values[n].op == "sum"]
        for product in flow.origins(numerator, "matmul"):
            for total in totals:
                if _share_a_dimension(flow, product, total):
                    yield product, total, division


def products_of_quotients(flow: Flow) -> Iterator[tuple[int, int]]:
    """Every (product, division) with a division of an operand that is normalised over what the
    product contracts.
    """
    for division in flow.all_of("div"):
        totals = flow.sources(flow.values[division].args[1], "sum")
        for product in flow.all_of("matmul"):
            if not any(_share_a_dimension(flow, product, total) for total in totals):
                continue
            if any(flow.is_elementwise_in(division, a) for a in flow.values[product].args):
                yield product, division


def _share_a_dimension(flow: Flow, product: int, total: int) -> bool:
    return any(d in flow.values[product].reduced for d in flow.values[total].reduced)


def _number(loop: int | None) -> int:
    assert loop is not None
    return loop
