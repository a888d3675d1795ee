"""Whole graphs benchmarked against Inductor alone: the choice, and the state that must be left as
it was.

The clock is one of the test's own. Both candidates run operator by operator: no C++ is waited for.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

from mirage_py.dynamo.compile import inductor_graphs
from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.serve.fallback import eager_fallback
from mirage_py.dynamo.whole_graph import benchmark
from mirage_py.dynamo.whole_graph.real_inputs import (
    NotBenchmarkedError,
    SavedInputs,
    real_inputs,
    written_inputs,
)
from mirage_py.dynamo.whole_graph.timer import CompiledGraph
from mirage_py.dynamo.whole_graph.uncaptured import Uncaptured
from mirage_py.dynamo.whole_graph.verdicts import (
    CHAINED,
    OURS,
    TORCH,
    Verdict,
    cache_verdict,
    cached_verdict,
)
from mirage_py.errors import LostGpuError, MirageWarning

Lines = Callable[[str], list[str]]


class Clock:
    """Calls each candidate a few times and says what it was told to."""

    def __init__(self) -> None:
        self.times = {OURS: 100.0, TORCH: 200.0}
        self.runs = 0
        self.before: Callable[[], None] = lambda: None

    def __call__(
        self, candidates: Mapping[str, CompiledGraph], restore: Callable[[], None]
    ) -> dict[str, float]:
        self.runs += 1
        for candidate in candidates.values():
            for _ in range(3):
                restore()
                candidate.call()
        self.before()
        return dict(self.times)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    found = Clock()
    monkeypatch.setattr(benchmark, "clock_for", lambda _: found)
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    return found


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What torch was given to compile alone, and which code ran last: ``ours`` or ``torch``."""
    said: list[str] = []

    def compile_inner(graph: Any, inputs: Any, **asked: Any) -> Any:
        run = eager_fallback(graph)

        def boxed(values: list[Any]) -> Any:
            said.append("ours ran")
            return run(values)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    def left_to_torch(module: Any, *_: Any) -> Any:
        said.append("compiled by torch")

        def run(*values: Any) -> Any:
            said.append("torch ran")
            return module(*values)

        return run

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", compile_inner)
    monkeypatch.setattr(inductor_graphs, "left_to_torch", left_to_torch)
    return said


