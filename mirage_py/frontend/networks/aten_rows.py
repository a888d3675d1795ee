"""ATen operators as operators of networks: a table of handlers.

A handler gets the builder and the operator's arguments, with values of the graph in the place of
tensors, and returns a value, or one for each result. InputError and UnsupportedError say that a
call is no operator of networks: it is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

from mirage_py.errors import UnsupportedError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Value
from mirage_py.ugraph.ir.dtypes import dtype

Handler = Callable[..., Any]
_H = TypeVar("_H", bound=Handler)
HANDLERS: dict[str, Handler] = {}

Numbers = Sequence[int] | int


def handles(*names: str) -> Callable[[_H], _H]:
    """Register a handler for ATen operators."""

    def add(handler: _H) -> _H:
        HANDLERS.update(dict.fromkeys((f"aten.{name}" for name in names), handler))
        return handler

    return add


def refuse(why: str) -> UnsupportedError:
    """The error of a call that is no operator of networks."""
    return UnsupportedError("a call that is no operator of networks", why=why)


def tuple_of(numbers: Numbers, count: int) -> tuple[int, ...]:
    """One number for each axis; torch takes one for all."""
    found = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return found * count if len(found) == 1 else found


def axis_of(b: GraphBuilder, x: Value, axis: int) -> int:
    """An axis counted from the front."""
    return axis % max(b.type_of(x).rank, 1)


# -- elementwise ---------------------------------------------------------------------------------


def _unary(name: str) -> Handler:
    return lambda b, x: b.apply(name, x)


for _name in (
    "neg",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "abs",
    "erf",
    "relu",
    "sigmoid",
    "silu",
    "tanh",
):
    handles(f"{_name}.default", f"{_name}_.default")(_unary(_name))
handles("mish.default")(_unary("mish"))
handles("hardswish.default", "hardswish_.default")(_unary("hardswish"))


@handles("gelu.default")
def _gelu(b: GraphBuilder, x: Value, approximate: str = "none") -> Value:
    return b.apply("gelu" if approximate == "none" else "gelu_tanh", x)


def _same(one: Any, other: Any) -> None:
    if not isinstance(one, Value) or not isinstance(other, Value):
        raise refuse("an operand is no tensor")


@handles("add.Tensor", "add.Scalar", "add_.Tensor", "add_.Scalar")
def _add(b: GraphBuilder, x: Any, y: Any, alpha: float = 1) -> Value:
    if isinstance(x, Value) and isinstance(y, (int, float)):
        return b.apply("shift", x, term=float(y * alpha))
    _same(x, y)
    if alpha != 1:
        y = b.apply("scale", y, factor=float(alpha))
    return b.apply("add", x, y)


@handles("sub.Tensor", "sub.Scalar", "sub_.Tensor")
def _sub(b: GraphBuilder, x: Any, y: Any, alpha: float = 1) -> Value:
    if isinstance(x, Value) and isinstance(y, (int, float)):
        return b.apply("shift", x, term=-float(y * alpha))
    _same(x, y)
    if alpha != 1:
        y = b.apply("scale", y, factor=float(alpha))
    return b.apply("sub", x, y)


@handles("rsub.Scalar")
def _rsub(b: GraphBuilder, x: Value, y: float, alpha: float = 1) -> Value:
    return b.apply("shift", b.apply("scale", x, factor=-float(alpha)), term=float(y))


@handles("mul.Tensor", "mul.Scalar", "mul_.Tensor")
def _mul(b: GraphBuilder, x: Any, y: Any) -> Value:
    if isinstance(x, Value) and isinstance(y, (int, float)):
        return b.apply("scale", x, factor=float(y))
    _same(x, y)
    return b.apply("mul", x, y)


@handles("div.Tensor", "div.Scalar", "div_.Tensor")
def _div(b: GraphBuilder, x: Any, y: Any) -> Value:
    if isinstance(x, Value) and isinstance(y, (int, float)) and y:
        return b.apply("scale", x, factor=1.0 / float(y))
    _same(x, y)
    return b.apply("div", x, y)


@handles("maximum.default")
def _maximum(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.apply("maximum", x, y)


@handles("pow.Tensor_Scalar")
def _pow(b: GraphBuilder, x: Value, exponent: float) -> Value:
    if exponent != 2:
        raise refuse("only squares are")
    return b.apply("square", x)


@handles("_to_copy.default")
def _cast(b: GraphBuilder, x: Value, dtype: Any = None, **other: Any) -> Value:
    if any(v is not None for k, v in other.items() if k != "non_blocking") or dtype is None:
        raise refuse("it does more than to round")
    return b.apply("cast", x, to=dtype_name(dtype))


def dtype_name(torch_dtype: Any) -> str:
    """The name of a torch type, or UnsupportedError."""
    from mirage_py.ugraph.ir import dtypes

    wanted = str(torch_dtype).removeprefix("torch.")
    for known in vars(dtypes).values():
        if isinstance(known, dtypes.DType) and known.torch_name == wanted:
            return dtype(known.name).name
    raise refuse(f"{wanted} is no element type of networks")


@handles("clone.default", "contiguous.default", "alias.default", "detach.default")
def _itself(b: GraphBuilder, x: Value, memory_format: Any = None) -> Value:
    return x


@handles("dropout.default")
def _dropout(b: GraphBuilder, x: Value, p: float, train: bool) -> Value:
    if train:
        raise refuse("it is random")
    return x


# -- products ------------------------------------------------------------------------------------


@handles("mm.default", "matmul.default")
def _matmul(b: GraphBuilder, x: Value, w: Value) -> Value:
    return b.apply("matmul", x, w)


@handles("bmm.default")
def _bmm(b: GraphBuilder, x: Value, w: Value) -> Value:
    return b.apply("bmm", x, w)


@handles("addmm.default")
def _addmm(
    b: GraphBuilder, c: Value, x: Value, w: Value, beta: float = 1, alpha: float = 1
) -> Value:
    if beta != 1 or alpha != 1:
        raise refuse("its factors are not 1")
    return b.apply("add", b.apply("matmul", x, w), c)


@handles("linear.default")
def _linear(b: GraphBuilder, x: Value, w: Value, bias: Value | None = None) -> Value:
    product = b.apply("matmul", x, b.apply("transpose", w, perm=(1, 0)))
    return product if bias is None else b.apply("add", product, bias)


@handles("convolution.default")
def _convolution(
    b: GraphBuilder, x: Value, w: Value, bias: Value | None, stride: Numbers, padding: Numbers,
    dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
) -> Value:  # fmt: skip
    rank = b.type_of(x).rank - 2
    given = {
        "stride": tuple_of(stride, rank),
        "padding": tuple_of(padding, rank),
        "dilation": tuple_of(dilation, rank),
        "groups": groups,
    }
    if transposed:
        given["output_padding"] = tuple_of(output_padding, rank)
    y = b.apply(f"conv_transpose{rank}d" if transposed else f"conv{rank}d", x, w, **given)
    if bias is None:
        return y
    return b.apply(
        "add", y, b.apply("reshape", bias, shape=(1, b.type_of(bias).shape[0], *(1,) * rank))
    )


@handles("conv1d.default", "conv2d.default", "conv3d.default")
def _conv(
    b: GraphBuilder, x: Value, w: Value, bias: Value | None = None, stride: Numbers = 1,
    padding: Numbers = 0, dilation: Numbers = 1, groups: int = 1,
) -> Value:  # fmt: skip
    return _convolution(b, x, w, bias, stride, padding, dilation, False, 0, groups)


@handles("conv1d.padding", "conv2d.padding", "conv3d.padding")
def _conv_padding(
    b: GraphBuilder, x: Value, w: Value, bias: Value | None = None, stride: Numbers = 1,
    padding: str = "valid", dilation: Numbers = 1, groups: int = 1,
) -> Value:  # fmt: skip
    kernel = b.type_of(w).shape[2:]
    steps = tuple_of(dilation, len(kernel))
    reach = [d * (k - 1) for d, k in zip(steps, kernel, strict=True)]
    if padding == "same" and any(r % 2 for r in reach):
        raise refuse("its padding is not the same on both sides")
    around = [r // 2 if padding == "same" else 0 for r in reach]
    return _convolution(b, x, w, bias, stride, around, dilation, False, 0, groups)


# -- norms and pools -----------------------------------------------------------------------------


def _batch_norm(
    b: GraphBuilder, x: Value, gain: Value | None, bias: Value | None, mean: Value, variance: Value,
    eps: float,
) -> Value:  # fmt: skip
    if gain is None or bias is None or mean is None:
        raise refuse("it has no gain, no bias or no statistics")
    return b.apply("batch_norm", x, gain, bias, mean, variance, eps=eps)


@handles("batch_norm.default")
def _batch_norm_call(
    b: GraphBuilder, x: Value, gain: Value, bias: Value, mean: Value, variance: Value,
    training: bool, momentum: float, eps: float, cudnn: bool,
) -> Value:  # fmt: skip
    if training:
        raise refuse("its statistics are those of the batch")
    return _batch_norm(b, x, gain, bias, mean, variance, eps)


@handles("_native_batch_norm_legit_no_training.default")
def _inference_norm(
    b: GraphBuilder, x: Value, gain: Value, bias: Value, mean: Value, variance: Value,
    momentum: float, eps: float,
) -> tuple[Value | None, ...]:  # fmt: skip
    return _batch_norm(b, x, gain, bias, mean, variance, eps), None, None


@handles("native_batch_norm.default", "cudnn_batch_norm.default")
def _native_norm(
    b: GraphBuilder, x: Value, gain: Value, bias: Value, mean: Value, variance: Value,
    training: bool, momentum: float, eps: float,
) -> tuple[Value | None, ...]:  # fmt: skip
    if training:
        raise refuse("its statistics are those of the batch")
    return _batch_norm(b, x, gain, bias, mean, variance, eps), None, None


def _max_pool(rank: int) -> Handler:
    def handler(
        b: GraphBuilder, x: Value, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        dilation: Numbers = 1, ceil: bool = False,
    ) -> Value:  # fmt: skip
        windows = tuple_of(kernel, rank)
        return b.apply(
            f"max_pool{rank}d", x, kernel=windows, stride=tuple_of(stride, rank) or windows,
            padding=tuple_of(padding, rank), dilation=tuple_of(dilation, rank), ceil=int(ceil),
        )  # fmt: skip

    return handler


def _avg_pool(rank: int) -> Handler:
    def handler(
        b: GraphBuilder, x: Value, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        ceil: bool = False, count_padding: bool = True, divisor: int | None = None,
    ) -> Value:  # fmt: skip
        if divisor is not None:
            raise refuse("it has a divisor of its own")
        windows = tuple_of(kernel, rank)
        return b.apply(
            f"avg_pool{rank}d", x, kernel=windows, stride=tuple_of(stride, rank) or windows,
            padding=tuple_of(padding, rank), ceil=int(ceil), count_padding=int(count_padding),
        )  # fmt: skip

    return handler


def _adaptive_pool(rank: int) -> Handler:
    return lambda b, x, counts: b.apply(
        f"adaptive_avg_pool{rank}d", x, counts=tuple_of(counts, rank)
    )


for _rank in (1, 2, 3):
    handles(f"max_pool{_rank}d.default")(_max_pool(_rank))
    handles(f"avg_pool{_rank}d.default")(_avg_pool(_rank))
    handles(f"adaptive_avg_pool{_rank}d.default", f"_adaptive_avg_pool{_rank}d.default")(
        _adaptive_pool(_rank)
    )


@handles("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def _with_indices(b: GraphBuilder, x: Value, kernel: Sequence[int], *args: Any) -> tuple[Any, ...]:
    return HANDLERS[f"aten.max_pool{len(kernel)}d.default"](b, x, kernel, *args), None


# -- reductions ----------------------------------------------------------------------------------


def _reduction(name: str) -> Handler:
    def handler(
        b: GraphBuilder, x: Value, dims: Sequence[int] | int | None, keep: bool = False,
        dtype: Any = None,
    ) -> Value:  # fmt: skip
        rank = b.type_of(x).rank
        axes = range(rank) if not isinstance(dims, int) and not dims else tuple_of(dims, 1)
        if dtype is not None and dtype_name(dtype) != b.type_of(x).dtype.name:
            raise refuse("it rounds")
        return b.apply(name, x, axes=tuple(sorted(a % rank for a in axes)), keep=int(keep))

    return handler


handles("sum.dim_IntList")(_reduction("sum"))
handles("mean.dim")(_reduction("mean"))
handles("amax.default")(_reduction("amax"))


@handles("softmax.int", "_softmax.default")
def _softmax(b: GraphBuilder, x: Value, axis: int, last: Any = None) -> Value:
    if last not in (None, False):
        raise refuse("it rounds")
    return b.apply("softmax", x, axis=axis_of(b, x, axis))


# -- layout --------------------------------------------------------------------------------------


@handles("view.default", "reshape.default", "_unsafe_view.default", "_reshape_copy.default")
def _reshape(b: GraphBuilder, x: Value, shape: Sequence[int]) -> Value:
    if b.type_of(x).elements == 0:
        raise refuse("it is empty")
    known = -prod(shape) if -1 in shape else 1
    whole = [b.type_of(x).elements // known if n == -1 else n for n in shape]
    return b.apply("reshape", x, shape=tuple(whole))


@handles("flatten.using_ints")
def _flatten(b: GraphBuilder, x: Value, start: int = 0, end: int = -1) -> Value:
    shape = b.type_of(x).shape
    start, end = start % len(shape), end % len(shape)
    middle = prod(shape[start : end + 1])
    return b.apply("reshape", x, shape=(*shape[:start], middle, *shape[end + 1 :]))


@handles("unsqueeze.default")
def _unsqueeze(b: GraphBuilder, x: Value, axis: int) -> Value:
    shape = list(b.type_of(x).shape)
    shape.insert(axis % (len(shape) + 1), 1)
    return b.apply("reshape", x, shape=tuple(shape))


@handles("squeeze.dim", "squeeze.dims")
def _squeeze(b: GraphBuilder, x: Value, axes: Numbers) -> Value:
    shape = b.type_of(x).shape
    gone = [a % len(shape) for a in tuple_of(axes, 1)]
    left = tuple(n for a, n in enumerate(shape) if a not in gone or n != 1)
    return b.apply("reshape", x, shape=left)


@handles("permute.default")
def _permute(b: GraphBuilder, x: Value, axes: Sequence[int]) -> Value:
    return b.apply("transpose", x, perm=tuple(a % len(axes) for a in axes))


@handles("transpose.int")
def _transpose(b: GraphBuilder, x: Value, one: int, other: int) -> Value:
    perm = list(range(b.type_of(x).rank))
    perm[one], perm[other] = perm[other], perm[one]
    return b.apply("transpose", x, perm=tuple(perm))


@handles("t.default")
def _t(b: GraphBuilder, x: Value) -> Value:
    rank = b.type_of(x).rank
    return x if rank < 2 else b.apply("transpose", x, perm=(1, 0))


@handles("expand.default")
def _expand(b: GraphBuilder, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    old = b.type_of(x).shape
    front = len(shape) - len(old)
    whole = [old[n - front] if size == -1 else size for n, size in enumerate(shape)]
    return b.apply("expand", x, shape=tuple(whole))


@handles("cat.default")
def _cat(b: GraphBuilder, values: Sequence[Value], axis: int = 0) -> Value:
    return b.apply("concat", *values, axis=axis_of(b, values[0], axis))


@handles("slice.Tensor")
def _slice(
    b: GraphBuilder, x: Value, axis: int = 0, start: int | None = None, stop: int | None = None,
    step: int = 1,
) -> Value:  # fmt: skip
    axis = axis_of(b, x, axis)
    size = b.type_of(x).shape[axis]
    first, last, by = slice(start, stop, step).indices(size)
    if (first, last, by) == (0, size, 1):
        return x
    return b.apply("slice", x, axis=axis, start=first, stop=last, step=by)


@handles("select.int")
def _select(b: GraphBuilder, x: Value, axis: int, place: int) -> Value:
    axis, shape = axis_of(b, x, axis), b.type_of(x).shape
    place %= shape[axis]
    part = b.apply("slice", x, axis=axis, start=place, stop=place + 1, step=1)
    return b.apply("reshape", part, shape=(*shape[:axis], *shape[axis + 1 :]))


@handles("split_with_sizes.default")
def _split_sizes(
    b: GraphBuilder, x: Value, sizes: Sequence[int], axis: int = 0
) -> tuple[Value, ...]:
    return b.apply_all("split", x, axis=axis_of(b, x, axis), sizes=tuple(sizes))


@handles("split.Tensor")
def _split(b: GraphBuilder, x: Value, size: int, axis: int = 0) -> tuple[Value, ...]:
    axis = axis_of(b, x, axis)
    whole = b.type_of(x).shape[axis]
    return _split_sizes(b, x, [min(size, whole - n) for n in range(0, whole, size)], axis)


@handles("chunk.default")
def _chunk(b: GraphBuilder, x: Value, count: int, axis: int = 0) -> tuple[Value, ...]:
    whole = b.type_of(x).shape[axis_of(b, x, axis)]
    return _split(b, x, -(-whole // count), axis)


@handles("constant_pad_nd.default", "pad.default")
def _pad(
    b: GraphBuilder, x: Value, amounts: Sequence[int], *mode: Any, value: float | None = None
) -> Value:
    number = value
    for given in mode:
        if isinstance(given, str) and given != "constant":
            raise refuse("it pads with elements of the tensor")
        if isinstance(given, (int, float)):
            number = given
    front = b.type_of(x).rank - len(amounts) // 2
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    before = (*(0,) * front, *(p[0] for p in pairs))
    after = (*(0,) * front, *(p[1] for p in pairs))
    return b.apply("pad", x, before=before, after=after, value=float(number or 0.0))
