"""Buckets of sizes."""

from __future__ import annotations

import pytest

from mirage_py.errors import InputError
from mirage_py.shapes.policy import LARGEST_SIZE, ShapePolicy


@pytest.mark.parametrize(
    ("size", "bucket"),
    [
        (1, (1, 1)),
        (2, (2, 2)),
        (3, (3, 4)),
        (5, (5, 8)),
        (512, (257, 512)),
        (513, (513, 1024)),
        (1025, (1025, 1536)),
        (4096, (3585, 4096)),
        (4097, (4097, 5120)),
        (9000, (8193, 10240)),
    ],
)
def test_buckets(size, bucket):
    assert ShapePolicy().bucket(size) == bucket


def test_buckets_cover_every_size_once():
    policy = ShapePolicy()
    for size in range(2, 9000):
        low, high = policy.bucket(size)
        assert low <= size <= high
        assert policy.bucket(low) == policy.bucket(high) == (low, high)
        assert policy.bucket(high + 1)[0] == high + 1


def test_edges_of_a_user():
    policy = ShapePolicy("bucketed", (16, 100))
    assert [policy.bucket(n) for n in (1, 2, 16, 17, 100)] == [
        (1, 1), (2, 16), (2, 16), (17, 100), (17, 100)
    ]  # fmt: skip
    # Behind the last one as without any, and no size is in two buckets.
    assert policy.bucket(101) == (101, 128)
    assert policy.bucket(129) == (129, 256)


def test_other_policies():
    assert ShapePolicy("static").bucket(77) == (77, 77)
    assert ShapePolicy("symbolic").bucket(77) == (2, LARGEST_SIZE)


@pytest.mark.parametrize("options", [("sometimes",), ("bucketed", (4, 2)), ("bucketed", (0, 2))])
def test_what_is_no_policy(options):
    with pytest.raises(InputError):
        ShapePolicy(*options)
