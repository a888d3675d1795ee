"""Models and functions compiled with the backend, regions as their programs in plain PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from mirage_py.dynamo.backend import mirage_py

OPTIONS = {"rest": "eager", "on_cpu": "reference", "target": "h200"}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiled() -> Callable[..., Any]:
    """``compiled(fn, dynamic=..., **options)``: with torch.compile and this backend."""

    def compile_(fn: Any, *, dynamic: bool | None = None, **options: Any) -> Any:
        return torch.compile(fn, backend=mirage_py, dynamic=dynamic, options=OPTIONS | options)

    return compile_


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """``lines(word)``: what the backend has logged so far, the lines that hold the word."""
    caplog.set_level(logging.INFO, logger="mirage_py.dynamo")
    return lambda word: [r.getMessage() for r in caplog.records if word in r.getMessage()]


@pytest.fixture
def traced() -> Callable[..., torch.fx.GraphModule]:
    """``traced(fn, *inputs)``: the ATen graph that AOTAutograd would hand over for inference."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from mirage_py.dynamo.compile.decompositions import decompositions

    def trace(fn: Callable[..., Any], *inputs: Any, symbolic: bool = False) -> Any:
        mode = "symbolic" if symbolic else "fake"
        with torch.no_grad():
            return make_fx(fn, decompositions(), tracing_mode=mode)(*inputs)

    return trace