def step(x: torch.Tensor, w: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = F.silu(F.rms_norm(x, (64,)) @ w)
    cache.index_copy_(0, at, y[:1])
    at.add_(1)
    return y + cache.sum(0)


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.silu(F.rms_norm(x, (64,)) @ w)


def step_inputs() -> tuple[torch.Tensor, ...]:
    return torch.randn(5, 64), torch.randn(64, 64), torch.randn(3, 64), torch.tensor([2])


def benchmarked(compiled: Any, fn: Any, **options: Any) -> Any:
    return compiled(fn, **({"rest": "inductor", "whole_graph": "race"} | options))


@pytest.mark.parametrize(
    ("ours", "theirs", "winner"),
    [(100.0, 200.0, "ours"), (200.0, 100.0, "torch"), (100.0, 99.5, "ours"), (float("inf"), 9.0,
      "torch")],
)  # fmt: skip
def test_the_faster_one_is_used(
    compiled: Any,
    clock: Clock,
    by_torch: list[str],
    lines: Lines,
    ours: float,
    theirs: float,
    winner: str,
):
    clock.times = {OURS: ours, TORCH: theirs}
    x, w = torch.randn(5, 64), torch.randn(64, 64)
    fast = benchmarked(compiled, plain)
    with torch.no_grad():
        fast(x, w)
        torch.testing.assert_close(fast(x, w), plain(x, w))
    assert clock.runs == 1
    assert by_torch[-1] == f"{winner} ran"
    (line,) = lines("whole graph:")
    assert f"by torch.compile {theirs:.1f} us (benchmarked)" in line


@pytest.mark.parametrize(
    ("times", "ran"),
    [((100.0, 90.0, 95.0), "chained"), ((100.0, 99.5, 120.0), "ours"), ((100.0, 90.0, 80.0),
      "torch"), ((100.0, 90.0, 89.5), "chained")],
)  # fmt: skip
def test_regions_may_be_chained(
    compiled: Any,
    clock: Clock,
    by_torch: list[str],
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
    times: tuple[float, float, float],
    ran: str,
):
    def chained(_: GraphCompiler, ours: Any) -> Any:
        @functools.wraps(ours)
        def run(*values: Any) -> Any:
            found = ours(*values)
            by_torch[-1] = "chained ran"
            return found

        return run

    monkeypatch.setattr(GraphCompiler, "chained", chained)
    clock.times = dict(zip((OURS, CHAINED, TORCH), times, strict=True))
    x, w = torch.randn(5, 64), torch.randn(64, 64)
    for _ in range(2):  # the second start knows the verdict
        torch._dynamo.reset()
        with torch.no_grad():
            torch.testing.assert_close(
                benchmarked(compiled, plain, chain="race")(x, w), plain(x, w)
            )
        assert by_torch[-1] == f"{ran} ran"
    assert clock.runs == 1
    assert f"chained {times[1]:.1f} us" in lines("whole graph:")[0]


def test_inputs_are_what_they_were(compiled: Any, clock: Clock, by_torch: list[str]):
    """The cache has room for this step alone: a second one without the first undone would fail."""
    mine = step_inputs()
    theirs = [t.clone() for t in mine]
    before: list[list[torch.Tensor]] = []
    clock.before = lambda: before.append([])
    with torch.no_grad():
        got = benchmarked(compiled, step)(*mine)
        want = step(*theirs)
    assert clock.runs == 1
    torch.testing.assert_close(got, want)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)
    assert mine[3].item() == 3


def test_overlapping_memory_is_put_back_bit_by_bit():
    whole = torch.randn(6, 8)
    whole[0, 0] = float("nan")
    parts = whole[1:4].t(), whole[:3, ::2], whole[0].expand(4, 8), whole[:0]
    bits = whole.view(torch.int32).clone()
    kept = SavedInputs(parts)
    whole[:4].zero_()
    kept.restore()
    assert torch.equal(whole.view(torch.int32), bits)


def test_random_numbers_are_those_of_no_race(compiled: Any, clock: Clock, by_torch: list[str]):
    def noisy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return plain(x, w) + torch.rand(5, 64)

    x, w = torch.randn(5, 64), torch.randn(64, 64)
    found = []
    with torch.no_grad():
        for whole_graph in ("trust", "race"):
            torch._dynamo.reset()
            fast = benchmarked(compiled, noisy, whole_graph=whole_graph)
            torch.manual_seed(3)
            found.append((fast(x, w), torch.get_rng_state()))
    assert clock.runs == 1
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("winner", [OURS, TORCH])
def test_the_next_start_times_nothing(
    compiled: Any, clock: Clock, by_torch: list[str], lines: Lines, winner: str
):
    clock.times[winner] = 1.0
    x, w = torch.randn(5, 64), torch.randn(64, 64)
    with torch.no_grad():
        benchmarked(compiled, plain)(x, w)
        torch._dynamo.reset()
        del by_torch[:]
        benchmarked(compiled, plain)(x, w)
    assert clock.runs == 1
    # The winner alone is compiled.
    assert by_torch == (["ours ran"] if winner == OURS else ["compiled by torch", "torch ran"])
    assert len(lines("(benchmarked before)")) == 1


def test_other_options_and_sizes_are_other_runs(compiled: Any, clock: Clock, by_torch: list[str]):
    w = torch.randn(64, 64)
    with torch.no_grad():
        for rows, options in ((5, {}), (6, {}), (5, {"min_gain": 0.01}), (5, {"cache": False})):
            torch._dynamo.reset()
            benchmarked(compiled, plain, **options)(torch.randn(rows, 64), w)
        assert clock.runs == 4
        torch._dynamo.reset()
        benchmarked(compiled, plain)(torch.randn(5, 64), w)
    assert clock.runs == 4


