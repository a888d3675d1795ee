"""Fused convolutions and pools over windows on the GPU: CUDA kernels of their plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import ScheduleError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compile_cuda import CudaSource
from mirage_py.runtime.launch.launch_cuda import Places, cuda_launch
from mirage_py.ugraph.building.window_convolutions import window_plan
from mirage_py.ugraph.ir.convolution import FusedConvolution, WindowTiles

if TYPE_CHECKING:
    import torch

# Addresses of the tensors by name, and the device, to a launch on its current stream.
WindowLauncher = Callable[[Mapping[str, int], "torch.device"], None]


def window_kernel_of(spec: FusedConvolution, tiles: WindowTiles) -> CudaKernel:
    """The kernel. Raises ScheduleError where the tiles do not fit."""
    kernels = emit_kernels(window_plan(spec, tiles))
    if len(kernels) != 1 or not isinstance(kernels[0], CudaKernel):
        raise ScheduleError("no kernel for this convolution: it is no CUDA kernel")
    return kernels[0]


def window_source(spec: FusedConvolution, tiles: WindowTiles) -> CudaSource:
    """What the compiler sees of the kernel. Raises ScheduleError where the tiles do not fit."""
    return CudaSource.of(window_kernel_of(spec, tiles))


def window_launcher(spec: FusedConvolution, tiles: WindowTiles, index: int) -> WindowLauncher:
    """The kernel on a GPU. Raises CompileError."""
    import torch

    kernel = window_kernel_of(spec, tiles)
    major, minor = torch.cuda.get_device_capability(index)
    names = [t.name for t in kernel.pointers]
    start = cuda_launch(kernel, 10 * major + minor, index, Places(range(len(names))))

    def launch(addresses: Mapping[str, int], device: torch.device) -> None:
        memory: list[Any] = [_Address(addresses[name]) for name in names]
        start(memory, torch.cuda.current_stream(device).cuda_stream)

    return launch


@dataclass(frozen=True, slots=True)
class _Address:
    """A place in memory as launches ask for it; a slice is given by the place that it is behind."""

    value: int

    def data_ptr(self) -> int:
        """The address."""
        return self.value
