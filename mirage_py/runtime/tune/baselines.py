"""The baselines: the user's function itself, and the same by torch.compile; their warm-up beside
other work.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mirage_py.runtime.eager.compiled import EAGER, MODES, CompiledFunction
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.eager.writing import WritingFunction
from mirage_py.runtime.numerical_check.input_store import laid_out
from mirage_py.ugraph.ir.program import Program

if TYPE_CHECKING:
    import torch

Baseline = Callable[..., Any]

_NAMES = {"none": (), "quick": ("compile",), "full": tuple(MODES)}


def baselines(
    program: Program,
    function: Baseline | None = None,
    *,
    effort: str = "quick",
    dynamic: bool = False,
) -> dict[str, Baseline]:
    """Functions of the program's inputs by name; ``function`` is the user's own, if there is one.

    ``eager`` always, ``compile`` with effort quick, ``compile_max_autotune`` too with effort full,
    and where there is no matmul: without products to tune it compiles in seconds. ``dynamic`` for
    many sizes. Compilation happens at the first call.
    """
    eager = function or torch_function(program)
    quick = effort == "quick" and not any(n.op == "matmul" for n in program.nodes)
    compiled: dict[str, Baseline] = {}
    for name in _NAMES["full" if quick else effort]:
        form = functools.partial(CompiledFunction, mode=MODES[name], dynamic=dynamic)
        compiled[name] = eager.by(form) if isinstance(eager, WritingFunction) else form(eager)
    return {EAGER: eager, **compiled}


class WarmUp:
    """Calls each function once on zeros, in a thread, beginning at once.

    A function that chooses its kernels by timing them needs the GPU for itself: call ``wait``
    before anything else is timed. What a function raises is left to its next call. The inputs live
    as long as this object, because a function may keep what it made of one under its address.
    """

    def __init__(
        self, program: Program, functions: Mapping[str, Callable[..., Any]], device: torch.device
    ) -> None:
        self.seconds: dict[str, float] = {}
        self._inputs = _zeros(program, device)
        self._functions = dict(functions)
        self._device = device
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> float:
        """Return when each was called: the seconds that the calls took together."""
        self._thread.join()
        return sum(self.seconds.values())

    def _run(self) -> None:
        import torch

        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self._device)  # each thread has its own
        # So has it this mode, and a compiled function belongs to the mode it was compiled in.
        with torch.no_grad():
            for name, function in self._functions.items():
                start = time.monotonic()
                with contextlib.suppress(Exception):
                    function(*self._inputs)
                    if on_gpu:
                        torch.cuda.synchronize(self._device)
                self.seconds[name] = time.monotonic() - start


def _zeros(program: Program, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Inputs in the layouts that are timed; zeros are right for indices too."""
    import torch

    return tuple(
        laid_out(t, torch.zeros(t.shape, dtype=getattr(torch, t.dtype.torch_name), device=device))
        for t in program.inputs
    )
