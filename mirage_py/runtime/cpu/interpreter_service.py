"""Running emitted kernels in Triton's interpreter; inside a worker started with TRITON_INTERPRET=1.

Each tensor lies in the middle of a buffer full of NaN. A kernel that reads past an end spoils its
result, one that writes past an end is caught by the guards, and an element that nobody writes stays
NaN: in plain memory all three often go unseen.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage_py.errors import CompileError
from mirage_py.runtime.base.layouts import poison, write_once
from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.cpu.light_types import make_types_once
from mirage_py.runtime.launch.library import library_function
from mirage_py.ugraph.ir.convolution import read_convolution

if TYPE_CHECKING:
    import torch

_GUARD_ELEMENTS = 1 << 18
_Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A tensor and the whole buffer around it."""

    tensor: torch.Tensor
    buffer: torch.Tensor
    end: int

    def guards_hold(self) -> bool:
        """Bit by bit: that is one comparison of memory."""
        ends = (self.buffer[:_GUARD_ELEMENTS], self.buffer[self.end :])
        clean = _guard(self.buffer.dtype)
        return all(end.view(clean.dtype).equal(clean) for end in ends)


def interpret(task: Mapping[str, Any]) -> None:
    """Run the kernels of ``task`` in order.

    ``tensors`` describes every tensor: name, shape, strides in elements, torch dtype, role. Inputs
    are read from ``folder/NAME.npy`` and outputs written there, as float64. Raises CompileError
    when a kernel writes outside its tensors.
    """
    _leave_out_waits()
    _check_positions()
    _stay_patched()
    _mend_bfloat16()
    _mend_bfloat16_casts()
    _mend_float8()
    _mend_loop_bounds()
    _compute_as_gpus()
    make_types_once()
    folder = Path(task["folder"])
    tensors: dict[str, _Guarded] = {}
    for facts in task["tensors"]:
        tensors[facts["name"]] = guarded = _allocate(facts)
        if facts["role"] == "input":
            values = _from_numpy(np.load(folder / f"{facts['name']}.npy"))
            write_once(guarded.tensor, values)
    for step in task["steps"]:
        _run(step, tensors)
        for name, guarded in tensors.items():
            if not guarded.guards_hold():
                raise CompileError(f"{step['name']} writes outside of {name}")
    for facts in task["tensors"]:
        if facts["role"] == "output":
            np.save(folder / f"{facts['name']}.npy", _to_numpy(tensors[facts["name"]].tensor))


@functools.cache
def _mend_loop_bounds() -> None:
    """Triton 3.6's interpreter takes the bound of a loop from an array of one element by ``int``,
    which NumPy 2.4 refuses.
    """
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor  # noqa: SLF001

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda value: int(value.handle.data.item()))

    interpreter._patch_lang_tensor = patch  # noqa: SLF001


