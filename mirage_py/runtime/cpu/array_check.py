"""Arrays that a plan is run on without a GPU: each input is there, with its shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mirage_py.errors import InputError
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.program import Tensor


def checked_array(tensor: Tensor, arrays: Mapping[str, FloatArray]) -> FloatArray:
    """The array of an input, in float64 and in order. Raises InputError."""
    array = arrays.get(tensor.name)
    if array is None:
        raise InputError(f"input '{tensor.name}' is missing", repair=f"pass {tensor}")
    if array.shape != tensor.shape:
        raise InputError(
            f"input '{tensor.name}' has shape {list(array.shape)}",
            why=f"the kernels were made for {list(tensor.shape)}",
        )
    # An array without axes must stay one: np.ascontiguousarray gives it an axis.
    return np.asarray(array, dtype=np.float64, order="C")
