"""A launch of one CUDA kernel with all but stream and arguments fixed in advance.

The driver's plain launch takes eleven values, which ctypes converts at every call (1.0 us); the one
with a configuration takes four (0.3 us). The configuration also says what the plain one cannot:
that the launch may begin before the previous kernel has ended (programmatic dependent launch,
sm_90).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from mirage_py.runtime.launch.cuda_driver import CudaDriver

# From cuda.h: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
_MAY_OVERLAP = 6
_VALUE_BYTES = 64


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
