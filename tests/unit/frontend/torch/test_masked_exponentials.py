"""Exponentials under a mask are 0 where it sets minus infinity, and where they overflow too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from naive import naive_plan

from mirage_py.frontend.torch.trace import trace
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

KEPT = torch.arange(24).reshape(4, 6) % 3 > 0
EVEN = torch.arange(24).reshape(4, 6) % 2 == 0


@pytest.mark.parametrize(
    "kept",
    [
        lambda keep, even: ~keep,
        lambda keep, even: keep & even,
        lambda keep, even: keep & ~even,
        lambda keep, even: ~(keep & even),
        lambda keep, even: keep | even,
    ],
)
def test_what_overflows_is_masked(kept: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]):
    def masked(x: torch.Tensor, keep: torch.Tensor, even: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(~kept(keep, even), -torch.inf).exp()

    x = torch.where(kept(KEPT, EVEN), torch.linspace(-1, 1, 24).reshape(4, 6), 200.0)
    program = trace(masked, x, KEPT, EVEN)
    arrays = {"x": x, "keep": KEPT, "even": EVEN}
    given = {t.name: arrays[t.name].double().numpy() for t in program.inputs}
    (found,) = run_interpreted(naive_plan(program, {}), given).values()
    np.testing.assert_allclose(found, masked(x, KEPT, EVEN).numpy(), rtol=1e-5)
