"""Rates of matmuls by the type of their operands and, of float32, by how exact they have to be."""

from __future__ import annotations

from mirage_py.search.model.model_constants import ModelConstants
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F32, DType, Fp32Precision
from mirage_py.ugraph.ir.program import Program

# Of the rate of CUDA cores, what a library's matmul of float32 reaches.
_VECTOR_SHARE = 0.7


def fastest_rate(target: Target, dtype: DType, held_to: Fp32Precision) -> float:
    """Flops in a microsecond of the fastest way to multiply that is exact enough."""
    return target.fp32_flops_per_us(held_to) if dtype == F32 else target.tensor_flops_per_us


def program_rate(program: Program, target: Target) -> float:
    """The fastest rate for the matmuls of a program."""
    return fastest_rate(target, program.matmul_type, program.fp32_precision)


def library_rate(
    target: Target, dtype: DType, held_to: Fp32Precision, constants: ModelConstants
) -> float:
    """The rate of a library's matmul, on CUDA cores where float32 has to be exact."""
    if dtype == F32 and held_to is Fp32Precision.IEEE:
        return target.vector_flops_per_us * _VECTOR_SHARE
    return fastest_rate(target, dtype, held_to) * constants.library_tensor
