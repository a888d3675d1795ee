"""The decorator with an optimizer of the test's own: it runs the program in float64."""

from __future__ import annotations

import logging
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mirage_py.errors import InputError, MirageWarning, UnsupportedError
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction, superoptimize
from mirage_py.reasons import Code, Reason, Server, reason
from mirage_py.runtime.store.artifact import OriginalProgram

X = torch.randn(4, 6)
W = torch.randn(6, 3)


def layer(x, w, scale=2.0):
    """A layer."""
    return F.silu(x @ w) * scale


def test_serves_what_the_function_computes(optimised, interpreter):
    fn = optimised(layer)
    torch.testing.assert_close(fn(X, W), layer(X, W))
    torch.testing.assert_close(fn(X, W), interpreter.reference)
    assert interpreter.calls["layer"] == 2
    assert len(interpreter.programs) == 1


def test_looks_like_the_function(optimised):
    fn = optimised(layer)
    assert (fn.__name__, fn.__doc__, fn.__wrapped__) == ("layer", "A layer.", layer)


def test_with_and_without_parentheses():
    for decorator in (superoptimize, superoptimize(), superoptimize(effort="full")):
        assert isinstance(decorator(layer), SuperoptimizedFunction)
    assert superoptimize(effort="full", seed=3)(layer).options == CallOptions(effort="full", seed=3)
    with pytest.raises(TypeError):
        superoptimize(layer, "h200")


def test_one_search_for_each_signature(optimised, interpreter):
    fn = optimised(layer)
    fn(X, W)
    same = [
        lambda: fn(torch.randn(4, 6), W),
        lambda: fn(x=X, w=W),
        lambda: fn(X, W, 2.0),
        lambda: fn(X, scale=2.0, w=W),
    ]
    for call in same:
        call()
    assert len(interpreter.programs) == 1
    others = [
        lambda: fn(torch.randn(5, 6), W),
        lambda: fn(X, torch.randn(3, 6).T),
        lambda: fn(X.half(), W.half()),
        lambda: fn(X, W, 3.0),
        lambda: fn(X, W, 3),
    ]
    for number, call in enumerate(others):
        call()
        assert len(interpreter.programs) == 2 + number
    with torch.no_grad():
        fn(X, W)
    assert len(interpreter.programs) == 7


def test_structures_and_constants_come_back(optimised):
    def fn(x):
        y = x * 2
        return {"twice": y, "more": (y, x + 1, None, 7)}

    result = optimised(fn)(X)
    torch.testing.assert_close(result["twice"], X * 2)
    assert result["more"][0] is result["twice"]
    assert result["more"][2:] == (None, 7)


def test_the_dispatch_table_says_what_serves_what(optimised):
    fn = optimised(layer)
    assert fn.dispatch_table() == "layer: not called yet"
    fn(X, W)
    with pytest.warns(MirageWarning):
        fn(X.double(), W.double())
    doubles = "x: float64[4, 6] on cpu, w: float64[6, 3] on cpu, scale: 2.0"
    with pytest.warns(MirageWarning):
        entry = fn.entry(X.requires_grad_(), W)
    X.requires_grad_(False)
    assert (entry.served.by, entry.served.why.code) == (Server.EAGER, Code.REQUIRES_GRAD)
    assert fn.dispatch_table().splitlines()[:3] == [
        "layer:",
        "  (x: f32[4, 6] on cpu, w: f32[6, 3] on cpu, scale: 2.0) -> mirage_py: kernel 1",
        f"  ({doubles}) -> eager: input 'x' is of torch.float64 (kernels accumulate in float32)",
    ]


def test_a_function_that_nothing_beats_is_no_optimised_kernel():
    fn = SuperoptimizedFunction(layer, None, lambda _program, _inputs, itself: itself)
    torch.testing.assert_close(fn(X, W), layer(X, W))
    entry = fn.entry(X, W)
    assert entry.served == (Server.EAGER, Reason(Code.ORIGINAL_FASTER))
    assert entry.source == "fallback"
    assert "-> eager: the original program is faster" in fn.dispatch_table()
    assert "served by: eager: the original program is faster" in fn.explain(X, W)


def test_what_an_artifact_without_kernels_gives_is_eager(optimised, interpreter, tmp_path):
    itself = SuperoptimizedFunction(layer, None, lambda _program, _inputs, itself: itself)
    itself.save(tmp_path / "out", X, W)
    fn = optimised(layer)
    fn.load(tmp_path / "out")
    torch.testing.assert_close(fn(X, W), layer(X, W))
    assert interpreter.programs == []
    assert fn.entry(X, W).served.by is Server.EAGER


