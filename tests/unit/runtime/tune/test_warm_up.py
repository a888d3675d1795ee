"""Baselines are called once before anything is timed, whatever they do."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from plans import scale_program

from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.eager.writing import WritingFunction
from mirage_py.runtime.tune import baselines
from mirage_py.runtime.tune.baselines import WarmUp

NAMES = ("eager", "compile", "theirs")


def test_each_is_called_once_without_gradients():
    program = scale_program(4, 8)
    calls = []

    def works(*inputs: torch.Tensor) -> None:
        calls.append(([x.shape for x in inputs], torch.is_grad_enabled()))
        time.sleep(0.05)

    def fails(*inputs: torch.Tensor) -> None:
        raise ValueError("not today")

    warm_up = WarmUp(program, {"fails": fails, "works": works}, torch.device("cpu"))
    assert warm_up.wait() >= 0.05
    assert calls == [([t.shape for t in program.inputs], False)]
    assert list(warm_up.seconds) == ["fails", "works"]


def test_what_is_compiled_here_is_not_compiled_again_when_it_is_timed():
    program = scale_program(4, 8)
    compiled = 0

    def backend(module, inputs):
        nonlocal compiled
        compiled += 1
        return module.forward

    function = torch.compile(lambda x: torch.softmax(x, -1), backend=backend, dynamic=False)
    WarmUp(program, {"compiled": function}, torch.device("cpu")).wait()
    (x,) = program.inputs
    with torch.no_grad():
        function(laid_out(x, torch.ones(x.shape, dtype=getattr(torch, x.dtype.torch_name))))
    assert compiled == 1


def test_torch_compile_is_not_waited_for_without_end():
    program = scale_program(4, 8)
    done, calls = threading.Event(), []

    def called(name: str):
        return lambda *_: calls.append(name)

    def compiles(*_: torch.Tensor) -> None:
        done.wait()

    functions = {"eager": called("eager"), "compile": compiles, "theirs": called("theirs")}
    warm_up = WarmUp(program, functions, torch.device("cpu"))
    warm_up.wait(most_s=0.0)
    assert warm_up.late == ("compile",)
    # What has not begun by the end is not called.
    warm_up.end()
    done.set()
    warm_up.wait()
    assert (warm_up.late, calls) == ((), ["eager"])
    assert dict(warm_up) == functions


def test_what_is_held_is_called_when_it_is_asked_for():
    calls: list[str] = []
    functions = {n: lambda *_, n=n: calls.append(n) for n in ("eager", "compile")}
    warm_up = WarmUp(scale_program(4, 8), functions, torch.device("cpu"), held=("compile", "x"))
    assert not warm_up.is_done
    assert calls == []
    warm_up.begin()
    warm_up.begin()
    warm_up.wait()
    assert (warm_up.held, warm_up.late, calls) == (("compile",), (), ["eager"])
    warm_up.go_on()
    warm_up.wait()
    assert (warm_up.held, warm_up.late, calls) == ((), (), ["eager", "compile"])


def test_what_writes_to_tensors_of_the_user_has_ended_when_the_user_goes_on():
    program = scale_program(4, 8)
    begun, done, ended = threading.Event(), threading.Event(), []

    def writes(*_: torch.Tensor) -> None:
        begun.set()
        done.wait()
        ended.append(True)

    form = WritingFunction(writes, lambda timed, inputs: timed(*inputs), print, "writes")
    for last in (lambda w: w.wait(most_s=0.0), lambda w: w.end()):
        begun.clear()
        done.clear()
        ended.clear()
        warm_up = WarmUp(program, {"compile": form}, torch.device("cpu"))
        warm_up.begin()
        begun.wait()
        threading.Timer(0.02, done.set).start()
        last(warm_up)
        assert ended == [True]
        assert warm_up.late == ()


def test_no_input_takes_the_address_of_one_that_a_function_remembers():
    program = scale_program(4, 8)
    seen = []
    warm_up = WarmUp(program, {"f": lambda x: seen.append(x.data_ptr())}, torch.device("cpu"))
    warm_up.wait()
    fresh = [torch.zeros(program.inputs[0].shape, dtype=torch.half) for _ in range(8)]
    assert seen[0] not in [t.data_ptr() for t in fresh]


def test_inductor_takes_turns_while_torch_compile_is_called_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
):
    seen: dict[str, bool] = {}
    functions = {n: lambda *_, n=n: seen.update({n: warm_up.takes_turns}) for n in NAMES}
    warm_up = WarmUp(scale_program(4, 8), functions, torch.device("cpu"))
    assert not warm_up.takes_turns
    warm_up.wait()
    assert seen == {"eager": False, "compile": True, "theirs": False}
    assert warm_up.takes_turns
    # An Inductor that measures elsewhere is not known to.
    monkeypatch.setattr(baselines, "can_take_turns", lambda: False)
    seen.clear()
    warm_up = WarmUp(scale_program(4, 8), functions, torch.device("cpu"))
    warm_up.wait()
    assert seen == dict.fromkeys(NAMES, False)
