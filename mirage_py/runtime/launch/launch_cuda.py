"""Launches of CUDA kernels: arguments in a reused buffer, one driver call."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import CompileError
from mirage_py.runtime.compile.compile_cuda import CudaSource, machine_code
from mirage_py.runtime.launch.actions import Action
from mirage_py.runtime.launch.configured_launch import ConfiguredLaunch
from mirage_py.runtime.launch.cuda_driver import INVALID_CONTEXT, CudaDriver, cuda_driver
from mirage_py.runtime.launch.tensor_maps import TensorMaps
from mirage_py.ugraph.ir.dtypes import DType

if TYPE_CHECKING:
    import torch

# Blocks of a cluster that every GPU with clusters takes.
_PORTABLE_CLUSTER = 8


@dataclass(frozen=True, slots=True)
class Places:
    """Where a kernel's arguments are among the tensors of a plan: ``pointers`` in order, and the
    place and type of the tensor of each map.
    """

    pointers: Sequence[int]
    mapped: Sequence[tuple[int, DType]] = ()


def cuda_launch(kernel: CudaKernel, capability: int, device: int, places: Places) -> Action:
    """The kernel, compiled for sm_``capability`` and loaded on ``device``, as a function of all
    tensors of a plan and a stream.

    Raises CompileError where the compiler or the GPU does not take it. The text says how large
    clusters are (``__cluster_dims__``), so the launch need not.
    """
    cubin = machine_code(CudaSource.of(kernel), capability).cubin
    driver = cuda_driver()
    driver.enter(device)
    return launcher(kernel, driver, _loaded(driver, kernel, cubin), device, places)


def launcher(
    kernel: CudaKernel, driver: CudaDriver, function: int, device: int, places: Places
) -> Action:
    """A loaded ``function`` with as little as possible left to do in a call."""
    pairs = zip(kernel.tensor_maps, places.mapped, strict=True)
    maps = [(TensorMaps(driver, m, dtype, device), place) for m, (place, dtype) in pairs]
    count = len(kernel.pointers)
    addresses = (ctypes.c_uint64 * max(1, count))()
    first = ctypes.addressof(addresses)
    # Where the driver finds each parameter; it copies them before its call returns.
    parameters = (ctypes.c_void_p * max(1, count + len(maps)))()
    parameters[:count] = [first + 8 * n for n in range(count)]
    shape = (kernel.grid, 1, 1, kernel.threads, 1, 1, kernel.smem_bytes)
    where, early = ctypes.addressof(parameters), kernel.uses_pdl
    start = ConfiguredLaunch(driver, function, shape, where, uses_pdl=early)
    pack = struct.Struct(f"{count}Q").pack_into
    pointers = tuple(places.pointers)
    # Threads share the buffers.
    lock = threading.Lock()

    def launch(memory: Sequence[torch.Tensor], stream: int) -> None:
        with lock:
            pack(addresses, 0, *[memory[p].data_ptr() for p in pointers])
            for number, (known, place) in enumerate(maps, count):
                parameters[number] = known.at(memory[place].data_ptr())
            status = start(stream)
            if status == INVALID_CONTEXT:  # this thread has not used the GPU yet
                driver.enter(device)
                status = start(stream)
        if status:
            raise CompileError(f"the launch fails: {driver.words(status)}", where=kernel.name)

    return launch


def _loaded(driver: CudaDriver, kernel: CudaKernel, cubin: bytes) -> int:
    try:
        function = driver.load(cubin, kernel.name)
        if kernel.smem_bytes:
            driver.allow_smem(function, kernel.smem_bytes)
        if kernel.cluster > _PORTABLE_CLUSTER:
            driver.allow_any_cluster(function)
    except CompileError as error:
        raise CompileError(
            f"the GPU does not take it: {error.what}",
            where=kernel.name,
            why=f"it asks for {kernel.smem_bytes} bytes of shared memory a block, "
            f"{kernel.threads} threads and clusters of {kernel.cluster}",
            repair="choose a plan with smaller tiles, fewer stages or smaller clusters",
        ) from error
    return function
