"""Inductor runs the rest; to it a region is one operator. It compiles C++ here: once is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as F


def test_forward_and_backward_around_regions(
    compiled: Callable[..., Any],
    lines: Callable[[str], list[str]],
    tmp_path: Any,
    monkeypatch: Any,
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.silu(F.rms_norm(x.cos(), (64,)) @ w)

    mine = torch.randn(5, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    theirs = [x.detach().clone().requires_grad_() for x in mine]
    # In this process: to start workers takes longer than to compile.
    with torch._inductor.config.patch(compile_threads=1):
        got, want = compiled(fn, rest="inductor")(*mine), fn(*theirs)
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
        got.sum().backward()
    want.sum().backward()
    for x, y in zip(mine, theirs, strict=True):
        torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-4)
    assert lines("served by") != []
    assert lines("Inductor does not take") == []
    assert any("left to inductor" in line for line in lines("cos"))
