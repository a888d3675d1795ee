"""Functions that write to tensors, on a GPU: a race leaves no trace, graphs write as they do."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mirage_py
from mirage_py.reasons import Server

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def append(k: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(0, at, F.normalize(k, dim=-1))
    return torch.softmax(k @ cache.T, -1)


def moved(mean: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return mean.mul_(0.9).add_(x, alpha=0.1)


def counted(k: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(0, at, torch.tanh(k))
    at.add_(1)
    return cache.float().sum(0)


CASES = [
    (append, lambda: (half(1, 128), half(4096, 128), torch.tensor([7], device="cuda"))),
    (moved, lambda: (half(512, 1024), half(512, 1024))),
    (counted, lambda: (half(1, 64), half(32, 64), torch.tensor([20], device="cuda"))),
]


@pytest.mark.parametrize(("fn", "given"), CASES, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("again", [False, True])
def test_each_call_writes_once(fn, given, again):
    mine = given()
    theirs = [x.clone() for x in mine]
    fast = mirage_py.superoptimize(budget=20.0)(fn)
    if again:  # from the cache
        with torch.no_grad():
            mirage_py.superoptimize(budget=20.0)(fn)(*given())
    with torch.no_grad():
        fast.prepare(*mine)
        torch.testing.assert_close(list(mine), theirs, rtol=0, atol=0)
        for _ in range(3):
            found, wanted = fast(*mine), fn(*theirs)
            torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
            torch.testing.assert_close(list(mine), theirs, rtol=2e-2, atol=2e-2)
    print(fast.explain(*mine))  # noqa: T201
    assert fast.entry(*mine).instead is None


def test_a_graph_writes_to_what_was_passed():
    k, cache, at = CASES[0][1]()
    fast = mirage_py.superoptimize(budget=20.0)(append)
    with torch.no_grad():
        fast(k, cache, at)
        mirror = cache.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = fast(k, cache, at)
        for place in (9, 4000):
            k.copy_(half(1, 128))
            at.fill_(place)
            graph.replay()
            torch.testing.assert_close(found, append(k, mirror, at), rtol=2e-2, atol=2e-3)
            torch.testing.assert_close(cache, mirror, rtol=2e-2, atol=2e-3)


def test_buffers_are_as_they_were_after_a_search():
    module = nn.Sequential(nn.BatchNorm1d(256), nn.ReLU()).cuda().half()
    twin, x = copy.deepcopy(module), half(512, 256)
    fast = mirage_py.superoptimize(budget=20.0)(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast.prepare(x)
        torch.testing.assert_close(module.state_dict(), twin.state_dict(), rtol=0, atol=0)
        for _ in range(2):
            torch.testing.assert_close(fast(x), twin(x), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(module.state_dict(), twin.state_dict(), rtol=2e-2, atol=2e-2)


def test_what_serves_is_no_slower_than_the_function():
    """The copies after the kernels are timed with them."""
    p, x = half(2048, 4096), half(2048, 4096)
    fast = mirage_py.superoptimize(budget=20.0)(moved)
    with torch.no_grad():
        fast(p, x)
        served = fast.entry(p, x).served
    times = {}
    for name, call in (("served", fast), ("eager", moved)):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.no_grad():
            for _ in range(20):
                call(p, x)
            start.record()
            for _ in range(200):
                call(p, x)
            end.record()
            end.synchronize()
        times[name] = start.elapsed_time(end) * 5
    print(served, times)  # noqa: T201
    assert served.by in (Server.OURS, Server.TORCH_COMPILE, Server.EAGER)
    torch.testing.assert_close(moved(p.clone(), x), fast(p, x), rtol=2e-2, atol=2e-2)
