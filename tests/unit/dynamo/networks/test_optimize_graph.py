"""The graph level through its ways in: exported programs, and torch.compile."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Any

import pytest
import torch
from nightly import NIGHTLY
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import mirage_py
from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.networks import exported_graph, rewriting
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.substitution import Substitution
from mirage_py.targets import target

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
F = nn.functional
PAIR = "rule 46: matmul, matmul as concat, matmul, split"


class Branches(nn.Module):
    """Two products of one operand, normed images beside them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
        self.conv, self.norm = nn.Conv1d(2, 4, 3, padding=1, bias=False), nn.BatchNorm1d(4)
        with torch.no_grad():
            assert self.norm.running_mean is not None
            self.norm.running_mean.uniform_(-1, 1)

    def forward(self, x: torch.Tensor, *, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": self.one(x) + self.two(x).relu(), "image": self.norm(self.conv(image))}


X, IMAGE = torch.linspace(-1, 1, 24).reshape(3, 8), torch.linspace(0, 1, 20).reshape(1, 2, 10)


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Branches().eval(), (X,), {"image": IMAGE})


@pytest.fixture(scope="module")
def frozen(exported: torch.export.ExportedProgram) -> mirage_py.OptimizedGraph:
    return mirage_py.optimize_graph(exported, target="h200", freeze=True)


def assert_same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_frozen_program_is_rewritten_verified_and_decided_by_the_model(
    frozen: mirage_py.OptimizedGraph,
):
    assert frozen.is_changed
    assert frozen.result is not None
    assert frozen.evidence is not None
    rules = [step.rule for step in frozen.result.steps]
    assert PAIR in rules
    assert "batch norm as a factor and a term" in rules
    assert frozen.evidence.tested == frozen.evidence.parts > 0
    assert frozen.verdict.endswith("no GPU was used")
    assert "modelled" in str(frozen)
    assert_same(frozen(X, image=IMAGE), Branches().eval()(X, image=IMAGE))


# All efforts at night: with more nodes the solver takes seconds to show that nothing is better.
@pytest.mark.parametrize("effort", ["auto", "full"] if NIGHTLY else ["auto"])
def test_narrow_groups_become_wider(effort: str):
    """Groups of 4 channels, of which tensor cores take 16: four of them or more are one."""
    model = nn.Conv2d(32, 32, 3, padding=1, groups=8, bias=False).bfloat16().eval()
    x = torch.linspace(-1, 1, 4 * 32 * 256).reshape(4, 32, 16, 16).bfloat16()
    program = torch.export.export(model, (x,))
    found = mirage_py.optimize_graph(program, target="h200", effort=effort, freeze=True)
    assert found.result is not None
    (step,) = found.result.steps
    assert step.rule in [f"{n} groups of a convolution as one" for n in (4, 8)]
    assert found.evidence is not None
    assert found.evidence.tested == found.evidence.parts == 1
    torch.testing.assert_close(found(x), model(x), rtol=0.02, atol=0.02)


def test_arguments_are_those_of_the_program(frozen: mirage_py.OptimizedGraph):
    with pytest.raises(TypeError, match="takes arguments"):
        frozen(X, IMAGE)


def test_a_frozen_graph_computes_its_weights_once(frozen: mirage_py.OptimizedGraph):
    graph = frozen.module.graph_module
    called = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert called.count("aten.mm.default") == 1
    assert not [name for name in called if "norm" in name or "cat" in name]


def test_weights_that_are_not_frozen_are_trained_as_before():
    model = Branches().eval()
    program = torch.export.export(model, (X,), {"image": IMAGE})
    found = mirage_py.optimize_graph(program, target="h200", effort="full")
    assert found.is_changed  # at this size one product is worth the copy of its weights
    found(X, image=IMAGE)["sum"].sum().backward()
    mine = {name: p.grad for name, p in found.module.named_parameters()}
    found.module.zero_grad()
    fresh = Branches().eval()
    fresh(X, image=IMAGE)["sum"].sum().backward()
    for name in ("one", "two"):
        assert_same(mine[f"{name}_weight"], getattr(fresh, name).weight.grad)
        # In place, as an optimizer has it: the next call sees it.
        found.module.get_parameter(f"{name}_weight").data.mul_(2)
        getattr(fresh, name).weight.data.mul_(2)
    assert_same(found(X, image=IMAGE), fresh(X, image=IMAGE))


