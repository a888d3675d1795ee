"""Floats that a module holds (an epsilon, a scale), as numbers of the graph.

With ``dynamic=True`` Dynamo makes an input of every float, a tensor of float64 on the CPU, and has
integers of modules be numbers. A kernel cannot read that tensor, and each is made anew at every
call. So the trace begins again with the module's floats as numbers too, which are guarded: the way
that torch has for floats that it cannot make tensors of. Arguments of the user stay inputs, and so
does a float of a module that has changed since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule

# By the frame that is compiled and the float's name in it: the value that it was a number with.
_NUMBERS: dict[tuple[Any, str], float] = {}
# Symbols that Dynamo was told to have numbers for, while it compiles a frame.
_TOLD: dict[Any, list[str]] = {}


@contextlib.contextmanager
def held_floats_as_numbers(module: GraphModule) -> Iterator[None]:
    """Around the compilation of a graph of Dynamo's, which is traced again where floats of modules
    are inputs of it: TensorifyScalarRestartAnalysis is for Dynamo.
    """
    try:
        from torch._dynamo.exc import TensorifyScalarRestartAnalysis
        from torch._dynamo.symbolic_convert import TensorifyState
    except ImportError:  # an older torch has no such inputs
        yield
        return
    frame, attempt = _compile_id()
    told = _TOLD.setdefault(attempt, [])
    if not told:
        told += _symbols(module, frame)
        for symbol in told:
            TensorifyState.specialize(symbol)
        if told:
            raise TensorifyScalarRestartAnalysis
    yield
    # The next frame may have the same names for other floats.
    TensorifyState.force_specializations.difference_update(_TOLD.pop(attempt))


def _symbols(module: GraphModule, frame: Any) -> list[str]:
    """Of floats that are to be numbers."""
    return [
        symbol
        for name, symbol, value in _held_floats(module)
        if _NUMBERS.setdefault((frame, name), value) == value
    ]


def _held_floats(module: GraphModule) -> Iterator[tuple[str, str, float]]:
    """The name, the symbol and the value of each."""
    for node in module.graph.nodes:
        if node.op != "placeholder":
            break
        source = getattr(node.meta.get("grapharg"), "source", None)
        guard_source = getattr(source, "guard_source", None)
        if source is None or guard_source is None or not _is_of_module(guard_source):
            continue
        reads = [u for u in node.users if u.target == "item"]
        symbol = getattr(getattr(node.meta.get("example_value"), "item_memo", None), "node", None)
        if symbol is None or not reads or len(reads) < len(node.users):
            continue
        # The symbol, also where it was replaced by its value.
        expression, value = symbol._expr, symbol.hint  # noqa: SLF001
        if isinstance(value, float) and hasattr(expression, "name"):
            named = source.name() if callable(source.name) else source.name
            yield str(named), str(expression.name), value


def _is_of_module(guard_source: Any) -> bool:
    asked = guard_source() if callable(guard_source) else guard_source
    return bool(asked.is_unspecialized_nn_module() or asked.is_specialized_nn_module())


def _compile_id() -> tuple[Any, Any]:
    """Of the frame, and of this compilation of it."""
    from torch._guards import CompileContext

    found = CompileContext.current_compile_id()
    return getattr(found, "frame_id", None), found
