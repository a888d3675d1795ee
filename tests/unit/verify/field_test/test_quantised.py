"""Quantised weights and activations over a finite field: codes are numbers of it, a rounding site
is an unknown function of what is rounded.
"""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.verify.field_test.programs import compare_programs

SIZES = "B = 4, K = 32, G = 4, N = 6, J = 16\n"
WHOLE = f"{SIZES}X[B, K], S[N, G], Z[N, G] : bf16, W[N, K] : i8\n"
PACKED = f"{SIZES}X[B, 2 * J], S[N], Z[N] : bf16, W[N, J] : u8\n"
FLOAT8 = f"{SIZES}X[B, K], R[B, K] : bf16, S[N] : f32, W[N, K] : f8e4m3\n"
LOW, HIGH = "bit_and(W[n, j], 15)", "shift_right(W[n, j], 4)"


def sums(first: str, second: str) -> str:
    """Of even and odd columns."""
    return f"sum[j](X[b, 2 * j] * {first} * S[n]) + sum[j](X[b, 2 * j + 1] * {second} * S[n])"


ROUNDED = "e4m3(X[b, k] + R[b, k]) * W[n, k]"
# Declarations, what is meant, another form of it, and wrong ones.
CASES = {
    "groups": (
        WHOLE,
        "sum[k](X[b, k] * (W[n, k] - Z[n, k // 8]) * S[n, k // 8])",
        "sum[k](X[b, k] * W[n, k] * S[n, k // 8]) - sum[k](X[b, k] * Z[n, k // 8] * S[n, k // 8])",
        {
            "the scale of the neighbour": (
                "sum[k](X[b, k] * (W[n, k] - Z[n, k // 8]) * S[n, (k // 8 + 1) % 4])"
            ),
            "the zero point of the neighbour": (
                "sum[k](X[b, k] * (W[n, k] - Z[n, (k // 8 + 1) % 4]) * S[n, k // 8])"
            ),
            "an unscaled zero point": (
                "sum[k](X[b, k] * W[n, k] * S[n, k // 8]) - sum[k](X[b, k] * Z[n, k // 8])"
            ),
            "another group size": "sum[k](X[b, k] * (W[n, k] - Z[n, k // 8]) * S[n, k // 16])",
        },
    ),
    "nibbles": (
        PACKED,
        sums(f"({LOW} - Z[n])", f"({HIGH} - Z[n])"),
        f"S[n] * (sum[j](X[b, 2 * j] * {LOW} + X[b, 2 * j + 1] * {HIGH}) - Z[n] * sum[k](X[b, k]))",
        {
            "swapped": sums(f"({HIGH} - Z[n])", f"({LOW} - Z[n])"),
            "the low one twice": sums(f"({LOW} - Z[n])", f"({LOW} - Z[n])"),
            "one without its zero point": sums(f"({LOW} - Z[n])", HIGH),
            "a mask too narrow": sums("(bit_and(W[n, j], 7) - Z[n])", f"({HIGH} - Z[n])"),
            "a byte as a code": sums("(W[n, j] - Z[n])", f"({HIGH} - Z[n])"),
        },
    ),
    "rounding sites": (
        FLOAT8,
        f"sum[k]({ROUNDED}) * S[n]",
        f"sum[k](S[n] * {ROUNDED})",
        {
            "over an addition": "sum[k]((e4m3(X[b, k]) + e4m3(R[b, k])) * W[n, k]) * S[n]",
            "over a scale": "sum[k](e4m3((X[b, k] + R[b, k]) * S[n]) * W[n, k])",
            "over the sum": "e4m3(sum[k]((X[b, k] + R[b, k]) * W[n, k])) * S[n]",
            "left out": "sum[k]((X[b, k] + R[b, k]) * W[n, k]) * S[n]",
            "of another kind": "sum[k](round(X[b, k] + R[b, k]) * W[n, k]) * S[n]",
            "twice": "sum[k](e4m3(e4m3(X[b, k] + R[b, k])) * W[n, k]) * S[n]",
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_other_forms_are_equal_and_wrong_ones_are_not(name: str):
    declared, meant, other, wrong = CASES[name]
    index = "index j < J\n" if declared is PACKED else ""
    programs = {
        text: parse(f"{declared}{index}Y[b, n] : bf16 = {text}")
        for text in (meant, other, *wrong.values())
    }
    assert compare_programs(programs[meant], programs[other]).equal
    for why, text in wrong.items():
        assert not compare_programs(programs[meant], programs[text]).equal, why
