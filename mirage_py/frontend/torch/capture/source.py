"""The source line in the user's code that an operator came from, for error messages."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.fx import Node
from torch.fx import traceback as fx_traceback
from torch.overrides import TorchFunctionMode

# Frames of these files are machinery: the user's line is the innermost frame outside them.
_MACHINERY = (
    f"{Path(torch.__file__).parent}{os.sep}",
    f"{Path(__file__).parents[1]}{os.sep}",
    str(Path(contextlib.__file__)),
    str(Path(functools.__file__)),
    "<",
)
# From here on outwards it is no code of the function, which had no frame outside torch then.
_CALLERS = f"{Path(__file__).parents[3]}{os.sep}"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


_MOST_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's code."""

    file: str
    line: int

    @property
    def code(self) -> str:
        """The text of the line, without indentation; empty where the file cannot be read. Of a long
        one the beginning.
        """
        text = linecache.getline(self.file, self.line).strip()
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class SourceRecorder(TorchFunctionMode):
    """While active, every graph node remembers the line of the torch call that made it.

    torch.export on its own keeps only lines of methods called ``forward``.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        place = _user_frame(sys._getframe(1))  # noqa: SLF001  the only way to the caller's line
        with fx_traceback.preserve_node_meta():
            if place is not None:
                fx_traceback.set_stack_trace([f'File "{place.file}", line {place.line}'])
            return func(*args, **(kwargs or {}))


def of_node(node: Node) -> SourceLine | None:
    """The user's line that a graph node came from, if it is known."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    outside = [f for f in frames if not f["file"].startswith(_MACHINERY)]
    if not outside:
        return None
    return SourceLine(outside[-1]["file"], int(outside[-1]["line"]))


def of_error(error: BaseException) -> SourceLine | None:
    """The innermost line of the user's code in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if not f.filename.startswith((*_MACHINERY, _CALLERS))]
    if not outside or outside[-1].lineno is None:
        return None
    return SourceLine(outside[-1].filename, outside[-1].lineno)


def of_function(fn: Callable[..., Any]) -> str:
    """``file:line`` of the definition of a function or of a module's forward, else its name."""
    forward = type(fn).forward if isinstance(fn, torch.nn.Module) else fn
    code = getattr(forward, "__code__", None)
    if code is None:
        return str(getattr(fn, "__name__", type(fn).__name__))
    return f"{code.co_filename}:{code.co_firstlineno}"


def _user_frame(frame: FrameType | None) -> SourceLine | None:
    while frame is not None and frame.f_code.co_filename.startswith(_MACHINERY):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_CALLERS):
        return None
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)
