"""Cells of recurrent layers: programs compute what torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import GRUCell, LSTMCell, RNNCell


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4,), ()], ids=["batch", "one"])
def test_cells_with_a_state(agrees: Callable[..., Any], shape: tuple[int, ...], bias: bool) -> None:
    cells = [GRUCell(5, 6, bias), RNNCell(5, 6, bias), RNNCell(5, 6, bias, "relu")]
    x, h = torch.randn(*shape, 5), torch.randn(*shape, 6)
    agrees(lambda x, h: tuple(cell(x, h) for cell in cells), x, h, single=True)


def test_a_cell_with_two_states(agrees: Callable[..., Any]) -> None:
    cell = LSTMCell(5, 6)
    x, h, c = torch.randn(4, 5), torch.randn(4, 6), torch.randn(4, 6)
    agrees(lambda x, h, c: cell(x, (h, c)), x, h, c, single=True)
