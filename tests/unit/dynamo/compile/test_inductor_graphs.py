"""The rest as torch.compile has it: the same code where nothing is served, and what regions add.

Code is generated and not compiled: no C++ is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch._functorch.config
import torch._inductor.config
import torch.nn.functional as F
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.graph import GraphLowering

from mirage_py.dynamo.backend import mirage_py
from mirage_py.dynamo.compile import compiler, inductor_graphs
from mirage_py.dynamo.serve.graph_target import graph_target
from mirage_py.dynamo.serve.options import backend_options
from mirage_py.errors import InputError, LostGpuError, MirageWarning

Compiled = Callable[..., Any]
Lines = Callable[[str], list[str]]


class _Stopped(Exception):  # noqa: N818  not an error
    """Enough has been generated."""


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    # The instructions of this machine are asked for with a compiler otherwise.
    settings = {"fx_graph_cache": False, "compile_threads": 1, "cpp.simdlen": 1}
    with (
        torch._inductor.config.patch(settings),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


def step(x: torch.Tensor, w: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = F.silu(F.rms_norm(x.atan(), (64,)) @ w)
    cache.index_copy_(0, at, y[:1])
    return F.gelu(F.layer_norm(y, (64,))) + torch.softmax(y @ cache.T, -1) @ cache


def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.dropout(F.silu(F.rms_norm(x.atan(), (64,)) @ w), 0.1)
    return y.log_softmax(-1).sum()


def step_inputs() -> tuple[torch.Tensor, ...]:
    return torch.randn(5, 64), torch.randn(64, 64), torch.randn(9, 64), torch.tensor([3])


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``generated(fn, *inputs)``: what Inductor writes for the graphs of a compiled function."""

    def generate(fn: Any, *inputs: torch.Tensor, backward: bool = False) -> list[str]:
        found: list[str] = []

        class Written:
            """In the place of the compiled module: results without meaning."""

            __file__ = key = "none"

            def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
                self.call = lambda args: (args.clear(), [torch.zeros(s) for s in shapes])[1]

        def write(graph: GraphLowering) -> Any:
            code = graph.codegen()[0]
            text = code.value if hasattr(code, "value") else code
            found.append(re.sub(r"# AOT ID: .*", "", text))
            return Written([tuple(map(int, n.get_size())) for n in graph.graph_outputs])

        monkeypatch.setattr(GraphLowering, "compile_to_module", write)
        torch._dynamo.reset()
        with torch.set_grad_enabled(backward):
            result = fn(*inputs)
            if backward:
                result.backward()
        return found

    return generate


def by_torch(fn: Any) -> Any:
    return torch.compile(fn)


def test_unserved_inference_is_torchs_own(compiled: Compiled, generated: Any, lines: Lines):
    inputs = step_inputs()
    mine = generated(compiled(step, rest="inductor", max_regions=0), *inputs)
    assert lines("left to torch.compile: beyond the first 0 regions") != []
    assert mine == generated(by_torch(step), *inputs)
    assert len(mine) == 1


