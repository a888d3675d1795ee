"""Running sums and products, and elements by their order, against torch: ties, odd sizes, NaN."""

from __future__ import annotations

import math

import pytest
import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch import trace

SCANS = {
    "last": lambda x: x.cumsum(-1),
    "first": lambda x: x.cumsum(0) * 2,
    "middle": lambda x: (x * x).cumsum(1),
    "backwards": lambda x: x.flip(1).cumsum(1).flip(1),
    "exclusive": lambda x: torch.cat(
        (torch.zeros_like(x[:, :1]), x.narrow(1, 0, x.shape[1] - 1).cumsum(1)), 1
    ),
    "masked": lambda x: (x * (x > 0)).cumsum(1),
    "of_a_softmax": lambda x: x.softmax(-1).cumsum(-1),
    "counts": lambda x: (x > 0).cumsum(-1),
    "logarithms": lambda x: torch.logcumsumexp(x * 60, 1),
    "products": lambda x: x[:, :9].cumprod(1),
}
EXTREMES = {
    "largest": lambda x: x.argmax(-1),
    "smallest": lambda x: x.argmin(0, keepdim=True),
    "of_all": lambda x: x.argmax(),
    "of_all_kept": lambda x: x.argmin(dim=None, keepdim=False),
    "with_value": lambda x: x.max(1),
    "with_value_kept": lambda x: x.min(0, keepdim=True),
    "of_a_softmax": lambda x: (x * 2).softmax(-1).argmax(-1),
    "masked": lambda x: x.masked_fill(x > 0, -math.inf).argmax(-1),
}
ORDERS = {
    "sorted": lambda x: torch.sort(x, dim=-1, stable=True),
    "descending": lambda x: torch.sort(x, dim=0, stable=True, descending=True),
    "positions": lambda x: torch.argsort(x, dim=1, stable=True) * 2,
    "values": lambda x: x.topk(5, dim=1)[0],
    "least": lambda x: x.topk(3, dim=0, largest=False)[0],
    "one": lambda x: x.topk(1, dim=1)[0],
    "weights": lambda x: x.softmax(-1).topk(2, -1)[0],
    "last_kept": lambda x: x.masked_fill(x < x.topk(4, 1)[0][:, -1:], 0.0),
}


def _rows(name: str) -> torch.Tensor:
    torch.manual_seed(4)
    x = torch.randn(5, 37)
    if name == "ties":
        return torch.randint(-2, 3, (5, 37)).float()
    if name == "one_column":
        return x[:, :1].expand(5, 9).clone()[:, :9]
    return x


@pytest.mark.parametrize("rows", ["numbers", "ties", "one_column"])
@pytest.mark.parametrize("name", SCANS)
def test_scans(agrees, name, rows):
    agrees(SCANS[name], _rows(rows))


@pytest.mark.parametrize("extent", [255, 256, 257, 600, 1021, 4000])
def test_long_rows_are_blocks(agrees, extent):
    x = torch.randn(2, extent)
    program = agrees(lambda x: x.cumsum(1), x).program
    work = sum(n.op == "sum" for n in program.nodes)
    assert work == (1 if extent <= 256 or extent in (257, 1021) else 3)


@pytest.mark.parametrize("rows", ["numbers", "ties", "one_column"])
@pytest.mark.parametrize("name", EXTREMES)
def test_positions_of_extremes(agrees, name, rows):
    agrees(EXTREMES[name], _rows(rows))


@pytest.mark.parametrize("rows", ["numbers", "ties", "one_column"])
@pytest.mark.parametrize("name", ORDERS)
def test_orders(agrees, name, rows):
    agrees(ORDERS[name], _rows(rows))


def test_positions_of_the_largest(agrees):
    """Of different elements: of equal ones torch may take any."""
    agrees(lambda x: x.topk(6, 1), _rows("numbers"))


def test_what_is_not_a_number_is_the_largest(agrees):
    x = _rows("numbers")
    x[1, 3] = x[1, 9] = math.nan
    x[2, 2], x[3, 5] = math.inf, -math.inf
    agrees(lambda x: (x.argmax(-1), x.argmin(-1), x.topk(4, 1)[0]), x)
    agrees(lambda x: torch.sort(x, dim=1, stable=True), x)


@pytest.mark.parametrize("name", ["largest", "smallest", "of_all", "with_value"])
def test_positions_in_long_rows_are_sought_in_blocks(agrees, name):
    """Of equal elements the first one, in the first block that has it; NaN is the largest."""
    x = torch.randint(-9, 10, (3, 8192 + 256)).float()
    x[1, 700] = x[1, 8000] = math.nan
    x[2, 5000:] = 40.0
    x = x.T.contiguous() if name == "smallest" else x
    program = agrees(EXTREMES[name], x).program
    assert {33, 256} <= {d.size for d in program.dims}


def test_positions_in_long_rows_that_are_reduced_are_sought_in_one_piece(agrees):
    """A softmax over two dimensions, and positions in their blocks, would fit no kernel."""
    program = agrees(EXTREMES["of_a_softmax"], torch.randn(2, 8448)).program
    assert [d.size for d in program.dims] == [2, 8448]


def test_positions_are_integers():
    program = trace(lambda x: (x.argmax(-1), x.topk(2)[1]), torch.randn(3, 8))
    assert [o.tensor.dtype.name for o in program.outputs] == ["i64", "i64"]


@pytest.mark.parametrize("fn", [lambda x: x.topk(3)[0], lambda x: x.cumprod(-1)])
def test_what_is_long_is_left_to_torch(fn):
    with pytest.raises(UnsupportedError, match="is not supported"):
        trace(fn, torch.randn(2, 1000))
