"""A repeated launch: memory for the results, the same steps, new addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from mirage_py.runtime.compile.compile import POINTER_ALIGNMENT_BYTES
from mirage_py.runtime.launch.actions import Action
from mirage_py.runtime.launch.cached_calls import Again
from mirage_py.ugraph.ir.program import Tensor

if TYPE_CHECKING:
    import torch


def repeated(
    actions: Sequence[Action],
    fresh: Sequence[Tensor],
    outputs: int,
    device: torch.device,
    otherwise: Again,
) -> Again:
    """The call for inputs that lie as the steps read them, on ``device``.

    ``fresh`` is what it allocates, the ``outputs`` first. What it may not serve goes to
    ``otherwise``: an address that is not aligned, and another current device.
    """
    index = device.index
    current, stream_of = _now(device)
    makers = [maker(t, device) for t in fresh]
    odd = POINTER_ALIGNMENT_BYTES - 1

    def several(inputs: Sequence[torch.Tensor]) -> Any:
        for x in inputs:
            if x.data_ptr() & odd:
                return otherwise(inputs)
        if current() != index:
            return otherwise(inputs)
        memory, stream = [*inputs, *[make() for make in makers]], stream_of(index)
        for action in actions:
            action(memory, stream)
        first = len(inputs)
        return memory[first] if outputs == 1 else tuple(memory[first : first + outputs])

    if len(actions) > 1 or len(fresh) > 1:
        return several
    (action,), (make,) = actions, makers

    def one(inputs: Sequence[torch.Tensor]) -> Any:
        for x in inputs:
            if x.data_ptr() & odd:
                return otherwise(inputs)
        if current() != index:
            return otherwise(inputs)
        memory = [*inputs, make()]
        action(memory, stream_of(index))
        return memory[-1]

    return one


def empty(tensor: Tensor, device: torch.device) -> torch.Tensor:
    """An empty tensor on any device."""
    import torch

    dtype = getattr(torch, tensor.dtype.torch_name)
    return torch.empty_strided(tensor.shape, tensor.element_strides, dtype=dtype, device=device)


def maker(tensor: Tensor, device: torch.device) -> Callable[[], torch.Tensor]:
    """Makes an empty tensor on the current device, which is ``device``, in as little time as torch
    can: past the dispatcher, as graphs of Inductor do (0.5 us instead of 2).
    """
    import torch

    try:
        from torch._C._dynamo import guards

        quick = getattr(guards, f"_empty_strided_{device.type}")
    except (ImportError, AttributeError):  # another torch than those that are known
        return partial(empty, tensor, device)
    dtype: torch.dtype = getattr(torch, tensor.dtype.torch_name)
    return partial(quick, tuple(tensor.shape), tuple(tensor.element_strides), dtype)


def _now(device: torch.device) -> tuple[Callable[[], int | None], Callable[[int], int]]:
    """How to ask for the current device and its stream; elsewhere than on a GPU, where tests let
    something else stand in for the launch, there is one device and no stream.
    """
    if device.type != "cuda":
        return (lambda: device.index), (lambda _: 0)
    return device_function(), stream_function()


@cache
def stream_function() -> Callable[[int], int]:
    """The current stream of a device as a number: torch's own short cut, or the long way."""
    try:
        from torch._C import _cuda_getCurrentRawStream as current
    except ImportError:  # a torch without CUDA
        import torch

        return lambda index: int(torch.cuda.current_stream(index).cuda_stream)
    found: Callable[[int], int] = current
    return found


@cache
def device_function() -> Callable[[], int]:
    """The number of the current device, once torch has used one."""
    try:
        from torch._C import _cuda_getDevice as current
    except ImportError:
        import torch

        return torch.cuda.current_device
    found: Callable[[], int] = current
    return found
