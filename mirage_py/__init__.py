"""mirage_py: a tensor program as mathematics in, verified and fast GPU kernels out.

    program = mirage_py.parse(text)                       # a math spec (docs/reference/spec.md)
    program = mirage_py.trace(fn, *example_inputs)        # or a PyTorch function
    result = mirage_py.optimize(program, target="h200")   # search, verify, rank or measure
    kernel = mirage_py.load(folder)                       # a saved result, ready to call

    @mirage_py.superoptimize                              # all of it at the first call
    def f(x, g, w): ...

Everything is loaded on first use: importing the package alone costs milliseconds, and `load` never
imports the search.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirage_py.checking.check import check
    from mirage_py.dynamo.networks.exported_graph import OptimizedGraph, optimize_graph
    from mirage_py.errors import (
        CompileError,
        FormatError,
        InputError,
        LostGpuError,
        MirageError,
        MirageWarning,
        ScheduleError,
        SpecError,
        UnsupportedError,
        ValidationError,
        VerificationError,
    )
    from mirage_py.frontend.decorator import superoptimize
    from mirage_py.frontend.spec.parse import parse
    from mirage_py.frontend.torch.trace import trace
    from mirage_py.pipeline.pipeline import optimize, save
    from mirage_py.result import Result
    from mirage_py.runtime.store.plan_text import kernel_from
    from mirage_py.runtime.store.saved import load
    from mirage_py.ugraph.ir.program import Program

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "FormatError",
    "InputError",
    "LostGpuError",
    "MirageError",
    "MirageWarning",
    "OptimizedGraph",
    "Program",
    "Result",
    "ScheduleError",
    "SpecError",
    "UnsupportedError",
    "ValidationError",
    "VerificationError",
    "__version__",
    "check",
    "kernel_from",
    "load",
    "optimize",
    "optimize_graph",
    "parse",
    "save",
    "superoptimize",
    "trace",
]

# Where each name lives. Values stay lazy so that `import mirage_py` loads neither torch nor egglog.
_HOMES = {
    "CompileError": "mirage_py.errors",
    "FormatError": "mirage_py.errors",
    "InputError": "mirage_py.errors",
    "LostGpuError": "mirage_py.errors",
    "MirageError": "mirage_py.errors",
    "MirageWarning": "mirage_py.errors",
    "ScheduleError": "mirage_py.errors",
    "SpecError": "mirage_py.errors",
    "UnsupportedError": "mirage_py.errors",
    "ValidationError": "mirage_py.errors",
    "VerificationError": "mirage_py.errors",
    "OptimizedGraph": "mirage_py.dynamo.networks.exported_graph",
    "Program": "mirage_py.ugraph.ir.program",
    "Result": "mirage_py.result",
    "check": "mirage_py.checking.check",
    "kernel_from": "mirage_py.runtime.store.plan_text",
    "load": "mirage_py.runtime.store.saved",
    "optimize": "mirage_py.pipeline.pipeline",
    "optimize_graph": "mirage_py.dynamo.networks.exported_graph",
    "parse": "mirage_py.frontend.spec.parse",
    "save": "mirage_py.pipeline.pipeline",
    "superoptimize": "mirage_py.frontend.decorator",
    "trace": "mirage_py.frontend.torch.trace",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mirage_py' has no attribute '{name}'")
    # import_module and not __import__: a package may export a function that hides its module.
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
