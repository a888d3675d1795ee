"""The original program by torch.compile: a baseline, and what serves where it is the fastest."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from mirage_py.reasons import Server

EAGER = "eager"
# Baselines that are torch.compile, with its mode. Without CUDA graphs of its own: the timing puts
# every entry in one, and what serves has to leave a caller's memory alone.
MAX_AUTOTUNE = "compile_max_autotune"
MODES: Mapping[str, str | None] = {
    "compile": None,
    MAX_AUTOTUNE: "max-autotune-no-cudagraphs",
}


class CompiledFunction:
    """A function of tensors by torch.compile, which compiles at the first call.

    torch.compile compiles a code object only so many times (``recompile_limit``), and then runs it
    as it is, without a word to the caller. Many programs come from one closure of ours, so each
    of these has a code object of its own.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        mode: str | None = None,
        dynamic: bool | None = False,
        backend: Callable[..., Any] | None = None,
    ) -> None:
        self._function = function
        self._how: dict[str, Any] = {"dynamic": dynamic, "mode": mode}
        if backend is not None:
            self._how = {"dynamic": dynamic, "backend": backend}

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call it."""
        return self._compiled(*inputs, **named)

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        import torch

        function = self._function

        def call(*inputs: Any, **named: Any) -> Any:
            return function(*inputs, **named)

        own = types.FunctionType(
            call.__code__.replace(), call.__globals__, closure=call.__closure__
        )
        return torch.compile(own, **self._how)


def original_of(report: Mapping[str, Any]) -> str:
    """The baseline that serves where a report has no plan; ``eager`` where it does not say."""
    name = (report.get("served") or {}).get("baseline")
    return str(name) if name in MODES else EAGER


def server_of(name: str) -> Server:
    """What serves where a baseline does."""
    return Server.TORCH_COMPILE if name in MODES else Server.EAGER


def serving(
    function: Callable[..., Any], report: Mapping[str, Any], *, dynamic: bool = False
) -> Callable[..., Any]:
    """The original program as a report without a plan says that it is served: ``function`` itself,
    or that by torch.compile.
    """
    name = original_of(report)
    if name == EAGER:
        return function
    return CompiledFunction(function, mode=MODES[name], dynamic=dynamic)
