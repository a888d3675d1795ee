"""Tensor maps for TMA: made for a new tensor address, cached for the next time."""

from __future__ import annotations

import ctypes

from mirage_py.codegen.cuda.writer.cuda_kernel import TensorMap
from mirage_py.errors import CompileError
from mirage_py.runtime.launch.cuda_driver import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, CudaDriver
from mirage_py.ugraph.ir.dtypes import DType

# As many addresses as a caller with a few sets of tensors has; 192 bytes each.
_KEPT = 64
# CUtensorMapDataType: copies ask for the size alone, but for the float32 of the unit itself.
_KINDS = {"f16": 6, "bf16": 9, "f32": 7, "f64": 8, "i64": 5, "i32": 3, "i16": 1}
_TF32 = 11
_BYTES = 0  # what has one byte: float8, int8, bool


class TensorMaps:
    """The maps of one parameter of a kernel, by the address of its tensor. For one thread at a
    time.
    """

    def __init__(self, driver: CudaDriver, what: TensorMap, dtype: DType, device: int) -> None:
        self._driver = driver
        self._device = device
        self._what = what
        self._kind = _TF32 if what.rounds else _KINDS.get(dtype.name, _BYTES)
        self._known: dict[int, tuple[int, ctypes.Array[ctypes.c_char]]] = {}

    def at(self, data: int) -> int:
        """The address of the 128 bytes of the map for a tensor at ``data``.

        They stay until 64 other addresses were asked for. Raises CompileError where the driver
        does not take it.
        """
        known = self._known.pop(data, None)
        if known is None:
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            known = self._made(data)
        self._known[data] = known  # the last one asked for is the last to go
        return known[0]

    def _made(self, data: int) -> tuple[int, ctypes.Array[ctypes.c_char]]:
        room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT)
        address = -(-ctypes.addressof(room) // TENSOR_MAP_ALIGNMENT) * TENSOR_MAP_ALIGNMENT
        what = self._what
        self._driver.enter(self._device)  # this thread may not have used the GPU yet
        try:
            self._driver.encode_tensor_map(
                address,
                data,
                kind=self._kind,
                shape=what.shape,
                strides_bytes=what.strides_bytes,
                box=what.box,
                swizzle_bytes=what.swizzle_bytes,
                steps=what.windows.steps if what.windows else what.steps,
                corners=what.windows.corners if what.windows else (),
            )
        except CompileError as error:
            raise CompileError(
                f"TMA does not take {what.tensor} at {data:#x}: {error.what}",
                where=what.name,
                why=f"shape {list(what.shape)}, strides of {list(what.strides_bytes)} bytes, box "
                f"{list(what.box)}, swizzle {what.swizzle_bytes}",
            ) from error
        return address, room
