"""Inductor runs the rest; to it a region is one operator. It compiles C++ here: once is enough."""

from __future__ import annotations

import threading
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
        return F.silu(F.rms_norm(x.atan(), (64,)) @ w)

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
    assert any("left to inductor" in line for line in lines("atan"))


def test_code_of_inductor_calls_regions_past_the_dispatcher(compiled: Callable[..., Any]):
    from torch._inductor.utils import run_and_get_code

    def step(x: torch.Tensor, w: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> Any:
        y = F.rms_norm(x, (64,))
        cache.index_copy_(0, at, y @ w)
        return y @ w.t(), F.silu(cache @ w)

    given = torch.randn(1, 64), torch.randn(64, 64), torch.randn(9, 64), torch.tensor([3])
    mine, theirs = ([x.clone() for x in given] for _ in range(2))
    settings = {"fx_graph_cache": False, "compile_threads": 1, "cpp.simdlen": 1}
    with torch.no_grad(), torch._inductor.config.patch(settings):
        found, (code,) = run_and_get_code(compiled(step, rest="inductor"), *mine)
    for got, want in zip((*found, *mine), (*step(*theirs), *theirs), strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    assert "call_writing_region(1, " in code
    assert "call_region([" in code
    assert "ops.mirage_py.region.default(" not in code


def test_a_kernel_has_to_beat_inductor_without_dynamos_lock(
    traced: Callable[..., torch.fx.GraphModule], monkeypatch: Any
):
    from torch._dynamo import convert_frame

    from mirage_py.dynamo.serve import servers
    from mirage_py.dynamo.serve.region_call import RegionCall
    from mirage_py.dynamo.serve.service import Service
    from mirage_py.reasons import Code, reason

    seen: dict[str, Any] = {}

    def server(region: Any, own: Any) -> Service:
        seen.update(servers.baselines(region, own, "quick"))
        return Service(None, reason(Code.OTHER, "slower"))

    # Interpreted and not compiled, so that no C++ is waited for: the way there is what counts.
    monkeypatch.setattr(
        servers, "compiled_graph", lambda graph, inputs, **_: lambda values: graph(*values)
    )
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    module = traced(lambda x, w: (F.silu(x @ w).t(),), x, w)
    for number, node in enumerate(n for n in module.graph.nodes if n.op == "placeholder"):
        node.target = f"in{number}"
    module.recompile()
    (want,) = RegionCall("key", module, server)(x, w)
    results = []
    with convert_frame.compile_lock:
        thread = threading.Thread(
            target=lambda: results.extend(f(x, w) for f in seen.values()), daemon=True
        )
        thread.start()
        thread.join(600)
    assert list(seen) == ["eager", "compile"]
    for result in results:
        torch.testing.assert_close(result.reshape(want.t().shape), want.t())
    assert len(results) == 2
