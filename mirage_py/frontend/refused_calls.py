"""Reasons why a call falls back to eager, and the line that a warning points to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.reasons import Code

_OWN_FILES = str(Path(__file__).parent)


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def in_cuda_graph() -> UnsupportedError:
    """The first call of a signature is where nothing may be prepared."""
    return UnsupportedError(
        "this signature is met for the first time inside a CUDA graph",
        why="nothing is searched, compiled or timed during capture",
        repair="call it once before capture, or call .prepare(...) with the same arguments",
        code=Code.INSIDE_CUDA_GRAPH,
    )


def unsteady() -> UnsupportedError:
    """What a trace has to hold to is never the same for long."""
    return UnsupportedError(
        "what the function reads from elsewhere keeps changing",
        why="numbers, flags and fields of objects are part of a kernel: each state needs its own",
        repair="pass what changes as a tensor argument",
        code=Code.UNSTEADY,
    )


def changing_numbers() -> UnsupportedError:
    """A number among the arguments is another in every call."""
    return UnsupportedError(
        "numbers among the arguments keep changing",
        why="a number is part of a kernel: each needs its own",
        repair="pass what changes as a tensor argument",
    )


def unhashable(error: TypeError) -> UnsupportedError:
    """An argument has no hash."""
    return UnsupportedError(
        f"an argument cannot be part of a signature: {error}",
        why="kernels are cached by the values of all arguments that are not tensors",
        repair="pass tensors (torch.from_numpy of an array), numbers, strings, or tuples of them",
        code=Code.UNHASHABLE,
    )


def check_servable(tensors: Sequence[torch.Tensor], *, needs_gpu: bool) -> None:
    """UnsupportedError for arguments that no kernel can serve."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise UnsupportedError(
            "an argument requires grad",
            why="kernels compute forward only, and the gradient would be lost",
            repair="call it under torch.no_grad() where no gradient is needed",
            code=Code.REQUIRES_GRAD,
        )
    devices = list(dict.fromkeys(t.device for t in tensors))
    if len(devices) > 1:
        raise UnsupportedError(
            f"the arguments are on several devices: {', '.join(map(str, devices))}",
            why="a kernel runs on one",
            repair=f"move all of them to {devices[0]}",
            code=Code.SEVERAL_DEVICES,
        )
    if needs_gpu and devices and devices[0].type != "cuda":
        raise UnsupportedError(
            f"the arguments are on {devices[0]}",
            why="kernels run on an NVIDIA GPU",
            repair="move the arguments to one, or search without one: mirage-py superoptimize",
            code=Code.NOT_ON_A_GPU,
        )


def callers_level() -> int:
    """How far above the caller of this function the first frame outside the front end is."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        frame, level = frame.f_back, level + 1
    return level
