"""Halves, bfloat16 and tf32 of the CPU stand-in, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from collective_kernels import collective

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_kernels
from mirage_py.ugraph.ir.dtypes import F32

pytestmark = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")

COUNT = 1 << 14

CODE = """
    for (int i = thread; i < COUNT; i += 256) {
        const float x = X[i];
        const __half h = __float2half(x);
        const __nv_bfloat16 b = __float2bfloat16(x);
        const unsigned f16 = pack_f16(x, -x), bf16 = pack_bf16(-x, x);
        Y[i] = low_f16(f16);
        Y[COUNT + i] = -high_f16(f16);
        Y[2 * COUNT + i] = __half2float(h);
        Y[3 * COUNT + i] = high_bf16(bf16);
        Y[4 * COUNT + i] = -low_bf16(bf16);
        Y[5 * COUNT + i] = __bfloat162float(b);
        Y[6 * COUNT + i] = __uint_as_float(to_tf32(x));
        Y[7 * COUNT + i] = low_bf16(mul_bf16x2(pack_bf16(x, 0), pack_bf16(x, 1)));
    }
""".replace("COUNT", str(COUNT))


def numbers():
    """Of all sizes, halfway between two halves or bfloat16, and beside such places."""
    rng = np.random.default_rng(0)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].astype(np.float32)
    bits = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32)
    ties = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    above = np.nextafter(halves.astype(np.float16), np.float16(65504)).astype(np.float32)
    half_ties = (halves + above) / 2
    sets = [rng.choice(halves, COUNT // 4), rng.choice(half_ties, COUNT // 4)]
    sets += [bits[: COUNT // 4].view(np.float32), ties[: COUNT // 4].view(np.float32)]
    found = np.concatenate(sets).astype(np.float32)
    special = [
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        65504,
        65519.99,
        65520,
        2**-24,
        2**-25,
        1e-45,
        3.4e38,
    ]
    found[: len(special)] = special
    return found


def test_every_kind_of_number():
    case = collective("numbers", CODE, {"X": ((COUNT,), F32)}, ((8, COUNT), F32), threads=256)
    x = numbers()
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    got = run_kernels(case.program, (case.kernel,), {"X": wide})["Y"]
    exact = torch.from_numpy(x)
    half = exact.to(torch.float16).to(torch.float64).numpy()
    brain = exact.to(torch.bfloat16).to(torch.float64).numpy()
    squares = (exact.to(torch.bfloat16) * exact.to(torch.bfloat16)).to(torch.float64).numpy()
    for row in got[:3]:
        np.testing.assert_array_equal(row, half)
    for row in got[3:6]:
        np.testing.assert_array_equal(row, brain)
    np.testing.assert_array_equal(got[7], squares)
    # tf32 has ten bits behind the point; ties go away from zero.
    size = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    up = np.where(
        size < 0x7F800000, (x.view(np.uint32) + np.uint32(0x1000)) & ~np.uint32(0x1FFF), 0
    )
    finite = np.isfinite(x)
    np.testing.assert_array_equal(got[6][finite], up[finite].view(np.float32))