def test_symbols_are_benchmarked_at_the_sizes_at_hand(
    compiled: Any, clock: Clock, by_torch: list[str]
):
    w = torch.randn(64, 64)
    fast = benchmarked(compiled, plain, dynamic=True)
    with torch.no_grad():
        for rows in (5, 7, 9):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(fast(x, w), plain(x, w))
    assert clock.runs == 1


def test_a_module_that_holds_its_parameters(compiled: Any, clock: Clock, by_torch: list[str]):
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(64, 64))
            self.register_buffer("cache", torch.zeros(3, 64))
            self.register_buffer("scale", torch.ones(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = plain(x, self.w) * self.scale
            self.cache.add_(y[0])
            return y + self.cache.sum(0)

    mine, theirs = Layer(), Layer()
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(5, 64)
    fast = benchmarked(compiled, mine)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), theirs(x))
    torch.testing.assert_close(mine.cache, theirs.cache)
    assert clock.runs == 1


def test_training_is_not_benchmarked(
    compiled: Any, clock: Clock, by_torch: list[str], lines: Lines
):
    x, w = torch.randn(5, 64, requires_grad=True), torch.randn(64, 64)
    benchmarked(compiled, plain)(x, w).sum().backward()
    assert x.grad is not None
    assert clock.runs == 0
    assert "compiled by torch" not in by_torch


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"whole_graph": "trust", "effort": "full"}, 0),
        ({"whole_graph": "auto", "effort": "none"}, 0),
        ({"whole_graph": "auto", "effort": "quick"}, 1),
        ({"whole_graph": "auto", "effort": "full"}, 1),
    ],
)
def test_who_measures_regions_benchmarks_the_whole(
    compiled: Any, clock: Clock, by_torch: list[str], options: Any, runs: int
):
    with torch.no_grad():
        benchmarked(compiled, plain, **options)(torch.randn(5, 64), torch.randn(64, 64))
    assert clock.runs == runs


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (torch.OutOfMemoryError("no room"), "not benchmarked: there is no memory for it"),
        (RuntimeError("a bad day"), "not benchmarked: RuntimeError: a bad day"),
    ],
)
def test_what_goes_wrong_in_a_race_leaves_ours(
    compiled: Any, clock: Clock, by_torch: list[str], lines: Lines, raised: Exception, said: str
):
    def fails() -> None:
        raise raised

    clock.before = fails
    mine = step_inputs()
    theirs = [t.clone() for t in mine]
    with torch.no_grad():
        torch.testing.assert_close(benchmarked(compiled, step)(*mine), step(*theirs))
    torch.testing.assert_close(mine[2], theirs[2])
    assert by_torch[-1] == "ours ran"
    assert len(lines(said)) == 1


def test_who_breaks_the_gpu_is_left_to_torch_at_the_next_start(
    compiled: Any, clock: Clock, by_torch: list[str], lines: Lines
):
    def breaks() -> None:
        raise LostGpuError("ours broke this process's GPU context", launched=OURS, why="illegal")

    clock.before = breaks
    x, w = torch.randn(5, 64), torch.randn(64, 64)
    with torch.no_grad():
        with (
            pytest.warns(MirageWarning, match="^ours broke"),
            pytest.raises(Exception, match="ours"),
        ):
            benchmarked(compiled, plain)(x, w)
        torch._dynamo.reset()
        benchmarked(compiled, plain)(x, w)
    assert by_torch[-1] == "torch ran"
    assert len(lines("with regions it broke the GPU context: illegal")) == 1


