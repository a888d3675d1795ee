"""The check of a kernel's inputs: shapes, types and layouts were fixed when it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirage_py.errors import InputError
from mirage_py.runtime.base.layouts import write_once
from mirage_py.runtime.compile.compile import POINTER_ALIGNMENT_BYTES
from mirage_py.runtime.launch.tensor_guard import has_tangents
from mirage_py.ugraph.ir.program import Tensor

if TYPE_CHECKING:
    import torch


class ExpectedInput:
    """One input of a kernel: checks a tensor and brings it into the expected layout."""

    def __init__(self, tensor: Tensor) -> None:
        import torch

        self.tensor = tensor
        self.shape = tensor.shape
        self.strides = tensor.element_strides
        self.layout = torch.strided
        self.dtype: torch.dtype = getattr(torch, tensor.dtype.torch_name)

    def accept(self, value: torch.Tensor, device: torch.device) -> torch.Tensor:
        """``value`` itself when it lies as expected, else a copy that does. Raises InputError."""
        if (
            value.shape != self.shape
            or value.dtype != self.dtype
            or value.device != device
            or value.layout != self.layout
        ):
            raise self._refusal(value, device)
        if (
            value.data_ptr() % POINTER_ALIGNMENT_BYTES == 0
            and (value.stride() == self.strides or self._same_places(value.stride()))
            # A view that torch negates as it is read: memory holds the opposite numbers.
            and not value.is_neg()
        ):
            return value
        return self._copied(value)

    def _same_places(self, strides: tuple[int, ...]) -> bool:
        """The stride of an axis of extent 1 says nothing."""
        return all(
            extent == 1 or have == want
            for extent, have, want in zip(self.shape, strides, self.strides, strict=True)
        )

    def _copied(self, value: torch.Tensor) -> torch.Tensor:
        import torch

        if not self._same_places(value.stride()) and any(
            e > 1 and s == 0 for e, s in zip(self.shape, self.strides, strict=True)
        ):
            raise InputError(
                f"'{self.tensor.name}' has strides {value.stride()}",
                where="kernel input",
                why=f"the kernel was made for strides {self.strides}, which no copy can have",
                repair="pass it expanded as it was when the kernel was made",
            )
        fresh = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=value.device)
        write_once(fresh, value)
        return fresh

    def _refusal(self, value: torch.Tensor, device: torch.device) -> InputError:
        name = self.tensor.name
        where = "kernel input"
        if value.layout != self.layout:
            return InputError(
                f"'{name}' is a {value.layout} tensor", where=where, repair="pass x.to_dense()"
            )
        if tuple(value.shape) != self.shape:
            return InputError(
                f"'{name}' has shape {list(value.shape)}",
                where=where,
                why=f"the kernel was made for {list(self.shape)}",
                repair="optimise the program for this shape",
            )
        if value.dtype != self.dtype:
            return InputError(
                f"'{name}' has type {value.dtype}",
                where=where,
                why=f"the kernel was made for {self.dtype}",
                repair=f"pass x.to({self.dtype}), or optimise the program for this type",
            )
        return InputError(
            f"'{name}' is on {value.device}",
            where=where,
            why=f"the other inputs are on {device}",
            repair=f"move it with x.to('{device}')",
        )


def check_tensors(values: Sequence[object], names: Sequence[str]) -> None:
    """InputError unless there is a tensor for each name."""
    import torch

    if len(values) != len(names):
        raise InputError(
            f"{len(values)} tensors for {len(names)} inputs",
            where="kernel input",
            repair=f"pass {', '.join(names)}",
        )
    for value, name in zip(values, names, strict=True):
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"'{name}' is a {type(value).__name__}, not a tensor",
                where="kernel input",
                repair="pass torch tensors on the GPU",
            )
        if value.is_nested:
            raise InputError(
                f"'{name}' is a nested tensor",
                where="kernel input",
                why="kernels address memory by strides",
                repair="pass a dense one, such as x.to_padded_tensor(0.0)",
            )


def check_outside_capture(index: int, repair: str) -> None:
    """InputError inside a CUDA graph capture on a device, where nothing can be loaded."""
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise InputError(
            "the first call of this kind is inside a CUDA graph capture",
            where=f"cuda:{index}",
            why="kernels are compiled and loaded at the first call",
            repair=repair,
        )


def check_device(device: torch.device) -> None:
    """InputError unless tensors there can be read by a CUDA kernel."""
    if device.type != "cuda":
        raise InputError(
            f"the inputs are on {device}",
            where="kernel input",
            why="the kernels are for NVIDIA GPUs",
            repair="move the inputs with x.cuda(), or use "
            "mirage_py.runtime.cpu.triton_interpreter.run_interpreted on a machine without a GPU",
        )


def check_detached(inputs: Sequence[torch.Tensor], expected: Sequence[ExpectedInput]) -> None:
    """InputError when a gradient would be lost without a word."""
    import torch

    if has_tangents(inputs):
        raise InputError(
            "an input carries a tangent of forward-mode gradients, which would be lost",
            where="kernel input",
            why="the kernels compute the forward direction only",
            repair="pass forward_ad.unpack_dual(x).primal, or use @mirage_py.superoptimize, "
            "which falls back to the original function",
        )
    if not torch.is_grad_enabled():
        return
    for value, spec in zip(inputs, expected, strict=True):
        if value.requires_grad:
            raise InputError(
                f"'{spec.tensor.name}' requires a gradient",
                where="kernel input",
                why="the kernels compute the forward direction only",
                repair="call it under torch.no_grad(), pass x.detach(), "
                "or use @mirage_py.superoptimize, which falls back to the original function",
            )
