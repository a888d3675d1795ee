"""Functions that are no program, on a GPU: the fastest of regions, torch.compile and eager."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import mirage_py
from mirage_py.reasons import Server

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def called(fn, *given, effort: str = "quick", budget: float = 20.0):
    fast = mirage_py.superoptimize(effort=effort, budget=budget)(fn)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            found = fast(*given)
        served = fast.entry(*given).served
    print(fast.dispatch_table())  # noqa: T201
    return fast, found, served


def chain_and_sort(x: torch.Tensor) -> torch.Tensor:
    y = F.silu(x) * torch.tanh(x + 1) + torch.exp(-x * x)
    return torch.sort(y * 2 + torch.sigmoid(x), -1).values


def lookup(ids: torch.Tensor, table: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(table[ids], (table.shape[-1],)) @ w


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_eager_does_not_serve_a_long_chain(effort: str):
    x = half(4096, 1024)
    _, found, served = called(chain_and_sort, x, effort=effort)
    torch.testing.assert_close(found, chain_and_sort(x), rtol=2e-2, atol=2e-2)
    assert served.by in (Server.IN_PARTS, Server.TORCH_COMPILE)


def test_integer_inputs():
    ids = torch.randint(0, 32000, (16,), device="cuda")
    table, w = half(32000, 1024), half(1024, 4096) / 32
    _, found, _ = called(lookup, ids, table, w)
    torch.testing.assert_close(found, lookup(ids, table, w), rtol=2e-2, atol=2e-2)


def test_random_numbers_and_side_effects():
    seen = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return F.dropout(F.silu(x * 2) + x, 0.5).sort(-1).values

    x = half(256, 512)
    fast = mirage_py.superoptimize(fn)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for calls in (1, 2, 3):
            torch.manual_seed(11)
            found = fast(x)
            assert len(seen) == 2 * calls - 1
            torch.manual_seed(11)
            torch.testing.assert_close(found, fn(x), rtol=2e-2, atol=2e-2)
    print(fast.dispatch_table())  # noqa: T201


def test_what_eager_does_best_is_left_to_eager():
    """One library call: torch.compile adds its guards alone."""
    x = torch.randint(0, 9, (64,), device="cuda")
    _, found, served = called(lambda v: v.sort().values, x)
    assert torch.equal(found, x.sort().values)
    assert served.by in (Server.EAGER, Server.TORCH_COMPILE)


def test_it_is_captured_after_its_first_call():
    x = half(512, 1024)
    fast, _, _ = called(chain_and_sort, x)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        found = fast(x)
    x.copy_(half(512, 1024))
    graph.replay()
    torch.testing.assert_close(found, chain_and_sort(x), rtol=2e-2, atol=2e-2)
