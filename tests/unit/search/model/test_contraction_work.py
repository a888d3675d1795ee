"""Multiplications that a program cannot do without."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.search.model.contraction_work import contraction_flops, share_of
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import Predicate

T, S = ix.dim("t"), ix.dim("s")


def attention(condition: str, t: int = 8, s: int = 8) -> float:
    return contraction_flops(
        parse(
            f"T = {t}, S = {s}, D = 16\nQ[T, D], K[S, D], V[S, D] : f16\n"
            f"let p[t, s] = exp(sum[d](Q[t, d] * K[s, d])) * ({condition})\n"
            "O[t, e] = sum[s](p[t, s] * V[s, e])\n"
        )
    )


def test_products_under_a_mask_count_where_it_holds():
    whole = 2 * 2 * 8 * 8 * 16
    assert attention("s >= 0") == whole
    assert attention("s <= t") == whole * 36 / 64
    assert attention("(s <= t) & (t - s < 2)") == whole * 15 / 64


def test_a_plain_product_counts_whole():
    program = parse(
        "B = 4, D = 8, N = 3\nX[B, D], W[D, N] : f16\nY[b, n] = sum[d](X[b, d] * W[d, n])\n"
    )
    assert contraction_flops(program) == 2 * 4 * 8 * 3


@pytest.mark.parametrize("extents", [(5, 7), (3000, 3000)])
def test_large_masks_are_counted_in_pieces(extents):
    # Dimensions come in the order in which the condition names them: s, then t.
    held = sum(min(extents[0], t + 1) for t in range(extents[1]))
    assert share_of(ix.compare("le", S, T), extents) == held / (extents[0] * extents[1])


def test_masks_of_one_dimension_and_of_none():
    assert share_of(ix.compare("lt", S, 3), (12,)) == 0.25
    assert share_of(Predicate("not", args=(ix.compare("lt", S, 3),)), (12,)) == 0.75
    assert share_of(ix.compare("lt", 1, 0), ()) == 0.0
