"""Partitioning of a matmul among warps, as seen in Triton's output."""

from __future__ import annotations

import pytest

from mirage_py.search.model.kernel_load import joined_warps, plain_warps, warp_tile


@pytest.mark.parametrize(
    ("rows", "columns", "num_warps", "expected"),
    [
        (16, 32, 4, (1, 4)),
        (16, 16, 4, (2, 2)),
        (32, 32, 4, (2, 2)),
        (32, 16, 4, (2, 2)),
        (32, 64, 2, (1, 2)),
        (32, 128, 8, (1, 8)),
        (64, 64, 2, (1, 2)),
        (64, 64, 1, (1, 1)),
    ],
)
def test_shares_of_one_product(
    rows: int, columns: int, num_warps: int, expected: tuple[int, int]
) -> None:
    # Read off the layouts that Triton 3.6 chose for sm_90.
    assert plain_warps(rows, columns, num_warps) == expected


def test_products_of_a_section_share_the_warps_of_the_largest() -> None:
    # X W of 16 x 32 and X A of 16 x 16: both are cut along the columns.
    assert joined_warps([(16, 16), (16, 32)], 4) == [(1, 4), (1, 4)]
    assert joined_warps([(16, 32), (16, 16)], 4) == [(1, 4), (1, 4)]
    assert joined_warps([(64, 32), (64, 16)], 4) == [(4, 1), (4, 1)]
    # Alike: as each by itself.
    assert joined_warps([(32, 32), (32, 32)], 4) == [(2, 2), (2, 2)]
    assert joined_warps([], 4) == []


def test_a_warp_computes_at_least_an_instruction() -> None:
    assert warp_tile(16, 16, (1, 4)) == (16, 8)
    assert warp_tile(64, 128, (4, 1)) == (16, 128)