def test_torch_compile_serves_what_an_optimizer_says(tmp_path, monkeypatch):
    compiled = []

    def compile_(function, **options):
        compiled.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    report = {"served": {"baseline": "compile", **reason(Code.NONE_VERIFIED).document()}}

    def fn(x, scale=1.0):
        y = x * scale
        return {"y": y, "z": (y + 1, scale)}

    kernel = SuperoptimizedFunction(
        fn, None, lambda _program, _inputs, itself: OriginalProgram({"eager": itself}, report)
    )
    kernel.prepare(X)
    assert compiled == [{"dynamic": False, "mode": None}]
    for _ in range(2):  # the second is a repeated call
        x = torch.randn(4, 6)
        found = kernel(x)
        torch.testing.assert_close(found["y"], x)
        torch.testing.assert_close(found["z"], (x + 1, 1.0))
    assert "-> torch.compile: no family passed verification" in kernel.dispatch_table()
    assert kernel.entry(X).served == (Server.TORCH_COMPILE, reason(Code.NONE_VERIFIED))
    # A gradient is the function's own affair.
    x.requires_grad_()
    with pytest.warns(MirageWarning, match="requires grad"):
        y = kernel(x)["y"]
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(4, 6))
    kernel.save(tmp_path / "out", X)
    again = SuperoptimizedFunction(fn, None, lambda *_: pytest.fail("searched"))
    again.load(tmp_path / "out")
    torch.testing.assert_close(again(X)["y"], X)
    assert again.entry(X).served.by is Server.TORCH_COMPILE
    assert len(compiled) == 2


def test_where_torch_compile_fails_the_function_itself_serves(monkeypatch):
    def broken(*_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda _function, **_: broken)
    report = {"served": {"baseline": "compile", **reason(Code.NONE_VERIFIED).document()}}
    kernel = SuperoptimizedFunction(
        layer, None, lambda _program, _inputs, itself: OriginalProgram({"eager": itself}, report)
    )
    with pytest.warns(MirageWarning, match="no compiler"):
        torch.testing.assert_close(kernel(X, W), layer(X, W))
    torch.testing.assert_close(kernel(X, W), layer(X, W))
    assert kernel.entry(X, W).served.by is Server.EAGER


def test_unsupported_functions_run_as_they_are_with_one_warning(optimised, interpreter):
    def fn(x):
        return x.median(-1).values

    kernel = optimised(fn)
    with pytest.warns(MirageWarning) as caught:
        torch.testing.assert_close(kernel(X), fn(X))
    message = str(caught[0].message)
    assert message.startswith("fn falls back to eager: ")
    assert "f32[4, 6]" not in message.splitlines()[0]
    assert "aten.median" in message
    assert "why:" in message
    assert "try:" in message
    assert caught[0].filename == __file__
    kernel(X)  # warnings are errors here: there is no second one
    with pytest.warns(MirageWarning):
        kernel(X[:2])
    assert interpreter.programs == []


def test_strict_raises(optimised):
    with pytest.raises(UnsupportedError, match=r"aten\.median"):
        optimised(lambda x: x.median(-1).values, strict=True)(X)
    with pytest.raises(UnsupportedError, match="requires grad"):
        optimised(layer, strict=True)(X.clone().requires_grad_(), W)


def test_gradients_go_through_the_function(optimised, interpreter):
    fn = optimised(layer)
    x = X.clone().requires_grad_()
    with pytest.warns(MirageWarning, match="requires grad"):
        fn(x, W).sum().backward()
    assert x.grad is not None
    fn(x, W).sum().backward()
    assert interpreter.programs == []
    with torch.no_grad():
        fn(x, W)
    assert interpreter.calls["layer"] == 1


def test_parameters_that_want_gradients_count_too(optimised, interpreter):
    linear = nn.Linear(6, 2)
    fn = optimised(linear)
    with pytest.warns(MirageWarning, match="requires grad"):
        fn(X).sum().backward()
    assert linear.weight.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(fn(X), linear(X))
    assert interpreter.calls["Linear"] == 1


def test_captured_tensors_are_read_at_every_call(optimised, interpreter):
    held = {"w": torch.randn(6, 3)}

    def fn(x):
        return x @ held["w"]

    kernel = optimised(fn)
    kernel(X)
    held["w"].mul_(3)
    torch.testing.assert_close(kernel(X), fn(X))
    held["w"] = torch.randn(6, 3)
    torch.testing.assert_close(kernel(X), fn(X))
    assert len(interpreter.programs) == 1
    held["w"] = torch.randn(6, 5)
    torch.testing.assert_close(kernel(X), fn(X))
    assert len(interpreter.programs) == 2


