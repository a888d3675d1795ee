"""The original program by torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from mirage_py.reasons import Server
from mirage_py.runtime.eager import compiled
from mirage_py.runtime.eager.compiled import CompiledFunction, original_of, server_of, serving


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounter:
    """What torch.compile is given, instead of Inductor."""
    made = CompileCounter()
    usual = torch.compile

    def compile_(function: Any, *, mode: str | None, **options: Any) -> Any:
        del mode
        return usual(function, backend=made, **options)

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", compile_)
    return made


def test_each_program_is_compiled_however_many_there_are(counter: CompileCounter):
    def times(factor: float) -> Any:
        return lambda x: x * factor

    x = torch.randn(3)
    made = [CompiledFunction(times(k)) for k in range(12)]
    assert counter.frame_count == 0  # only when it is called
    for _ in range(2):
        for k, function in enumerate(made):
            torch.testing.assert_close(function(x), x * k)
    assert counter.frame_count == 12  # beyond torch's limit for one code object, which is 8


def test_many_sizes_are_one_function(counter: CompileCounter):
    function = CompiledFunction(torch.relu, dynamic=True)
    for size in range(2, 14):
        x = torch.randn(size, 4)
        torch.testing.assert_close(function(x), torch.relu(x))
    assert counter.frame_count == 1


def test_what_a_report_says_serves(monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda f, **options: asked.append(options) or f)
    for held, name, mode in (
        ({}, "eager", None),
        ({"served": {"by": "torch.compile", "baseline": "compile"}}, "compile", None),
        (
            {"served": {"baseline": "compile_max_autotune"}},
            "compile_max_autotune",
            "max-autotune-no-cudagraphs",
        ),
        ({"served": {"baseline": "anything"}}, "eager", None),
    ):
        assert original_of(held) == name
        found = serving(torch.relu, held)
        assert (found is torch.relu) is (name == "eager")
        assert server_of(name) is (Server.EAGER if name == "eager" else Server.TORCH_COMPILE)
        assert found(torch.tensor(-1.0)) == 0.0
        if name != "eager":
            assert asked.pop() == {"dynamic": False, "mode": mode}
    assert set(compiled.MODES) == {"compile", "compile_max_autotune"}