def test_unserved_training_is_torchs_own(compiled: Compiled, generated: Any, lines: Lines):
    inputs = torch.randn(5, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    mine = generated(compiled(loss, rest="inductor", max_regions=0), *inputs, backward=True)
    assert lines("backward: region") != []
    assert mine == generated(by_torch(loss), *inputs, backward=True)
    assert len(mine) == 2


def test_a_cache_is_written_in_place_beside_regions(compiled: Compiled, generated: Any):
    (code,) = generated(compiled(step, rest="inductor"), *step_inputs())
    assert code.count("= call_region([") >= 2
    # Of the cache no other copy is made: a row is written, and the region after it reads the input.
    assert "copy_(" not in code
    body = code[code.index("def call") :]
    assert not re.search(r"empty_strided_cpu\(\(9, 64\)", body)
    assert re.search(r"call_region\(\[buf\d+, arg\d+_1\]", body)


def test_operators_outside_regions_are_decomposed_by_inductors_table(
    compiled: Compiled, generated: Any
):
    def outside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.silu(F.rms_norm(x, (64,)) @ w)
        return F.softmax(y.cumsum(-1), -1)

    (code,) = generated(compiled(outside, rest="inductor"), torch.randn(5, 64), torch.randn(64, 64))
    assert "call_region(" in code
    # A fallback would call torch's operator, as it does for a region.
    assert "aten._softmax" not in code
    assert "cpp_fused" in code


def test_a_region_in_the_backward_graph_alone(
    compiled: Compiled, generated: Any, monkeypatch: pytest.MonkeyPatch
):
    from mirage_py.dynamo.compile import compiler
    from mirage_py.dynamo.serve import servers
    from mirage_py.dynamo.serve.service import Service
    from mirage_py.reasons import Code, reason

    asked = []

    def not_the_first(region: Any, own: Any) -> Service:
        asked.append(region)
        first = Service(None, reason(Code.OTHER, "the first"))
        return servers.reference(region, own) if len(asked) > 1 else first

    monkeypatch.setattr(compiler, "server_for", lambda *_: not_the_first)
    inputs = torch.randn(5, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)

    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.silu(x @ w).atan().sum()

    forward, backward = generated(compiled(plain, rest="inductor"), *inputs, backward=True)
    assert "call_region(" not in forward
    assert "call_region(" in backward


def test_a_backward_graph_at_its_first_call(compiled: Compiled, generated: Any, lines: Lines):
    def classified(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        # Of its gradient Inductor's passes make something else, for which they trace.
        return F.cross_entropy(F.silu(F.rms_norm(x, (64,)) @ w), torch.arange(5))

    inputs = torch.randn(5, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    found = generated(compiled(classified, rest="inductor"), *inputs, backward=True)
    assert lines("Inductor does not take") == []
    assert len(found) == 2
    assert "call_region(" in found[1]


def test_a_region_may_read_a_constant_of_the_model(compiled: Compiled, generated: Any):
    def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.silu(F.rms_norm(x, (64,)) @ w) * torch.tensor([1.0, 2.0]).repeat(32)

    (code,) = generated(compiled(scaled, rest="inductor"), torch.randn(5, 64), torch.randn(64, 64))
    assert "call_region(" in code


def test_nested_regions_of_torch_are_left_to_it(compiled: Compiled, generated: Any, lines: Lines):
    layer = torch.compiler.nested_compile_region(lambda x: F.silu(F.rms_norm(x, (64,)) @ x.t()))

    def twice(x: torch.Tensor) -> torch.Tensor:
        return layer(layer(x))

    x = torch.randn(64, 64)
    mine = generated(compiled(twice, rest="inductor"), x)
    assert lines("nested_compile_region") != []
    assert mine == generated(by_torch(twice), x)


def test_what_fails_in_a_cut_leaves_the_graph_to_torch(
    compiled: Compiled, generated: Any, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: Any) -> Any:
        raise RuntimeError("no way to take it apart")

    monkeypatch.setattr(inductor_graphs, "decomposed_graph", fails)
    inputs = step_inputs()
    with pytest.warns(MirageWarning, match="left to Inductor: RuntimeError: no way"):
        mine = generated(compiled(step, rest="inductor"), *inputs)
    assert mine == generated(by_torch(step), *inputs)


def test_without_a_gpu_nothing_is_left_to_torch(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
):
    def breaks_it(*_: Any) -> Any:
        raise LostGpuError("plan 6 broke this process's GPU context", launched="plan 6")

    monkeypatch.setattr(compiler, "server_for", lambda *_: breaks_it)
    monkeypatch.setattr(inductor_graphs, "left_to_torch", pytest.fail)
    with (
        pytest.warns(MirageWarning, match="^plan 6 broke"),
        pytest.raises(BackendCompilerFailed, match="plan 6 broke"),
    ):
        compiled(step, rest="inductor")(*step_inputs())


def test_settings_of_inductor_come_from_the_mode_and_the_options():
    from torch._inductor import list_mode_options

    from mirage_py.dynamo.serve.fallback import inductor_settings
    from mirage_py.dynamo.serve.options import backend_options

    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        assert inductor_settings(backend_options(mode)) == list_mode_options(mode)
    chosen = backend_options("max-autotune", {"inductor": {"max_autotune": False}})
    assert inductor_settings(chosen)["max_autotune"] is False
    with pytest.raises(InputError, match="did you mean 'max_autotune'"):
        inductor_settings(backend_options(None, {"inductor": {"max_autotun": True}}))


def test_a_reset_of_dynamo_reaches_cuda_graphs(monkeypatch: pytest.MonkeyPatch):
    from torch._inductor import cudagraph_trees

    reset = []
    monkeypatch.setattr(cudagraph_trees, "reset_cudagraph_trees", lambda: reset.append(1))
    mirage_py.reset()  # type: ignore[attr-defined]
    assert reset == [1]


@pytest.mark.parametrize(
    ("options", "tunes"),
    [
        ({}, False),
        ({"effort": "full"}, True),
        ({"inductor": {"max_autotune": True}}, True),
        ({"effort": "full", "rest": "eager"}, False),
    ],
)
def test_what_is_left_is_tuned_where_its_settings_say_so(options: dict[str, Any], tunes: bool):
    found = backend_options(None, options)
    assert compiler.GraphCompiler(found, graph_target("h200"))._rest_tunes() is tunes
