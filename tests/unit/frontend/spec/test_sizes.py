from __future__ import annotations

import pytest

from mirage_py.errors import InputError
from mirage_py.frontend.spec import parse

OPEN = """
B = ?, D = 2 * B, H = (D + 4) // 3 % 7
X[B, D - 1, H, 4] : f32
Y[b, d, h, k] = X[b, d, h, k]^2
"""


def test_sizes_are_arithmetic_of_earlier_ones():
    assert parse(OPEN, sizes={"B": 3}).inputs[0].shape == (3, 5, 3, 4)


def test_the_caller_binds_and_overrides():
    assert parse(OPEN, sizes={"B": 5, "H": 2}).inputs[0].shape == (5, 9, 2, 4)


def test_an_open_size_must_be_bound(error):
    assert "sizes={'B': 16}" in error(OPEN).repair


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3", 2**50])
def test_only_sizes_are_bound(value: object):
    with pytest.raises(InputError, match="size 'B' cannot be"):
        parse(OPEN, sizes={"B": value})


def test_unknown_sizes_are_refused():
    with pytest.raises(InputError, match="no size 'BB'") as caught:
        parse(OPEN, sizes={"BB": 3})
    assert "'B'" in caught.value.repair


@pytest.mark.parametrize(
    ("definition", "what"),
    [
        ("N = M", "unknown size 'M'"),
        ("N = 2.0", "whole number"),
        ("N = sqrt(4)", "whole number"),
        ("N = 7 / 2", "7 / 2 is not a whole number"),
        ("N = 7 // 0", "division by zero"),
        ("N = 7 % 0", "division by zero"),
        ("N = 3 - 4", "size 'N' is -1"),
        ("N = 1000000 * 1000000 * 1000000", "this size is"),
        ("N = 8, N = 9", "'N' is defined twice"),
        ("N = X[n]", "whole number"),
    ],
)
def test_bad_sizes(definition: str, what: str, error):
    assert what in error(f"{definition}\nX[4] : f32\nY[n] = X[n]^2").what


def test_a_size_is_a_number_in_values():
    program = parse("N = 8\nX[N] : f32\nY[n] = X[n] * N")
    assert [n.attr for n in program.nodes if n.op == "const"] == [8.0]


def test_a_sum_over_a_size_is_a_mean():
    by_hand = parse("N = 8, M = 8\nX[M, N] : f32\nY[m] = sum[n](X[m, n]) / N")
    assert by_hand.digest == parse("N = 8, M = 8\nX[M, N] : f32\nY[m] = mean[n](X[m, n])").digest


def test_a_size_of_two_indices_stays_a_number():
    program = parse("N = 8\nX[N, N] : f32\nY[m] = sum[n](X[m, n]) / N")
    assert not any(n.op == "size" for n in program.nodes)
