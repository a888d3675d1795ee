"""Functions that are no program: what serves them, and that nothing of them is lost.

Regions run as their programs in PyTorch. The clock is one of the test's own, and "Inductor" runs
operator by operator: no C++ is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mirage_py.dynamo.functions import graph_race, in_parts
from mirage_py.dynamo.functions.in_parts import InParts
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.servers import reference
from mirage_py.dynamo.whole_graph import benchmark
from mirage_py.dynamo.whole_graph.timer import CompiledGraph
from mirage_py.errors import LostGpuError
from mirage_py.reasons import Code, Reason, Served, Server, reason

WEIGHT = torch.randn(64, 64)
WHY = Reason(Code.OTHER, ("input 'ids' is of torch.int64",))


def ours(region: Any, own: Any) -> Any:
    """The reference, as if it were a kernel."""
    from dataclasses import replace

    return replace(reference(region, own), by=Server.OURS)


def parts(fn: Any, **options: Any) -> InParts:
    given = {"rest": "eager", "target": "h200"} | options
    return InParts(fn, BackendOptions(**given), WHY, server=ours)


def sorted_rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    rows = F.silu(F.rms_norm(x, (64,)) @ w)
    order = torch.argsort(rows.sum(-1), stable=True)
    return torch.softmax(rows[order] * 3 + 1, -1)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 64), torch.randn(64, 64)


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_regions_serve_around_what_is_no_operator_of_ours():
    fn, given = parts(sorted_rows), inputs()
    assert fn.served == Served(Server.EAGER, reason(Code.AT_FIRST_CALL, WHY))
    for _ in range(2):
        close(fn(*given), sorted_rows(*given))
    assert fn.served.by is Server.IN_PARTS
    inside, operators, why = fn.served.why.data
    assert 0 < int(inside) < int(operators)
    assert why == str(WHY)
    assert str(fn.served).startswith(f"mirage_py in parts: {inside} of {operators} operators")
    assert any("aten.sort" in line and "left to eager" in line for line in fn.lines)


def test_where_no_region_is_the_function_itself_runs():
    calls = []

    def order(x: torch.Tensor) -> torch.Tensor:
        calls.append(torch.compiler.is_compiling())
        return torch.sort(x).values

    fn = parts(order)
    x = torch.randn(7)
    for _ in range(3):
        close(fn(x), torch.sort(x).values)
    assert fn.served == Served(Server.EAGER, WHY)
    assert calls[-1] is False
    assert fn._call is order


def test_writes_and_results_that_are_arguments():
    def step(x: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> Any:
        y = F.silu(F.rms_norm(x, (64,)) * 2)
        cache.index_copy_(0, at, y[:1])
        at.add_(1)
        return y + cache.sum(0), cache, at

    fn = parts(step)
    x, cache, at = torch.randn(5, 64), torch.randn(6, 64), torch.tensor([1])
    mirror, place = cache.clone(), at.clone()
    for _ in range(3):
        found, wanted = fn(x, cache, at), step(x, mirror, place)
        close(found, wanted)
        assert found[1] is cache
        assert found[2] is at
    assert fn.served.by is Server.IN_PARTS
    close(cache, mirror)
    assert at.item() == 4


def test_what_python_does_besides_is_done_once_a_call(capsys: pytest.CaptureFixture[str]):
    seen: list[int] = []

    class Counter:
        calls = 0

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.shape[0])
        Counter.calls += 1
        y = F.silu(x * 2) + x
        print("between")  # noqa: T201  a graph ends here
        return torch.softmax(y, -1) * 2

    served, x = parts(fn), torch.randn(5, 64)
    for _ in range(3):
        close(served(x), torch.softmax(F.silu(x * 2) + x, -1) * 2)
    assert seen == [5] * 3
    assert Counter.calls == 3
    assert capsys.readouterr().out == "between\n" * 3


def test_what_depends_on_data():
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.silu(x) * 2 + x
        if y.sum() > 0:
            return torch.softmax(y, -1)
        return y[y > -0.5] * int(y.argmax())

    served = parts(fn)
    for x in (torch.rand(3, 8), -torch.rand(3, 8), torch.rand(3, 8) - 0.1, -torch.rand(3, 8)):
        close(served(x), fn(x))


def test_random_numbers_are_those_of_eager():
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.dropout(F.silu(x * 2) + 1, 0.5), -1)

    served, x = parts(fn), torch.randn(5, 64)
    for _ in range(2):
        torch.manual_seed(3)
        found = served(x), torch.rand(2)
        torch.manual_seed(3)
        close(found, (fn(x), torch.rand(2)))


def test_errors_are_the_users():
    calls = []

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        torch._dynamo.graph_break()
        y = F.silu(x * 2)
        if x.shape[0] == 3:
            raise KeyError("three")
        return torch.softmax(y @ w, -1)

    for rows, error in ((3, KeyError), (4, RuntimeError)):
        served = parts(fn)
        for _ in range(2):
            with pytest.raises(error) as told:
                served(torch.randn(rows, 5), torch.randn(6, 6))
            assert "torch._dynamo" not in type(told.value).__module__
    assert len(calls) == 4
    served = parts(fn)
    x, w = torch.randn(4, 6), torch.randn(6, 6)
    close(served(x, w), torch.softmax(F.silu(x * 2) @ w, -1))
    with pytest.raises(RuntimeError) as told:  # sizes that the first call did not have
        served(x, torch.randn(5, 5))
    assert type(told.value) is RuntimeError
    assert len(calls) == 6


def test_gradients_reach_what_is_held():
    w = torch.randn(64, 64, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(F.silu(F.rms_norm(x, (64,)) @ w)).values

    served, x = parts(fn), torch.randn(5, 64)
    for _ in range(2):
        found, wanted = (torch.autograd.grad(f(x).square().sum(), w)[0] for f in (served, fn))
        close(found, wanted)


def test_other_arguments_and_changed_state():
    held = {"scale": 2.0}

    def fn(x: torch.Tensor, *, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = torch.sort(F.silu(x * held["scale"]) + 1).values
        return y if bias is None else y + bias

    served, x = parts(fn), torch.randn(5, 64)
    close(served(x), fn(x))
    close(served(x, bias=x), fn(x, bias=x))
    held["scale"] = 3.0
    close(served(x), fn(x))
    close(served(x.double()), fn(x.double()))
    close(served(x[:, ::2]), fn(x[:, ::2]))


# -- on a GPU, with a clock of the test's own ------------------------------------------------------


class Clock:
    """Calls each candidate a few times, and says what it was told to."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.asked: list[tuple[str, ...]] = []

    def __call__(
        self, candidates: Mapping[str, CompiledGraph], restore: Callable[[], None]
    ) -> dict[str, float]:
        self.asked.append(tuple(candidates))
        for candidate in candidates.values():
            for _ in range(3):
                restore()
                candidate.call()
        return {name: self.times.get(name, 100.0) for name in candidates}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(benchmark, "clock_for", lambda _: found)
    monkeypatch.setattr(in_parts, "has_gpu_tensors", lambda *_: True)
    monkeypatch.setattr(in_parts, "dispatch_us", lambda: 0.0)
    return found