@pytest.mark.parametrize(("whole_graph", "said"), [("race", 1), ("auto", 0)])
def test_a_cpu_has_no_clock(
    compiled: Any, by_torch: list[str], lines: Lines, whole_graph: str, said: int
):
    with torch.no_grad():
        fast = benchmarked(compiled, plain, whole_graph=whole_graph, effort="full")
        fast(torch.randn(5, 64), torch.randn(64, 64))
    assert len(lines("not benchmarked: nothing is timed on a CPU")) == said
    assert by_torch == ["ours ran"]


def test_inputs_that_cannot_be_benchmarked_on():
    with FakeTensorMode():
        fake = torch.randn(3)
    for value, said in (
        (fake, "no data"),
        (torch.randn(3).to_sparse(), "no plain tensor"),
        (object(), "is a object"),
    ):
        with pytest.raises(NotBenchmarkedError, match=said):
            real_inputs([value])
    assert real_inputs([3, None, 0.5]) == [3, None, 0.5]


def facts(**said: bool) -> Any:
    known = ("mutates_data", "mutates_metadata", "mutation_inductor_storage_resize")
    return SimpleNamespace(**{name: said.get(name, False) for name in known})


def test_what_cannot_be_put_back_is_not_written_to():
    x, p = torch.randn(3), torch.nn.Parameter(torch.randn(3))

    def metadata(*each: Any, tokens: Any = ()) -> Any:
        return SimpleNamespace(input_info=list(each), tokens=tokens)

    nothing, linear = torch.nn.Module(), torch.nn.Linear(2, 2)
    writes = facts(mutates_data=True)
    assert written_inputs([x, p, x], metadata(writes, facts(), facts()), nothing) == [x]
    # What the model holds comes first.
    assert written_inputs([p, x], metadata(facts(), facts(), facts(), writes), linear) == [x]
    with pytest.raises(NotBenchmarkedError, match="the model holds"):
        written_inputs([x], metadata(facts(), writes, facts()), linear)
    for values, said, words in (
        ([p], metadata(facts(mutates_data=True)), "parameters"),
        ([x], metadata(facts(mutates_metadata=True)), "shape"),
        ([x], metadata(facts(mutation_inductor_storage_resize=True)), "memory"),
        ([x], metadata(), "not known"),
        ([x], None, "not known"),
        ([x], metadata(facts(), tokens=("print",)), "not known"),
    ):
        with pytest.raises(NotBenchmarkedError, match=words):
            written_inputs(values, said, nothing)


def test_a_graph_that_waits_for_others_is_not_benchmarked():
    graph = torch.fx.Graph()
    waits = torch.ops._c10d_functional.wait_tensor.default
    graph.output((graph.call_function(waits, (graph.placeholder("x"),)),))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert "waits for other processes" in benchmark.why_not_benchmarked(module)


def test_a_way_past_cuda_graphs():
    """Torch asks for each part to be captured; what is written to has to lie still."""
    from torch._inductor import compile_fx

    before = compile_fx.cudagraphify
    described: Any = {"device_index": 0, "stack_traces": [], "is_backward": False}
    for still, is_captured in (((0,), True), ((), False)):
        past = Uncaptured()
        assert not past.is_captured
        with past.watched():
            run = compile_fx.cudagraphify(
                lambda values: ("called", *values),
                still,
                is_inference=True,
                mutated_input_idxs=(0,),
                **described,
            )
        assert past.is_captured is is_captured
        with past.passed_by():
            assert run([1, 2]) == ("called", 1, 2)
    assert compile_fx.cudagraphify is before


def test_a_verdict_that_cannot_be_read_is_none(clock: Clock, tmp_path: Path):
    cache_verdict("0a", Verdict(TORCH, "both"))
    assert cached_verdict("0a") == Verdict(TORCH, "both")
    (path,) = (tmp_path / "verdicts").iterdir()
    for text in ("", "[]", "{}", json.dumps({"winner": "xla", "words": ""})):
        path.write_text(text)
        assert cached_verdict("0a") is None
