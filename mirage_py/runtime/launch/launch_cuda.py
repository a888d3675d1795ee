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
from mirage_py.runtime.launch.cuda_driver import INVALID_CONTEXT, CudaDriver, cuda_driver
from mirage_py.runtime.launch.tensor_maps import TensorMaps
from mirage_py.ugraph.ir.dtypes import DType

if TYPE_CHECKING:
    import torch

# From cuda.h: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
_MAY_OVERLAP = 6
_VALUE_BYTES = 64

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


class _Attribute(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * (_VALUE_BYTES - 4)),
    ]


class _Configuration(ctypes.Structure):
    _fields_ = [
        ("shape", ctypes.c_uint * 7),  # grid, block, dynamic shared memory in bytes
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


class ConfiguredLaunch:
    """Launches ``function`` with the parameters that an array of addresses at ``parameters`` points
    to. Not for two threads at once: the configuration is kept.

    ``shape`` is the grid, the block, and the dynamic shared memory in bytes.

    The driver's plain launch takes eleven values, which ctypes converts at every call (1.0 us); the
    one with a configuration takes four (0.3 us). The configuration also says what the plain one
    cannot: that the launch may begin before the previous kernel has ended (programmatic dependent
    launch, sm_90).
    """

    def __init__(
        self,
        driver: CudaDriver,
        function: int,
        shape: Sequence[int],
        parameters: int,
        *,
        uses_pdl: bool,
    ) -> None:
        self._launch = driver.launch
        self._attribute = _Attribute(id=_MAY_OVERLAP, value=1)
        self._configuration = _Configuration(shape=(ctypes.c_uint * 7)(*shape))
        if uses_pdl:
            self._configuration.attributes = ctypes.pointer(self._attribute)
            self._configuration.attribute_count = 1
        self._arguments = (
            ctypes.byref(self._configuration),
            ctypes.c_void_p(function),
            ctypes.c_void_p(parameters),
            ctypes.c_void_p(),
        )

    def __call__(self, stream: int) -> int:
        """The driver's status."""
        self._configuration.stream = stream
        return self._launch(*self._arguments)