@functools.cache
def _mend_bfloat16() -> None:
    """Triton 3.6's interpreter keeps bfloat16 as 16 bits in an integer, which it multiplies as
    whole numbers, also in matrix products; and it has neither constants of the type nor atomic
    additions of them.
    """
    from triton._C.libtriton import interpreter as memory
    from triton.language import bfloat16, float32
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original_dot = InterpreterBuilder.create_dot
    original_atomic = InterpreterBuilder.create_atomic_rmw
    original_fmul = InterpreterBuilder.create_fmul

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != bfloat16 or handle.data.dtype != np.uint16:
            return handle
        return TensorHandle(_bfloat16_values(handle.data), float32)

    def create_dot(builder: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        if a.dtype.scalar == float32 and precision.name != "IEEE":
            product = _tf32_product(a.data, b.data, in_parts=precision.name == "TF32x3")
            return TensorHandle(product + d.data, d.dtype.scalar)
        return original_dot(builder, widened(a), widened(b), d, precision, *rest)

    def create_atomic_rmw(builder: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        if val.dtype.scalar != bfloat16:
            return original_atomic(builder, op, ptr, val, mask, *rest)
        # Blocks run one after the other here, so reading and writing need not be one step.
        old = memory.load(ptr.data, mask.data, np.zeros_like(val.data), np.dtype(np.uint16))
        total = _bfloat16_values(old) + _bfloat16_values(val.data)
        memory.store(ptr.data, _bfloat16_bits(total), mask.data)
        return TensorHandle(old, bfloat16)

    def create_fmul(builder: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.dtype.scalar != bfloat16:
            return original_fmul(builder, lhs, rhs)
        # The product of two such numbers is exact in float32: it is rounded once, as on a GPU.
        exact = original_fmul(builder, widened(lhs), widened(rhs))
        return TensorHandle(_bfloat16_bits(exact.data), bfloat16)

    def get_bf16(builder: Any, value: float) -> Any:  # noqa: ARG001
        return TensorHandle(_bfloat16_bits(np.array([value], np.float32)), bfloat16)

    InterpreterBuilder.create_fmul = create_fmul
    InterpreterBuilder.get_bf16 = get_bf16
    InterpreterBuilder.create_dot = create_dot
    InterpreterBuilder.create_atomic_rmw = create_atomic_rmw


@functools.cache
def _mend_bfloat16_casts() -> None:
    """Triton 3.6's interpreter casts bfloat16 as 16 bits in an integer to and from other types than
    float32, and cuts float32 off, which a GPU rounds to the nearest.
    """
    from triton.language import bfloat16, float32
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original_cast = InterpreterBuilder.cast_impl

    def cast_impl(builder: Any, src: Any, dst_type: Any) -> Any:
        types = src.dtype.scalar, dst_type.scalar
        if types[0] == types[1] or bfloat16 not in types:
            return original_cast(builder, src, dst_type)
        wide = original_cast(builder, src, float32)
        if dst_type.scalar != bfloat16:
            return original_cast(builder, wide, dst_type)
        return TensorHandle(_bfloat16_bits(wide.data), bfloat16)

    InterpreterBuilder.cast_impl = cast_impl


@functools.cache
def _compute_as_gpus() -> None:
    """A float32 product that is added to or subtracted from is not rounded before, as on a GPU,
    where Triton makes one multiply-add of them; a minimum leaves out what is not a number, as there
    too. A matrix product is rounded once: in float32 some BLAS libraries add up the last rows of a
    tile in another order than the others, which no GPU does. Call it last: it wraps what others
    mended.
    """
    from triton.language import float32, float64
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    factors = "factors"
    original_fmul = InterpreterBuilder.create_fmul
    original_dot = InterpreterBuilder.create_dot

    def create_dot(builder: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        if d.dtype.scalar != float32:
            return original_dot(builder, a, b, d, *rest)
        wide = TensorHandle(d.data.astype(np.float64), float64)
        with np.errstate(over="ignore"):
            found = original_dot(builder, a, b, wide, *rest).data.astype(np.float32)
        return TensorHandle(found, float32)

    def create_fmul(builder: Any, lhs: Any, rhs: Any) -> Any:
        product = original_fmul(builder, lhs, rhs)
        if product.dtype.scalar == float32:
            product.set_attr(factors, (lhs.data, rhs.data))
        return product

    def exact(handle: Any) -> Any:
        """What is added: the product of two float32 is exact in float64."""
        if factors not in handle.attr:
            return handle.data.astype(np.float64)
        left, right = handle.attr[factors]
        return left.astype(np.float64) * right

    def of_numbers(operation: Any) -> Any:
        return lambda builder, lhs, rhs: builder.binary_op(lhs, rhs, operation)

    def create_fma(_builder: Any, x: Any, y: Any, z: Any) -> Any:
        wide = x.data.astype(np.float64) * y.data + z.data
        return TensorHandle(wide.astype(z.data.dtype), z.dtype.scalar)

    def fused(original: Any, operation: Any) -> Any:
        def apply(builder: Any, lhs: Any, rhs: Any) -> Any:
            if factors not in lhs.attr and factors not in rhs.attr:
                return original(builder, lhs, rhs)
            # Of two products one is rounded.
            second = exact(rhs) if factors not in lhs.attr else rhs.data
            return TensorHandle(operation(exact(lhs), second).astype(np.float32), float32)

        return apply

    InterpreterBuilder.create_dot = create_dot
    InterpreterBuilder.create_fma = create_fma
    InterpreterBuilder.create_minnumf = of_numbers(np.fmin)
    InterpreterBuilder.create_maxnumf = of_numbers(np.fmax)
    InterpreterBuilder.create_fmul = create_fmul
    InterpreterBuilder.create_fadd = fused(InterpreterBuilder.create_fadd, np.add)
    InterpreterBuilder.create_fsub = fused(InterpreterBuilder.create_fsub, np.subtract)


@functools.cache
def _mend_float8() -> None:
    """Of floats of a byte Triton 3.6's interpreter rounds ties up and subnormal numbers down, and
    wraps what is beyond; GPUs take the even one, and the largest number for what is beyond.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter._convert_float  # noqa: SLF001
    halves = {tl.float16: "float16", tl.bfloat16: "bfloat16", tl.float32: "float32"}
    bytes_of = {tl.float8e4nv: "float8_e4m3fn", tl.float8e5: "float8_e5m2"}
    names = {**halves, **bytes_of}

    def convert(values: Any, have: Any, to: Any, rounding: Any) -> Any:
        if not {have, to} <= {*names} or not {have, to} & {*bytes_of}:
            return original(values, have, to, rounding)
        import torch

        source, result = (getattr(torch, names[t]) for t in (have, to))
        wide = torch.frombuffer(bytearray(values.tobytes()), dtype=source).float()
        if to in bytes_of:
            limit = torch.finfo(result).max
            wide = wide.clamp(-limit, limit)
        bits = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[result.itemsize]
        return wide.to(result).view(bits).numpy().reshape(values.shape)

    interpreter._convert_float = convert  # noqa: SLF001


@functools.cache
def _stay_patched() -> None:
    """Triton patches its language for each launch and each call of a function of its library, and
    looks at all names in it: half of the time of a small kernel. Nothing else runs here.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter._patch_lang  # noqa: SLF001
    patched: dict[tuple[bool, bool], Any] = {}

    def patch(function: Any) -> Any:
        seen = function.__globals__.values()
        languages = (any(v is tl for v in seen), any(v is tl.core for v in seen))
        if languages not in patched:
            patched[languages] = original(function)
        return interpreter._LangPatchScope()  # noqa: SLF001

    interpreter._patch_lang = patch  # noqa: SLF001


@functools.cache
def _leave_out_waits() -> None:
    """Kernels run one after the other here: they have nothing to wait for."""
    from triton.language.extra import cuda

    cuda.gdc_wait = cuda.gdc_launch_dependents = lambda: None


@functools.cache
def _check_positions() -> None:
    """The assembly of emitted kernels, which ends one that would write outside of a tensor."""
    import triton.language as tl

    def checked(_text: str, _constraints: str, values: Any, **_how: Any) -> Any:
        position, count = values
        places = position.handle.data
        assert ((places >= 0) & (places < count.handle.data.item())).all(), "outside"
        return position

    tl.inline_asm_elementwise = checked


def _tf32_product(a: _Floats, b: _Floats, *, in_parts: bool) -> _Floats:
    """The product of matrices of float32 by tensor cores, which see the bits of TF32 alone, or with
    each operand ``in_parts``; the interpreter multiplies float32 whatever precision is asked for.
    """
    if not in_parts:
        product: _Floats = _seen(a) @ _seen(b)
    else:
        (left, left_rest), (right, right_rest) = _tf32_parts(a), _tf32_parts(b)
        small = left_rest @ right + left @ right_rest
        product = left @ right + np.where(np.isnan(small), np.float32(0), small)
    return product


def _tf32_parts(x: _Floats) -> tuple[_Floats, _Floats]:
    """The nearest numbers of TF32, ties away from zero, and what is seen of what they leave."""
    away = (np.ascontiguousarray(x).view(np.uint32) + np.uint32(1 << 12)).view(np.float32)
    whole = np.where(np.isfinite(x), _seen(away), x)
    with np.errstate(invalid="ignore"):
        return whole, _seen(x - whole)


def _seen(x: _Floats) -> _Floats:
    """What tensor cores see of float32: 10 bits of its mantissa."""
    bits = np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), x, bits.view(np.float32))


def _bfloat16_values(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = (bits.astype(np.uint32) << 16).view(np.float32)
    return values


def _bfloat16_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import torch

    rounded = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
    bits: np.ndarray[Any, Any] = rounded.view(torch.int16).numpy().view(np.uint16)
    return bits


def _run(step: Mapping[str, Any], tensors: Mapping[str, _Guarded]) -> None:
    if "zero" in step:
        tensors[step["zero"]].tensor.zero_()
        return
    if "torch" in step:
        found = load_module(step["torch"], "eager").run(*(tensors[n].tensor for n in step["args"]))
        made = found if isinstance(found, tuple) else (found,)
        for name, value in zip(step["results"], made, strict=True):
            tensors[name].tensor.copy_(value)
        return
    if "library" in step:
        arguments = (tensors[name].tensor for name in step["args"])
        text = step.get("convolution")
        function = library_function(step["library"], read_convolution(text) if text else None)
        function(*arguments, out=tensors[step["result"]].tensor)
        return
    module = load_module(step["source"], step["name"])
    # Masked lanes may overflow; what is stored is judged by the caller.
    with np.errstate(all="ignore"):
        if "launched_on" in step:
            module.launch(*(tensors[name].tensor for name in step["launched_on"]))
            return
        function = getattr(module, step["name"])
        tensor_arguments = (_argument(step, n, tensors) for n in step["pointers"])
        function[(step["grid"],)](*tensor_arguments, *step["scalars"])


def _argument(step: Mapping[str, Any], name: str, tensors: Mapping[str, _Guarded]) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    tile = step["tiles"].get(name)
    tensor = tensors[name].tensor
    return tensor if tile is None else TensorDescriptor.from_tensor(tensor, tile)


def _allocate(facts: Mapping[str, Any]) -> _Guarded:
    import torch

    shape, strides = facts["shape"], facts["strides"]
    span = 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
    dtype: torch.dtype = getattr(torch, facts["dtype"])
    guard = _guard(dtype)
    buffer = torch.cat([guard, guard.new_full([span], guard[0].item()), guard]).view(dtype)
    tensor = buffer.as_strided(shape, strides, _GUARD_ELEMENTS)
    return _Guarded(tensor, buffer, _GUARD_ELEMENTS + span)


@functools.cache
def _guard(dtype: torch.dtype) -> torch.Tensor:
    """What lies before and behind a tensor, as the bits of whole numbers."""
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    clean = torch.tensor(poison(dtype), dtype=torch.float64).to(dtype).view(bits)
    return clean.repeat(_GUARD_ELEMENTS)


def _from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    import torch

    return torch.from_numpy(array)


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    import torch

    result: np.ndarray[Any, Any] = tensor.to(torch.float64).contiguous().numpy()
    return result