def test_a_program_that_writes_to_its_buffers_is_left_as_it_is():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.count

    found = mirage_py.optimize_graph(torch.export.export(Counter(), (X,)))
    assert not found.is_changed
    assert "writes" in found.verdict


@pytest.mark.parametrize(
    ("given", "why"), [({"effort": "most"}, "auto, full"), ({"target": "x99"}, "x99")]
)
def test_bad_arguments_are_errors(
    exported: torch.export.ExportedProgram, given: dict[str, str], why: str
):
    with pytest.raises(InputError, match=why):
        mirage_py.optimize_graph(exported, **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"torch.export.export"):
        mirage_py.optimize_graph(Branches())  # type: ignore[arg-type]


def test_a_wrong_substitution_is_found_out_and_not_used(
    exported: torch.export.ExportedProgram, monkeypatch: pytest.MonkeyPatch
):
    """Pieces of a product in the wrong order."""
    from mirage_py.search.networks import optimize_network, proved_rules

    def wrong(program: Graph) -> tuple[Substitution, ...]:
        return tuple(
            replace(rule, make=lambda place, rule=rule: tuple(reversed(list(rule.make(place)))))
            for rule in proved_rules.by_rules(program)
            if rule.merges
        )

    monkeypatch.setattr(optimize_network, "by_rules", wrong)
    found = mirage_py.optimize_graph(exported, target="h200", freeze=True)
    assert not found.is_changed
    assert found.evidence is not None
    assert not found.evidence.equal
    assert_same(found(X, image=IMAGE), Branches().eval()(X, image=IMAGE))


def test_results_on_the_example_inputs_are_compared(
    exported: torch.export.ExportedProgram, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(exported_graph, "_distance", lambda one, other: float("nan"))
    found = mirage_py.optimize_graph(exported, target="h200", freeze=True)
    assert not found.is_changed
    assert "example inputs" in found.verdict


def test_the_clock_ends_the_search(exported: torch.export.ExportedProgram):
    ticks = iter(range(10_000))
    module = exported.run_decompositions({}).graph_module
    found = rewriting.rewritten(
        module, target("h200"), effort="auto", budget=3.0, clock=lambda: float(next(ticks))
    )
    assert found.result is not None
    assert found.result.bound == "time"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="mirage_py.dynamo")
    torch._dynamo.reset()
    return caplog


def compiled(model: nn.Module, graph: str) -> Any:
    options = {"on_cpu": "reference", "rest": "eager", "target": "h200", "graph": graph}
    return torch.compile(model, backend="mirage_py", options=options)


@pytest.mark.parametrize(
    ("graph", "is_rewritten"), [("full", True), ("auto", False), ("off", False)]
)
def test_torch_compile_rewrites_graphs_for_inference(
    graph: str, is_rewritten: bool, lines: pytest.LogCaptureFixture
):
    model = Branches().eval()
    with torch.no_grad():
        assert_same(compiled(model, graph)(X, image=IMAGE), model(X, image=IMAGE))
    assert (PAIR in lines.text) == is_rewritten


def test_torch_compile_leaves_graphs_of_training_as_they_are(lines: pytest.LogCaptureFixture):
    model, fresh = Branches().eval(), Branches().eval()
    compiled(model, "full")(X, image=IMAGE)["sum"].sum().backward()
    fresh(X, image=IMAGE)["sum"].sum().backward()
    assert_same(model.one.weight.grad, fresh.one.weight.grad)
    assert "graph level" not in lines.text


