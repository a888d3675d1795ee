"""Element types: their size, their precision and their name in each world they are used in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mirage_py.errors import InputError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    ``unit_roundoff`` is half the distance from 1 to the next number (0 for integers);
    ``max_finite`` the largest finite value.
    """

    name: str
    bytes: int
    torch_name: str
    triton_name: str
    unit_roundoff: float
    max_finite: float
    is_float: bool = True

    def __eq__(self, other: object) -> bool:
        """By name, which no two of them share."""
        if self is other:
            return True
        return isinstance(other, DType) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def lowest(self) -> float:
        """The lowest finite value."""
        if self.is_float:
            return -self.max_finite
        return 0.0 if self.name in ("bool", "u8") else -self.max_finite - 1.0

    @property
    def is_half(self) -> bool:
        """Whether tensor cores take it at two bytes an element."""
        return self.is_float and self.bytes == 2

    def __str__(self) -> str:
        return self.name


class Fp32Precision(StrEnum):
    """How exactly sums of products of float32 have to be computed, in the words of torch's setting
    ``fp32_precision``: as in IEEE float32, or with operands rounded to TF32, which has 10 bits of
    mantissa in place of 23. torch has a setting for matmuls and one for convolutions.
    """

    IEEE = "ieee"
    TF32 = "tf32"
    TF32_MATMULS = "tf32_matmuls"
    TF32_CONVOLUTIONS = "tf32_convolutions"

    @classmethod
    def of(cls, *, matmuls: bool, convolutions: bool) -> Fp32Precision:
        """By what may be rounded."""
        one = cls.TF32_MATMULS if matmuls else cls.TF32_CONVOLUTIONS
        return one if matmuls != convolutions else cls.TF32 if matmuls else cls.IEEE

    @property
    def rounds_matmuls(self) -> bool:
        """Whether operands of matmuls may be rounded."""
        return self in (Fp32Precision.TF32, Fp32Precision.TF32_MATMULS)

    @property
    def rounds_convolutions(self) -> bool:
        """Whether operands of a library's convolutions may be rounded."""
        return self in (Fp32Precision.TF32, Fp32Precision.TF32_CONVOLUTIONS)


F64 = DType("f64", 8, "float64", "float64", 2.0**-53, 1.7976931348623157e308)
F32 = DType("f32", 4, "float32", "float32", 2.0**-24, 3.4028234663852886e38)
F16 = DType("f16", 2, "float16", "float16", 2.0**-11, 65504.0)
BF16 = DType("bf16", 2, "bfloat16", "bfloat16", 2.0**-8, 3.3895313892515355e38)
F8E4M3 = DType("f8e4m3", 1, "float8_e4m3fn", "float8e4nv", 2.0**-4, 448.0)
F8E5M2 = DType("f8e5m2", 1, "float8_e5m2", "float8e5", 2.0**-3, 57344.0)
I64 = DType("i64", 8, "int64", "int64", 0.0, 9223372036854775807.0, is_float=False)
I32 = DType("i32", 4, "int32", "int32", 0.0, 2147483647.0, is_float=False)
I16 = DType("i16", 2, "int16", "int16", 0.0, 32767.0, is_float=False)
I8 = DType("i8", 1, "int8", "int8", 0.0, 127.0, is_float=False)
U8 = DType("u8", 1, "uint8", "uint8", 0.0, 255.0, is_float=False)
BOOL = DType("bool", 1, "bool", "int1", 0.0, 1.0, is_float=False)

ALL_DTYPES: tuple[DType, ...] = (
    F64, F32, F16, BF16, F8E4M3, F8E5M2, I64, I32, I16, I8, U8, BOOL,
)  # fmt: skip
_BY_NAME = {d.name: d for d in ALL_DTYPES}
_ALIASES = {
    "fp16": F16, "half": F16, "float16": F16, "fp32": F32, "float": F32, "float32": F32,
    "bfloat16": BF16, "float64": F64, "double": F64, "int64": I64, "int32": I32,
    "int16": I16, "int8": I8, "uint8": U8,
    "float8_e4m3fn": F8E4M3, "float8_e5m2": F8E5M2,
}  # fmt: skip


def dtype(name: str) -> DType:
    """The type called ``name`` (``f16``, ``float16``, ``torch.float16`` ...), or InputError."""
    short = name.removeprefix("torch.")
    found = _BY_NAME.get(short) or _ALIASES.get(short)
    if found is None:
        known = ", ".join(d.name for d in ALL_DTYPES)
        raise InputError(f"unknown element type '{name}'", repair=f"use one of {known}")
    return found