def test_an_optimizer_that_fails_costs_a_warning(interpreter):
    def broken(program, inputs, fallback):
        raise RuntimeError("out of luck")

    with pytest.warns(MirageWarning, match="out of luck"):
        torch.testing.assert_close(SuperoptimizedFunction(layer, None, broken)(X, W), layer(X, W))


def test_a_kernel_that_fails_costs_a_warning():
    def bad_kernel(program, inputs, fallback):
        def kernel(*tensors):
            raise RuntimeError("illegal access")

        return kernel

    fn = SuperoptimizedFunction(layer, None, bad_kernel)
    with pytest.warns(MirageWarning, match="illegal access"):
        torch.testing.assert_close(fn(X, W), layer(X, W))
    fn(X, W)
    assert "-> eager: RuntimeError: illegal access" in fn.dispatch_table()


@pytest.mark.parametrize(
    "wrong",
    [{"effort": "max"}, {"target": "h300"}, {"backend": "metal"}, {"seed": -1}, {"budget": -1.0},
     {"budget": float("nan")}, {"target": None}, {"target": 5}, {"backend": None}, {"effort": 1},
     {"seed": "0"}, {"seed": 1.5}, {"seed": True}, {"budget": "10"}, {"budget": True},
     {"strict": "yes"}, {"cache": None}, {"shapes": "elastic"}, {"shapes": 3}, {"dynamic": 5},
     {"dynamic": {"x": 0}}, {"dynamic": {0: (0,)}}, {"dynamic": {"x": {"0": "n"}}},
     {"edges": 5}, {"edges": ("64",)}, {"edges": (64, 32), "shapes": "bucketed"}, {"plan": 5}],
    ids=str,
)  # fmt: skip
def test_an_option_that_there_is_none_of_is_an_error_at_once(wrong):
    with pytest.raises(InputError):
        superoptimize(**wrong)


@pytest.mark.parametrize("wrong", [5, "layer", None], ids=str)
def test_what_is_no_function_is_an_error_at_once(wrong):
    with pytest.raises((InputError, TypeError)):
        superoptimize(seed=1)(wrong)


def test_without_a_gpu_the_function_itself_runs():
    fn = superoptimize(layer)
    with pytest.warns(MirageWarning, match="on cpu"):
        torch.testing.assert_close(fn(X, W), layer(X, W))
    fn(X, W)
    with pytest.raises(UnsupportedError, match="NVIDIA GPU"):
        superoptimize(strict=True)(layer)(X, W)


def test_wrong_arguments_raise_as_the_function_would(optimised):
    with pytest.raises(TypeError, match="missing a required argument: 'w'"):
        optimised(layer)(X)
    with pytest.raises(TypeError):
        optimised(layer)(X, W, 1.0, 2.0)


def test_arguments_without_a_hash_cost_one_warning(optimised):
    fn = optimised(lambda x, shape: x.view(tuple(shape)) * 2)
    with pytest.warns(MirageWarning, match="cannot be part of a signature"):
        fn(X, bytearray([6, 4]))
    fn(X, bytearray([6, 4]))
    fn(X, [6, 4])
    fn(X, (3, 8))


def test_methods(optimised, interpreter):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            return self.linear(x) + 1

    Model.fast = optimised(Model.forward)
    first, second = Model().requires_grad_(False), Model().requires_grad_(False)
    for model in (first, second, first):
        torch.testing.assert_close(model.fast(X), model(X))
    assert len(interpreter.programs) == 2
    # The same program twice: an optimizer that keeps results by program searches once.
    assert interpreter.programs[0].digest == interpreter.programs[1].digest


def test_training_mode_is_part_of_the_signature(optimised, interpreter):
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).requires_grad_(False).eval()
    fn = optimised(model)
    torch.testing.assert_close(fn(X), model(X))
    model.train()
    with pytest.warns(MirageWarning, match="dropout"):
        fn(X)
    model.eval()
    fn(X)
    assert interpreter.calls["Sequential"] == 2


def test_autocast_is_part_of_the_signature(optimised, interpreter):
    fn = optimised(layer)
    fn(X, W)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fn(X, W)
    assert ["cast" in [n.op for n in p.nodes] for p in interpreter.programs] == [False, True]


