"""Rates of matmuls by the type of their operands and, of float32, by how exact they have to be."""

from __future__ import annotations

from mirage_py.search.model.model_constants import ModelConstants
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F8E4M3, F32, DType, Fp32Precision
from mirage_py.ugraph.ir.program import Program

# Of the rate of CUDA cores, what a library's matmul of float32 reaches.
_VECTOR_SHARE = 0.7
# Of the rate of three matmuls of TF32, what Triton's kernels reach on an H200.
_SPLIT_SHARE = 0.64
# Of the rate of halves, that of matmuls of two float8.
_OF_BYTES = 2.0


def fastest_rate(target: Target, dtype: DType, *, rounds: bool) -> float:
    """Flops in a microsecond of the fastest way to multiply that is exact enough; ``rounds`` says
    whether float32 may be rounded to TF32.
    """
    return target.fp32_flops_per_us(rounds=rounds) if dtype == F32 else target.tensor_flops_per_us


def program_rate(program: Program, target: Target) -> float:
    """The fastest rate for any sum of products of a program."""
    if any(t.dtype == F8E4M3 for t in program.inputs):
        return _OF_BYTES * target.tensor_flops_per_us
    rounds = program.fp32_precision is not Fp32Precision.IEEE
    return fastest_rate(target, program.matmul_type, rounds=rounds)


def library_rate(target: Target, dtype: DType, constants: ModelConstants, *, rounds: bool) -> float:
    """The rate of a library's matmul, on CUDA cores where float32 has to be exact."""
    if dtype == F32 and not rounds:
        return target.vector_flops_per_us * _VECTOR_SHARE
    return fastest_rate(target, dtype, rounds=rounds) * constants.library_tensor


def split_rate(target: Target) -> float:
    """The rate of a kernel of ours for float32 that has to be exact."""
    return _SPLIT_SHARE * fastest_rate(target, F32, rounds=False)
