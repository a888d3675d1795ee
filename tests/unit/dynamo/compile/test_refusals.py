"""A node that is in no program costs itself: the region around it is cut anew without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mirage_py.dynamo.compile import compiler
from mirage_py.dynamo.regions.regions import cut

Compiled = Callable[..., Any]
Lines = Callable[[str], list[str]]

IDS = torch.arange(18).reshape(2, 9) * 5
TABLE, GAIN, WEIGHT = torch.randn(64, 32), torch.randn(32), torch.randn(32, 48)


def hashed(ids: Tensor, table: Tensor, gain: Tensor, weight: Tensor) -> Tensor:
    return F.silu(F.rms_norm(table[(ids * 31 + 7) % 61], (32,), gain) @ weight)


def pooled(x: Tensor, ids: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    y = F.layer_norm(x, (32,), gain)
    return y, y[torch.arange(2), ids.argmax(-1)]


@pytest.mark.parametrize(
    ("function", "inputs", "left", "kept"),
    [
        (hashed, (IDS, TABLE, GAIN, WEIGHT), "remainder", "index pow mean add rsqrt mul mul mm"),
        (pooled, (torch.randn(2, 9, 32), IDS, GAIN), "argmax", "rsqrt mul mul index"),
    ],
)
def test_computed_positions_are_left_outside_and_their_readers_are_not(
    compiled: Compiled, lines: Lines, function: Any, inputs: Any, left: str, kept: str
):
    torch.testing.assert_close(compiled(function)(*inputs), function(*inputs))
    assert [line for line in lines("left to") if ": region " in line] == []
    assert [line for line in lines("served by") if kept in line] != []
    (line,) = (line for line in lines("left to") if f"aten.{left}." in line)
    assert "would save nothing" not in line


def test_positions_that_follow_from_sizes_are_inside(compiled: Compiled, lines: Lines):
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(F.silu(x), size=(7, 5), mode="bilinear").sigmoid()

    x = torch.randn(2, 4, 3, 3)
    torch.testing.assert_close(compiled(resized)(x), resized(x))
    assert lines("left to") == []
    assert [line for line in lines("served by") if "_unsafe_index _unsafe_index" in line] != []


def test_whole_numbers_that_would_wrap_around_are_left_outside(compiled: Compiled, lines: Lines):
    def buckets(ids: Tensor, table: Tensor) -> Tensor:
        near = torch.minimum(ids * 2654435761, torch.full_like(ids, 63))
        return F.silu(F.embedding(torch.where(ids < 8, ids, near % 64), table))

    torch.testing.assert_close(compiled(buckets)(IDS, TABLE), buckets(IDS, TABLE))
    assert [line for line in lines("left to") if ": region " in line] == []
    assert [line for line in lines("served by") if "embedding" in line] != []


@pytest.mark.parametrize("tables", [2, 6])
def test_all_that_a_region_refuses_is_left_outside_at_once(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch, tables: int
):
    def grid(ids: Tensor, table: Tensor) -> Tensor:
        read = [table[(ids * (31 + n) + 7) % 61] * (n + 1.5) for n in range(tables)]
        return torch.stack(read).sum(0).tanh()

    cuts = []

    def counted(*args: Any, **options: Any) -> Any:
        cuts.append(options["refused"])
        return cut(*args, **options)

    monkeypatch.setattr(compiler, "cut", counted)
    torch.testing.assert_close(compiled(grid)(IDS, TABLE), grid(IDS, TABLE))
    # As written, and without what the regions refused, however much that is.
    assert len(cuts) == 2
