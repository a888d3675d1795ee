"""Programs with integer inputs and positions that are data, each plan against PyTorch on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import mirage_py

pytestmark = pytest.mark.gpu


def cross_entropy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.float(), y, reduction="none")


def embedded_norm(ids: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(F.embedding(ids, w), (w.shape[1],), g)


def int8_linear(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype)) * s


def padded_softmax(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return (x + (1 - m[:, None].to(x.dtype)) * -1e4).softmax(-1)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").half()


def integers(high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(0, high, shape, device="cuda", dtype=dtype)


def labels() -> torch.Tensor:
    found = integers(32000, 512)
    found[::3], found[1], found[2] = -100, 0, 31999
    return found


CASES: list[tuple[Callable[..., torch.Tensor], Callable[[], list[torch.Tensor]]]] = [
    (cross_entropy, lambda: [half(512, 32000), labels()]),
    (embedded_norm, lambda: [integers(30522, 8, 128), half(30522, 768), half(768)]),
    (int8_linear, lambda: [half(16, 4096), integers(127, 1024, 4096, dtype=torch.int8),
                           half(1024).abs()]),
    (padded_softmax, lambda: [half(8, 12, 512), integers(2, 8, 512)]),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize(("fn", "inputs"), CASES, ids=[fn.__name__ for fn, _ in CASES])
def test_every_plan_computes_what_torch_does(fn, inputs, backend):
    given = inputs()
    result = mirage_py.optimize(mirage_py.trace(fn, *given), backend=backend, budget=20.0)
    expected = fn(*(x.float() if x.is_floating_point() else x for x in given)).float()
    assert any(c.passed for c in result.candidates), [str(c.reason) for c in result.candidates]
    print(fn.__name__, backend, result.best, result.baseline)  # noqa: T201
    found = result.kernel()(*given)
    torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-2)
