"""The elementwise epilogue of a library's convolution as one Triton kernel, in place.

The result and the residual have channels last. A block has a tile of places and channels, so that
loads are vectors along the channels and the bias is read once a block.
"""

from __future__ import annotations

from mirage_py.codegen.text.writer import CodeWriter
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.convolution import FusedConvolution

EPILOGUE, EPILOGUE_WARPS = "convolution_epilogue", 4
_ELEMENTS, _MOST_COLUMNS = 4096, 256
# Addresses are 32-bit numbers.
_MOST = 2**31 - 1
_TYPES = {"bf16": ("tl.bfloat16", "*bf16"), "f16": ("tl.float16", "*fp16")}


def tile(spec: FusedConvolution) -> tuple[int, int]:
    """Places and channels of a block."""
    columns = 16
    while columns < min(spec.results, _MOST_COLUMNS):
        columns *= 2
    return _ELEMENTS // columns, columns


def blocks(spec: FusedConvolution) -> int:
    """Blocks of a launch."""
    rows, columns = tile(spec)
    return -(-spec.places // rows) * -(-spec.results // columns)


def parameters(spec: FusedConvolution) -> tuple[str, ...]:
    """Names of the pointers, in order."""
    return ("y", *["bias"] * spec.has_bias, *["residual"] * spec.has_residual)


def pointer_types(spec: FusedConvolution) -> tuple[str, ...]:
    """Triton's names of their types."""
    return (_TYPES[spec.dtype][1],) * len(parameters(spec))


def emit_epilogue(spec: FusedConvolution) -> str:
    """The kernel as a Python module. Raises ScheduleError where addresses do not fit."""
    rows, columns = tile(spec)
    apart = max(spec.results, spec.residual_apart * spec.has_residual)
    if (spec.places + rows) * apart + columns > _MOST:
        raise ScheduleError("no kernel after this convolution: addresses do not fit 32 bits")
    across = -(-spec.results // columns)
    w = CodeWriter()
    w.line("import triton")
    w.line("import triton.language as tl")
    w.line()
    w.line()
    w.line("@triton.jit")
    w.line(f"def {EPILOGUE}({', '.join(parameters(spec))}):")
    with w.indented():
        w.line("number = tl.program_id(0)")
        w.line(f"rows = number // {across} * {rows} + tl.arange(0, {rows})")
        w.line(f"columns = number % {across} * {columns} + tl.arange(0, {columns})")
        w.line(f"column_is_in = columns < {spec.results}")
        w.line(f"is_in = (rows < {spec.places})[:, None] & column_is_in[None, :]")
        w.line(f"at = rows[:, None] * {spec.results} + columns[None, :]")
        w.line("result = tl.load(y + at, mask=is_in, other=0.0).to(tl.float32)")
        if spec.has_bias:
            w.line("shift = tl.load(bias + columns, mask=column_is_in, other=0.0)")
            w.line("result += shift.to(tl.float32)[None, :]")
        if spec.has_residual:
            apart_text = f"rows[:, None] * {spec.residual_apart} + columns[None, :]"
            place = f"{apart_text} + {spec.residual_offset}"
            w.line(f"more = tl.load(residual + {place}, mask=is_in, other=0.0)")
            w.line("result += more.to(tl.float32)")
        if spec.relu_after:
            # As torch's: what is not a number stays so.
            w.line("result = tl.where(result < 0, 0.0, result)")
        w.line(f"tl.store(y + at, result.to({_TYPES[spec.dtype][0]}), mask=is_in)")
    return w.text()
