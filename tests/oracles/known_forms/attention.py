"""Patterns of attention: a matmul, an exponential of it, and a matmul and a sum of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oracles.known_forms.flow import Flow


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Positions of the scores, their exponential, the product with the values and the sum of the
    weights; ``keys`` is the dimension that both go over.
    """

    scores: int
    weights: int
    product: int
    total: int
    keys: str

    @property
    def all(self) -> tuple[int, int, int, int]:
        return self.scores, self.weights, self.product, self.total


def fused_attention(flow: Flow) -> bool:
    """One loop over the keys makes scores, weights, their sum and their product; no score is
    stored, and what the loop leaves is divided once.
    """
    return next(_fused(flow), None) is not None


def qk_norm_folded_in(flow: Flow) -> bool:
    """The fused loop of attention in a kernel that normalises queries and keys as well."""
    return any(_normalises_both(flow, found) for found in _fused(flow))


def split_attention(flow: Flow) -> bool:
    """Blocks share out the keys: each leaves its sum and its product, a later kernel adds them up
    and divides.
    """
    return next(_split(flow), None) is not None


def clustered_attention(flow: Flow) -> bool:
    """The blocks of a cluster share out the keys: each has its sum and its product, and the cluster
    adds them up and divides.
    """
    return any(
        flow.in_cluster(flow.values[found.product].kernel)
        and all(_is_split(flow, n) for n in (found.product, found.total))
        and _is_divided(flow, found, flow.values[found.product].kernel)
        for found in _weighted(flow)
    )


def attention_then_projection(flow: Flow) -> bool:
    """The fused loop of attention, and a later kernel that contracts what it gives."""
    return any(
        flow.values[p].kernel > flow.values[found.product].kernel and flow.feeds(found.product, p)
        for found in _fused(flow)
        for p in flow.all_of("matmul")
    )


def streamed_log_sum_exp(flow: Flow) -> bool:
    """One loop makes scores and the sum of their exponentials; only its logarithm leaves it."""
    for log in flow.all_of("log"):
        for total in flow.origins(log, "sum"):
            if _sums_of_one_loop(flow, log, total):
                return True
    return False


def split_log_sum_exp(flow: Flow) -> bool:
    """Blocks share out the dimension of the sum; a later kernel adds the parts and takes the
    logarithm.
    """
    return any(
        _is_split(flow, total)
        and flow.values[total].kernel < flow.values[log].kernel
        and bool(flow.sources(total, "exp"))
        for log in flow.all_of("log")
        for total in flow.origins(log, "sum")
    )


def _sums_of_one_loop(flow: Flow, log: int, total: int) -> bool:
    (dim,) = flow.values[total].reduced or ("",)
    kernel = flow.values[total].kernel
    weights = [w for w in flow.sources(total, "exp") if flow.is_in_one_loop(w, total)]
    scores = [s for w in weights for s in flow.sources(w, "matmul") if flow.is_in_one_loop(s, w)]
    return (
        bool(scores)
        and flow.values[log].kernel == kernel
        and flow.values[log].loop is None
        and flow.loops_over(kernel, dim) == 1
        and not flow.stores_over(dim)
    )


def _fused(flow: Flow) -> Iterator[_Weighted]:
    for found in _weighted(flow):
        kernel = flow.values[found.product].kernel
        scores = flow.values[found.scores]
        if (
            flow.is_in_one_loop(*found.all)
            and flow.loops_over(kernel, found.keys) == 1
            and not flow.stores_over(*scores.dims)
            and _is_divided(flow, found, kernel)
        ):
            yield found


def _split(flow: Flow) -> Iterator[_Weighted]:
    for found in _weighted(flow):
        kernels = {flow.values[n].kernel for n in found.all}
        if len(kernels) == 1 and all(_is_split(flow, n) for n in (found.product, found.total)):
            (kernel,) = kernels
            later = range(kernel + 1, flow.kernels)
            if any(_is_divided(flow, found, k) for k in later):
                yield found


def _is_split(flow: Flow, number: int) -> bool:
    return any(part in flow.values[number].dims for part in flow.parts)


def _weighted(flow: Flow) -> Iterator[_Weighted]:
    for weights in flow.all_of("exp"):
        products = [p for p in flow.all_of("matmul") if flow.feeds(weights, p)]
        totals = [t for t in flow.all_of("sum") if _is_a_sum_of(flow, t, weights)]
        for scores in flow.origins(weights, "matmul"):
            for product in products:
                for total in totals:
                    for keys in flow.values[product].reduced:
                        if keys in flow.values[total].reduced and keys in flow.values[scores].dims:
                            yield _Weighted(scores, weights, product, total, keys)


def _is_divided(flow: Flow, found: _Weighted, kernel: int) -> bool:
    """Whether the kernel divides the product by the sum, outside of loops."""
    for division, numerator, divisor in _quotients(flow):
        value = flow.values[division]
        if (
            value.kernel == kernel
            and value.loop is None
            and found.product in flow.origins(numerator, "matmul")
            and (flow.feeds(found.total, divisor) or divisor == found.total)
        ):
            return True
    return False


def _quotients(flow: Flow) -> Iterator[tuple[int, int, int]]:
    """Each division with its operands; that by a sum that may be 0 is a product."""
    for division in flow.all_of("div"):
        numerator, divisor = flow.values[division].args
        yield division, numerator, divisor
    for product in flow.all_of("mul"):
        one, other = flow.values[product].args
        for numerator, inverse in ((one, other), (other, one)):
            if flow.values[inverse].op == "reciprocal_no_nan":
                yield product, numerator, flow.values[inverse].args[0]


def _normalises_both(flow: Flow, found: _Weighted) -> bool:
    """Whether both operands of the scores are divided, before or after, by functions of sums over
    what the scores contract.
    """
    scores = flow.values[found.scores]
    divisions = [
        d for d in flow.sources(found.weights, "div") if flow.values[d].kernel == scores.kernel
    ]
    totals = [
        t
        for d in divisions
        for t in flow.sources(flow.values[d].args[1], "sum")
        if any(r in scores.reduced for r in flow.values[t].reduced)
    ]
    of_sums = [flow.tensors(t) for t in totals]
    return all(any(mine and mine <= flow.tensors(a) for mine in of_sums) for a in scores.args)


def _is_a_sum_of(flow: Flow, total: int, weights: int) -> bool:
    return any(flow.is_elementwise_in(weights, a) for a in flow.values[total].args)
