"""Casts that lose what a program computes with, and casts on the way of data."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.lossy_casts import observed_casts

HEAD = "B = 4, D = 8, N = 6\nX[B, D], Z[B, D], W[D, N], V[D, N] : f32\n"
H = "let h[b, d] = cast(X[b, d], bf16)\n"

SHOWN = {
    "a difference": H + "Y[b, d] = X[b, d] - h[b, d]",
    "the other way round": H + "Y[b, d] = h[b, d] - X[b, d]",
    "scaled": H + "Y[b, d] = 2 * X[b, d] + 0.5 * (-4 * h[b, d])",
    "between other terms": H + "Y[b, d] = (X[b, d] + Z[b, d]) - (h[b, d] + 1)",
    "of products": H + "Y[b, n] = sum[d](X[b, d] * W[d, n]) - sum[d](h[b, d] * W[d, n])",
    "of functions": H + "Y[b, d] = silu(X[b, d]) - silu(h[b, d])",
    "of a computed value": "let h[b] = sum[d](X[b, d])\nY[b] = cast(h[b], bf16) - h[b]",
    "a quotient": H + "Y[b, d] = X[b, d] / h[b, d]",
    "of exponentials": H + "Y[b, d] = exp(X[b, d]) / exp(h[b, d])",
    "a comparison": H + "Y[b, d] = where(X[b, d] > h[b, d], Z[b, d], 0)",
    "an equality": H + "Y[b, d] = where(X[b, d] == h[b, d], Z[b, d], 0)",
    "a comparison with the maximum": "Y[b, d] = cast(X[b, d], bf16) >= max[d](X[b, d])",
    "two types": H + "Y[b, d] = h[b, d] - cast(X[b, d], f16)",
}
for _jump in ("round", "floor", "ceil", "trunc"):
    SHOWN[f"what it does to a {_jump}"] = f"{H}Y[b, d] = {_jump}(3 * h[b, d])"
SHOWN["a remainder"] = f"{H}Y[b, d] = fmod(h[b, d], 0.5)"

NOT_SHOWN = {
    "alone": H + "Y[b, n] = sum[d](h[b, d] * W[d, n])",
    "a sum": H + "Y[b, d] = X[b, d] + h[b, d]",
    "a residual": H + "Y[b, d] = X[b, d] + sum[n](cast(sum[e](h[b, e] * W[e, n]), bf16) * V[d, n])",
    "a norm": "let r[b] = sqrt(mean[d](X[b, d]^2) + 1e-6)\n"
    "Y[b, n] = sum[d](cast(X[b, d] / r[b], bf16) * W[d, n])",
    "a softmax": H + "Y[b, d] = cast(exp(h[b, d]) / sum[d](exp(h[b, d])), bf16) * X[b, d]",
    "a mean that is taken away": H + "Y[b, d] = h[b, d] - mean[d](X[b, d])",
    "other values": H + "Y[b, d] = h[b, d] - Z[b, d]",
    "the same cast on both sides": H + "Y[b, d] = (h[b, d] + Z[b, d]) - h[b, d]",
    "a cast to more": "Y[b, d] = cast(cast(X[b, d], f32) - X[b, d], f32)",
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_loss_shows(name: str) -> None:
    found = observed_casts(parse(HEAD + used(SHOWN[name])))
    assert found == (("bf16", "f16") if name == "two types" else ("bf16",))


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_the_cast_is_on_the_way(name: str) -> None:
    assert observed_casts(parse(HEAD + used(NOT_SHOWN[name]))) == ()


def used(text: str) -> str:
    """With outputs that read what the text does not: every input has to be read."""
    extra = "P[b, d] = 3 * X[b, d] * Z[b, d]\nQ[d, n] = W[d, n] * V[d, n]"
    return f"{text}\n{extra}"
