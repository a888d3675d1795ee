"""What a call does before the pipeline is asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mirage_py.frontend import preparation
from mirage_py.frontend.preparation import Preparation
from mirage_py.frontend.searches import CallOptions
from mirage_py.frontend.torch.guards.call_key import CallReader
from mirage_py.frontend.torch.guards.calls import Signature


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


def test_the_usual_budget_is_counted_from_the_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing, which imports half of torch, was on top of it."""
    now = [100.0]
    trace_call: Any = preparation.trace_call

    def traced(*args: Any, **kwargs: Any) -> Any:
        now[0] += 4.0
        return trace_call(*args, **kwargs)

    asked: list[float | None] = []

    def optimizer(_options: CallOptions, begun: float | None = None) -> Any:
        asked.append(begun)
        return lambda _program, _inputs, fallback: fallback

    monkeypatch.setattr(preparation.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(preparation, "trace_call", traced)
    monkeypatch.setattr(preparation, "default_optimizer", optimizer)
    reader = CallReader(Signature.of(double))
    made = Preparation(reader, CallOptions())
    made.ensure_optimizers(sized=False)
    made.exactly(reader.read((torch.ones(4),), {}))
    assert asked[-1] == 100.0
    assert now[0] == 104.0
