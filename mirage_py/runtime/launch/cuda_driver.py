"""The CUDA driver API through ctypes, as far as loading and launching a kernel needs it.

A launch needs no package beside torch that way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mirage_py.errors import CompileError

# From cuda.h.
INVALID_CONTEXT = 201
_STATIC_SMEM, _LOCAL_BYTES, _REGISTERS = 1, 3, 4
_MOST_DYNAMIC_SMEM, _ANY_CLUSTER_SIZE = 8, 14
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_PROMOTION_128B = 2
# CUtensorMap: its size, and what its address is a multiple of.
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64

_Status = ctypes.c_int
_Handle = ctypes.c_void_p
_U32 = ctypes.c_uint

Launch = Callable[..., int]


class CudaDriver:
    """The functions of a libcuda. Where one fails, CompileError with the driver's own words."""

    def __init__(self, library: Any) -> None:
        self._library = library
        launch = library.cuLaunchKernelEx
        launch.argtypes = None
        launch.restype = _Status
        # (configuration, function, parameters, extra) as ctypes values, to a status.
        self.launch: Launch = launch
        self._call("cuInit", _U32(0))

    def enter(self, device: int) -> None:
        """Make the context that torch uses on a device the current one of this thread."""
        handle, context = ctypes.c_int(), _Handle()
        self._call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(device))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self._call("cuCtxSetCurrent", context)

    def load(self, cubin: bytes, name: str) -> int:
        """A kernel of machine code, loaded into the current context for as long as that lives."""
        module, function = _Handle(), _Handle()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        found = (ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        self._call("cuModuleGetFunction", *found)
        assert function.value is not None
        return function.value

    def allow_smem(self, function: int, smem_bytes: int) -> None:
        """Let a launch ask for so much dynamic shared memory."""
        self._set(function, _MOST_DYNAMIC_SMEM, smem_bytes)

    def allow_any_cluster(self, function: int) -> None:
        """Let a launch have clusters of more blocks than every GPU of the kind takes (8)."""
        self._set(function, _ANY_CLUSTER_SIZE, 1)

    def facts(self, function: int) -> tuple[int, int, int]:
        """Registers of a thread, its local memory and the static shared memory in bytes."""
        found = []
        for attribute in (_REGISTERS, _LOCAL_BYTES, _STATIC_SMEM):
            value = ctypes.c_int()
            known = (ctypes.byref(value), ctypes.c_int(attribute), _Handle(function))
            self._call("cuFuncGetAttribute", *known)
            found.append(value.value)
        registers, local_bytes, smem_bytes = found
        return registers, local_bytes, smem_bytes

    def encode_tensor_map(
        self,
        into: int,
        data: int,
        *,
        kind: int,
        shape: Sequence[int],
        strides_bytes: Sequence[int],
        box: Sequence[int],
        swizzle_bytes: int,
        steps: Sequence[int] = (),
        corners: Sequence[int] = (),
    ) -> None:
        """Write the map of a tensor at address ``data`` to the 128 bytes at address ``into``.

        ``kind`` is a CUtensorMapDataType; the contiguous axis comes first, as in ``TensorMap``.
        With ``corners`` it is one of pixels in windows.
        """
        rank = len(shape)
        spatial = len(corners)
        how: tuple[object, ...] = (
            ((ctypes.c_uint32 * rank)(*box),)
            if not corners
            else (
                (ctypes.c_int * spatial)(*(0,) * spatial),
                (ctypes.c_int * spatial)(*corners),
                *(_U32(n) for n in box),
            )
        )
        self._call(
            "cuTensorMapEncodeIm2col" if corners else "cuTensorMapEncodeTiled",
            _Handle(into),
            ctypes.c_int(kind),
            _U32(rank),
            _Handle(data),
            (ctypes.c_uint64 * rank)(*shape),
            (ctypes.c_uint64 * max(1, rank - 1))(*strides_bytes),
            *how,
            (ctypes.c_uint32 * rank)(*(steps or (1,) * rank)),
            ctypes.c_int(0),  # not interleaved
            ctypes.c_int(_SWIZZLES[swizzle_bytes]),
            ctypes.c_int(_L2_PROMOTION_128B),
            ctypes.c_int(0),  # zeros outside of the tensor
        )

    def words(self, status: int) -> str:
        """What a status means."""
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            getattr(self._library, name)(ctypes.c_int(status), ctypes.byref(text))
            texts.append((text.value or b"?").decode())
        return f"{texts[0]} ({texts[1]})"

    def _set(self, function: int, attribute: int, value: int) -> None:
        self._call(
            "cuFuncSetAttribute", _Handle(function), ctypes.c_int(attribute), ctypes.c_int(value)
        )

    def _call(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise CompileError(
                f"the driver has no {name}", repair="install a driver for CUDA 12 or later"
            )
        status = function(*arguments)
        if status:
            raise CompileError(f"{name} fails: {self.words(status)}")


@cache
def cuda_driver() -> CudaDriver:
    """The driver of this machine. Raises CompileError where there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CompileError(
            "there is no CUDA driver",
            why=str(error),
            repair="install NVIDIA's driver; without a GPU kernels can only be compiled",
        ) from error
    return CudaDriver(library)
