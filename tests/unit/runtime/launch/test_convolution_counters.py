"""Counters of fused convolutions: no launch holds what it made, and captures have their own."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mirage_py.runtime.launch.convolutions import block_counters as launch  # noqa: E402


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Counters in the memory of the host; whether a graph is captured."""
    state = {"is": False}
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda count, dtype, **_kwargs: zeros(count, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _index: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state["is"])
    monkeypatch.setattr(launch, "_COUNTERS_OF", {})
    return state


def _places(*found: Any) -> list[int]:
    return [x.data_ptr() for x in found]


def test_a_launch_makes_zeros_of_its_own_where_nobody_made_counters(
    capturing: dict[str, bool],
) -> None:
    """In a pool of CUDA graphs memory that is held after a launch is an error."""
    for capturing["is"] in (False, True):
        found = launch.block_counters(0, 5, 7)
        assert found.shape == (5,)
        assert launch._COUNTERS_OF == {}


def test_launches_of_a_stream_share_counters_and_captures_do_not(
    capturing: dict[str, bool],
) -> None:
    launch.make_counters(0)
    made = launch._COUNTERS_OF[0]
    launch.make_counters(0)
    assert launch._COUNTERS_OF[0] is made
    one, again, other = (launch.block_counters(0, 5, stream) for stream in (7, 7, 8))
    assert one.data_ptr() == again.data_ptr()
    capturing["is"] = True
    captured = [launch.block_counters(0, 5, 7) for _ in range(2)]
    assert len({*_places(one, other, *captured)}) == 4