def test_inside_other_transforms_there_is_only_the_function(optimised, interpreter):
    fn = optimised(layer)
    batch = torch.randn(2, 4, 6)
    torch.testing.assert_close(
        torch.vmap(fn, (0, None))(batch, W), torch.stack([layer(x, W) for x in batch])
    )
    torch.func.grad(lambda x: fn(x, W).sum())(X)
    torch.fx.symbolic_trace(lambda x, w: fn(x, w) + 1)
    torch.export.export(nn.Sequential(Wrapper(fn)), (X,), strict=False)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fn(mode.from_tensor(X), mode.from_tensor(W))
    assert interpreter.programs == []


def test_inside_torch_compile_there_is_only_the_function(optimised, interpreter):
    fn = optimised(layer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        compiled = torch.compile(lambda x, w: fn(x, w) + 1, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(X, W), layer(X, W) + 1)
    assert interpreter.programs == []


def test_what_another_thread_compiles_changes_no_call(optimised, interpreter):
    """torch says in every thread that something is compiled: calls went to the function."""
    fn, results = optimised(layer), []

    def backend(graph, _):
        calls = threading.Thread(target=lambda: results.extend(fn(X, W) for _ in range(2)))
        calls.start()
        calls.join()
        return graph

    torch.compile(lambda x: x + 1, backend=backend)(torch.randn(3))
    assert interpreter.calls["layer"] == len(results) == 2
    for result in results:
        torch.testing.assert_close(result, layer(X, W))


class Wrapper(nn.Module):
    def __init__(self, fn) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x, W)


def test_threads_search_once(optimised, interpreter):
    fn = optimised(layer)
    results = []
    threads = [threading.Thread(target=lambda: results.append(fn(X, W))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(interpreter.programs) == 1


def test_prepare_searches_and_calls_nothing(optimised, interpreter):
    fn = optimised(layer)
    fn.prepare(X, W)
    assert len(interpreter.programs) == 1
    assert interpreter.calls["layer"] == 0


def test_nothing_is_searched_inside_a_cuda_graph(optimised, interpreter, monkeypatch):
    fn = optimised(layer)
    monkeypatch.setattr("mirage_py.frontend.refused_calls.is_capturing", lambda: True)
    with pytest.warns(MirageWarning, match="inside a CUDA graph"):
        fn(X, W)
    fn(X, W)
    assert interpreter.programs == []
    monkeypatch.undo()
    fn(X, W)
    assert interpreter.calls["layer"] == 1


def original(baseline: str, function=None):
    """An optimizer that finds nothing faster than a baseline."""
    report = {"served": {"baseline": baseline, **reason(Code.NONE_VERIFIED).document()}}

    def find(_program, _inputs, itself):
        functions = {"eager": itself} if function is None else {"eager": itself, baseline: function}
        return OriginalProgram(functions, report)

    return find


def test_nothing_lies_between_a_call_and_the_function_that_serves_it(monkeypatch):
    monkeypatch.setattr(OriginalProgram, "__call__", lambda *_: pytest.fail("called"))
    served = SuperoptimizedFunction(layer, None, original("eager"))
    for scale in (2.0, 2.0, 3.0, 3.0):
        torch.testing.assert_close(served(X, W, scale=scale), layer(X, W, scale))
    assert served.entry(X, W).direct is layer
    assert served.entry(X, W).served.by is Server.EAGER


def test_what_was_compiled_to_be_timed_serves_where_it_takes_the_same():
    calls = []

    def compiled(*inputs):
        calls.append(inputs)
        return layer(*inputs)

    def plain(x, w):
        return layer(x, w)

    served = SuperoptimizedFunction(plain, None, original("compile", compiled))
    for _ in range(2):
        torch.testing.assert_close(served(X, W), layer(X, W))
    assert [len(given) for given in calls] == [2, 2]
    assert served.entry(X, W).direct is compiled


def test_torch_compile_takes_the_arguments_of_a_call(monkeypatch):
    compiled = []

    def compile_(function, **_):
        compiled.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    served = SuperoptimizedFunction(layer, None, original("compile"))
    for scale in (2.0, 2.0, 3.0):
        torch.testing.assert_close(served(X, w=W, scale=scale), layer(X, W, scale))
    # One for each signature, the function inside of it called as the user calls it.
    assert len(compiled) == 2
    assert served.entry(X, W).served.by is Server.TORCH_COMPILE


def test_what_serves_a_signature_is_logged(optimised, caplog):
    def twice(x):
        return x * 2

    with caplog.at_level(logging.INFO, logger="mirage_py.frontend"):
        optimised(twice)(X)
    (record,) = caplog.records
    assert record.getMessage().startswith("twice(x: f32[4, 6] on cpu) -> ")