@pytest.fixture
def torch_alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Inductor with regions is eager with regions; alone it is the graph of dynamo's."""
    ran: list[str] = []

    def by_inductor(compiler: Any, module: Any, given: Any) -> Any:
        from mirage_py.dynamo.compile.eager_graphs import compiled_with_eager

        call = compiled_with_eager(compiler, module, given)

        def run(*values: Any) -> Any:
            ran.append("compiled")
            return call(*values)

        return run

    def left(module: Any, *_: Any) -> Any:
        def run(*values: Any) -> Any:
            ran.append("default")
            return module(*values)

        return run

    monkeypatch.setattr(in_parts, "compiled_by_inductor", by_inductor)
    monkeypatch.setattr(in_parts, "left_to_torch", left)
    return ran


def step(x: torch.Tensor, cache: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = F.silu(F.rms_norm(x, (64,)) @ WEIGHT)
    cache.index_copy_(0, at, y[:1])
    at.add_(1)
    return y + F.dropout(cache.sum(0), 0.5)


@pytest.mark.parametrize(
    ("effort", "times", "by"),
    [
        ("quick", {}, Server.IN_PARTS),
        ("quick", {"eager": 50.0}, Server.EAGER),
        ("full", {"compile": 50.0}, Server.TORCH_COMPILE),
        ("full", {"compile": 60.0, "eager": 50.0}, Server.EAGER),
        ("none", {"eager": 50.0}, Server.IN_PARTS),
    ],
)
def test_the_fastest_serves_and_timing_leaves_nothing_behind(
    clock: Clock, torch_alone: list[str], effort: str, times: dict[str, float], by: Server
):
    clock.times = times
    fn = parts(step, rest="inductor", effort=effort)
    x, cache, at = torch.randn(5, 64), torch.randn(6, 64), torch.tensor([1])
    mirror, place = cache.clone(), at.clone()
    for _ in range(2):
        torch.manual_seed(5)
        found = fn(x, cache, at), torch.rand(3)
        torch.manual_seed(5)
        close(found, (step(x, mirror, place), torch.rand(3)))
    close(cache, mirror)
    assert at.item() == 3
    assert fn.served.by is by
    assert (fn.served.why == WHY) is (by is not Server.IN_PARTS)
    assert [len(asked) for asked in clock.asked] == {"none": [], "quick": [2], "full": [3]}[effort]
    last = torch_alone[-1]
    assert {Server.TORCH_COMPILE: last == "default", Server.IN_PARTS: last == "compiled"}.get(
        by, fn._call is step
    )


def test_a_graph_without_regions_is_torch_compiles(
    clock: Clock, torch_alone: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        in_parts, "compiled_by_inductor", lambda _compiler, module, _given: module.forward
    )
    fn, x = parts(lambda x: torch.sort(x).values, rest="inductor"), torch.randn(8)
    close(fn(x), torch.sort(x).values)
    assert fn.served == Served(Server.TORCH_COMPILE, WHY)
    assert clock.asked == [("torch.compile", "eager")]
    assert torch_alone == []


def test_what_cannot_be_repeated_is_compiled_and_not_timed(clock: Clock, torch_alone: list[str]):
    weight = torch.nn.Parameter(torch.ones(64), requires_grad=False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        weight.add_(1)
        return torch.sort(F.silu(F.rms_norm(x, (64,)) @ WEIGHT) * weight).values

    served, x = parts(fn, rest="inductor"), torch.randn(5, 64)
    for _ in range(2):
        served(x)
    assert torch.equal(weight, torch.full((64,), 3.0))
    assert clock.asked == []
    assert torch_alone == ["compiled"] * 2
    assert served.served.by is Server.IN_PARTS


def test_a_graph_that_does_not_compile_is_eager(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(in_parts, "compiled_by_inductor", broken)
    fn, given = parts(sorted_rows, rest="inductor"), inputs()
    close(fn(*given), sorted_rows(*given))
    assert fn.served == Served(Server.EAGER, WHY)
    assert any("no compiler" in line for line in fn.lines)
    assert clock.asked == []


def test_a_lost_gpu_is_said(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    def lost(*_: Any) -> Any:
        raise LostGpuError("the GPU context is broken", launched="kernel")

    monkeypatch.setattr(in_parts, "compiled_by_inductor", lost)
    fn = parts(sorted_rows, rest="inductor")
    with pytest.raises(Exception, match="the GPU context is broken"):
        fn._graph(torch.fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)])
    assert clock.asked == []


def test_a_wait_comes_before_the_call():
    from time import perf_counter

    begun = perf_counter()
    assert graph_race.after(300.0, lambda x: (x, perf_counter()))(7)[1] - begun >= 300e-6
