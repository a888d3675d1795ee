"""Attention whose logits rise along the keys, for kernels with other kinds of running maxima."""

from __future__ import annotations

import numpy as np
from cuda_plans import cuda_plan
from numpy.typing import NDArray

from mirage_py.ugraph.ir.plan import Plan

SPEC = """
Q[64, 64], K[64, 224], V[224, 64] : f16
let A[q, s] = sum[c](Q[q, c] * K[c, s])
O[q, e] = sum[s](softmax[s](A[q, s]) * V[s, e])
"""

KERNEL = """
kernel attention {
  grid q by 64
  %0 = load Q[q, c]
  loop s by 32 {
    %1 = load K[c, s]
    %2 = matmul[c] %0, %1
    %3 = max[s] %2
    %4 = accum_max[shift] %3
    %5 = sub %2, %4
    %6 = exp %5
    %7 = sum[s] %6
    %8 = accum_rescaled[1] %7, %4
    %9 = load V[s, e]
    %10 = matmul[s] %6, %9
    %11 = accum_rescaled[1] %10, %4
  }
  %12 = div %11, %8
  store O[q, e] = %12
}
"""


def attention(*, is_shift: bool = True, **flags: str) -> Plan:
    """One kernel; its maximum is ``%4``, which may be any shift or has to be the maximum."""
    kernel = KERNEL if is_shift else KERNEL.replace("[shift]", "")
    return cuda_plan(SPEC, kernel, 3, **flags)


def rising_inputs(slope: float) -> dict[str, NDArray[np.float64]]:
    """Numbers of float16. By ``slope`` maxima do not rise (0.0), rise by little (0.05), by much in
    some rows (0.6), or fall.
    """
    random = np.random.default_rng(0)
    x = {
        "Q": random.standard_normal((64, 64)) / 8,
        "K": random.standard_normal((64, 224)),
        "V": random.standard_normal((224, 64)),
    }
    x["Q"][:, 0] = slope * np.arange(64) / 32
    x["K"][0] = np.arange(224)
    return {name: a.astype(np.float16).astype(np.float64) for name, a in x.items()}
