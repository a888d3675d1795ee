"""Baselines are called once before anything is timed, whatever they do."""

from __future__ import annotations

import time

import torch
from plans import scale_program

from mirage_py.runtime.warm_up import WarmUp


def test_each_is_called_once_without_gradients():
    program = scale_program(4, 8)
    calls = []

    def works(*inputs: torch.Tensor) -> None:
        calls.append(([x.shape for x in inputs], torch.is_grad_enabled()))
        time.sleep(0.05)

    def fails(*inputs: torch.Tensor) -> None:
        raise ValueError("not today")

    warm_up = WarmUp(program, {"fails": fails, "works": works}, torch.device("cpu"))
    assert warm_up.wait() >= 0.05
    assert calls == [([t.shape for t in program.inputs], False)]
    assert list(warm_up.seconds) == ["fails", "works"]
