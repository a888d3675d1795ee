"""Launches that may begin before the kernel in front of them has ended (programmatic dependent
launch, sm_90): what the driver's plain launch cannot say is an attribute of a configuration.
"""

from __future__ import annotations

import ctypes
from typing import Any

from mirage_py.runtime.cuda_driver import CudaDriver

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


class EarlyLaunch:
    """Called like ``cuLaunchKernel``. Not for two threads at once: the configuration is kept."""

    def __init__(self, driver: CudaDriver) -> None:
        self._launch = driver.launch_configured
        self._attribute = _Attribute(id=_MAY_OVERLAP, value=1)
        self._configuration = _Configuration(
            attributes=ctypes.pointer(self._attribute), attribute_count=1
        )
        self._address = ctypes.byref(self._configuration)

    def __call__(self, function: Any, *arguments: Any) -> int:
        *shape, stream, parameters, extra = arguments
        self._configuration.shape[:] = [n.value for n in shape]
        self._configuration.stream = stream
        return self._launch(self._address, function, parameters, extra)