def test_weights_that_a_graph_holds_are_constant_without_being_asked():
    """As freezing leaves it to a backend."""
    w, v = torch.ones(8, 4), torch.full((8, 4), 2.0)
    module = make_fx(lambda x: (x @ w) * (x @ v), tracing_mode="fake", _allow_non_fake_inputs=True)(
        X
    )
    compiler = GraphCompiler(BackendOptions(rest="eager"), target("h200"))
    fused = compiler.fused("inference", module)
    assert any(PAIR in line for line in compiler.lines)
    assert_same(fused(X), (X @ w) * (X @ v))
    off = GraphCompiler(BackendOptions(rest="eager", graph="off"), target("h200"))
    assert_same(off.fused("inference", module)(X), (X @ w) * (X @ v))
    assert not any("graph level" in line for line in off.lines)


def test_a_race_has_the_rewritten_graph_without_freezing_too(
    exported: torch.export.ExportedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"ours": 9.0, "torch": 8.0, exported_graph._PLAIN: 7.0}
    times[exported_graph._OURS_PLAIN] = 5.0
    monkeypatch.setattr(exported_graph, "timed", lambda given, *_: {n: times[n] for n in given})
    monkeypatch.setattr(exported_graph, "device_and_clock", lambda _leaves: (0, None))
    monkeypatch.setattr(torch.cuda, "device", lambda _device: contextlib.nullcontext())
    race = exported_graph._race
    module = exported.module()
    verdict = race(module, module, exported, [], {"freezing": True})
    assert verdict.winner == exported_graph.OURS
    assert verdict.words.startswith(
        "raced: rewritten 5.0 us, as it was 7.0 us; 9.0 us with freezing"
    )
    assert race(module, module, exported, [], {"freezing": False}).winner == exported_graph.TORCH


def test_a_race_in_cuda_graphs_has_branches_side_by_side(
    frozen: mirage_py.OptimizedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = torch.export.export(nn.Sequential(nn.Linear(8, 4)), (X,))
    times = {"ours": 9.0, "torch": 8.0, exported_graph._BRANCHES: 6.0}
    monkeypatch.setattr(exported_graph, "timed", lambda given, *_: {n: times[n] for n in given})
    monkeypatch.setattr(exported_graph, "device_and_clock", lambda _leaves: (0, None))
    monkeypatch.setattr(torch.cuda, "device", lambda _device: contextlib.nullcontext())
    options = {"freezing": False, "triton.cudagraphs": True}
    module: Any = program.module()

    def captured(_module: Any, _inputs: Any) -> Any:
        if times["ours"] < 9.0:
            raise UnsupportedError("a CUDA graph of a network", why="it waits")
        return module

    monkeypatch.setattr(exported_graph, "captured_branches", captured)
    verdict = exported_graph._race(module, module, program, [X], options)
    assert verdict.words.endswith(
        "6.0 us, as it was 8.0 us; by captured(), 9.0 us by torch.compile"
    )
    assert frozen.captured(X) is module
    times["ours"] = 7.0
    verdict = exported_graph._race(module, module, program, [X], options)
    assert verdict.words == "raced: rewritten 7.0 us, as it was 8.0 us"


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_convolutions_that_kernels_of_ours_may_be_are_not_priced_by_the_library(
    kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    plain = rewriting.optimize_network

    def optimized(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs)
        return plain(*args, **{**kwargs, "measure": None})

    monkeypatch.setattr(rewriting, "optimize_network", optimized)
    monkeypatch.setattr(rewriting, "_device", lambda _module: torch.device("cuda"))
    monkeypatch.setattr(rewriting, "measurement_for", lambda _device: "measured")
    monkeypatch.setattr(rewriting, "_kernels", lambda *_: ())
    model = nn.Conv2d(2, 4, 3).to(kind)
    program = torch.export.export(model, (torch.randn(1, 2, 5, 5).to(kind),))
    module = program.run_decompositions({}).graph_module
    rewriting.rewritten(module, target("h200"), effort="full", constants={}, budget=5)
    (given,) = asked
    is_ours = kind == torch.bfloat16
    assert given["measure"] == (None if is_ours else "measured")
    assert (given["substitutions"] is None) == is_ours
