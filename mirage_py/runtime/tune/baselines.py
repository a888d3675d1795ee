"""The baselines: the user's function itself, and the same by torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirage_py.runtime.eager.eager import torch_function
from mirage_py.ugraph.ir.program import Program

Baseline = Callable[..., Any]


def baselines(
    program: Program, function: Baseline | None = None, *, effort: str = "quick"
) -> dict[str, Baseline]:
    """Functions of the program's inputs by name; ``function`` is the user's own, if there is one.

    ``eager`` always, ``compile`` with effort quick, ``compile_max_autotune`` too with effort full.
    Compilation happens at the first call.
    """
    import torch

    eager = function or torch_function(program)
    found = {"eager": eager}
    if effort != "none":
        found["compile"] = torch.compile(eager, dynamic=False)
    if effort == "full":
        # Without CUDA graphs of its own: the timing puts every entry in one.
        found["compile_max_autotune"] = torch.compile(
            eager, dynamic=False, mode="max-autotune-no-cudagraphs"
        )
    return found
