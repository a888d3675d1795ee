"""Operators of ONNX as calls of torch: a table of functions.

A function gets the operands (None for one that is left out) and the attributes. What decides shapes
(of Reshape, Slice, Pad ...) has to be known when the model is read: ``known`` gives its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mirage_py.errors import UnsupportedError

F = torch.nn.functional
Attributes = Mapping[str, Any]
Row = Callable[..., Any]


def known(value: Any, what: str) -> list[int]:
    """The whole numbers of an operand that the model holds."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch._subclasses.FakeTensor):  # noqa: SLF001
        return [int(n) for n in value.flatten().tolist()]
    raise UnsupportedError(
        f"{what} is computed by the model",
        why="sizes have to be known before the first call",
        repair="export the model with constant shapes",
    )


def _around(
    x: torch.Tensor, a: Attributes, kernel: Sequence[int], value: float
) -> tuple[Any, list[int]]:
    """The operand and the padding on both sides; unequal sides are padded before."""
    rank = len(kernel)
    automatic = a.get("auto_pad", "NOTSET")
    pads = list(a.get("pads", [0] * (2 * rank)))
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        steps, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
        before, after = [], []
        for size, k, s, d in zip(x.shape[2:], kernel, steps, dilations, strict=True):
            total = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
            less, more = total // 2, total - total // 2
            before.append(less if automatic == "SAME_UPPER" else more)
            after.append(more if automatic == "SAME_UPPER" else less)
        pads = [*before, *after]
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    pairs = list(zip(pads[:rank], pads[rank:], strict=True))[::-1]
    return F.pad(x, [n for pair in pairs for n in pair], value=value), [0] * rank


def _conv(a: Attributes, x: Any, w: Any, bias: Any = None) -> Any:
    rank = w.dim() - 2
    x, padding = _around(x, a, w.shape[2:], 0.0)
    call = getattr(F, f"conv{rank}d")
    stride, dilation = a.get("strides", 1), a.get("dilations", 1)
    return call(x, w, bias, stride, padding, dilation, a.get("group", 1))


def _conv_transpose(a: Attributes, x: Any, w: Any, bias: Any = None) -> Any:
    rank = w.dim() - 2
    pads = list(a.get("pads", [0] * (2 * rank)))
    if pads[:rank] != pads[rank:] or "output_shape" in a or a.get("auto_pad", "NOTSET") != "NOTSET":
        raise UnsupportedError("a ConvTranspose whose padding differs on its sides")
    call = getattr(F, f"conv_transpose{rank}d")
    return call(
        x, w, bias, a.get("strides", 1), pads[:rank], a.get("output_padding", 0),
        a.get("group", 1), a.get("dilations", 1),
    )  # fmt: skip


def _max_pool(a: Attributes, x: Any) -> Any:
    kernel = a["kernel_shape"]
    x, padding = _around(x, a, kernel, float("-inf"))
    call = getattr(F, f"max_pool{len(kernel)}d")
    stride, dilation = a.get("strides", [1] * len(kernel)), a.get("dilations", 1)
    return call(x, kernel, stride, padding, dilation, bool(a.get("ceil_mode", 0)))


def _average_pool(a: Attributes, x: Any) -> Any:
    kernel = a["kernel_shape"]
    counts = bool(a.get("count_include_pad", 0))
    padded, padding = _around(x, a, kernel, 0.0)
    if padded is not x and not counts:
        raise UnsupportedError("an AveragePool whose padding differs on its sides")
    call = getattr(F, f"avg_pool{len(kernel)}d")
    stride = a.get("strides", [1] * len(kernel))
    return call(padded, kernel, stride, padding, bool(a.get("ceil_mode", 0)), counts)


def _gemm(a: Attributes, x: Any, w: Any, c: Any = None) -> Any:
    x, w = (x.t() if a.get("transA") else x), (w.t() if a.get("transB") else w)
    product = x @ w
    if a.get("alpha", 1.0) != 1.0:
        product = product * a["alpha"]
    if c is None:
        return product
    return product + (c if a.get("beta", 1.0) == 1.0 else c * a["beta"])


def _norm(a: Attributes, x: Any, gain: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return F.batch_norm(x, mean, variance, gain, bias, False, 0.0, a.get("epsilon", 1e-5))


def _layer_norm(a: Attributes, x: Any, gain: Any, bias: Any = None) -> Any:
    axis = a.get("axis", -1) % x.dim()
    return F.layer_norm(x, x.shape[axis:], gain, bias, a.get("epsilon", 1e-5))


def _slice(a: Attributes, x: Any, first: Any, last: Any, along: Any = None, by: Any = None) -> Any:
    starts, ends = known(first, "a start of Slice"), known(last, "an end of Slice")
    axes = range(len(starts)) if along is None else known(along, "an axis of Slice")
    steps = [1] * len(starts) if by is None else known(by, "a step of Slice")
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 1:
            raise UnsupportedError("a Slice with a negative step")
        x = x[(*[slice(None)] * (axis % x.dim()), slice(start, end, step))]
    return x


def _split(a: Attributes, x: Any, sizes: Any = None) -> Any:
    axis = a.get("axis", 0)
    whole = x.shape[axis]
    if sizes is not None:
        parts = known(sizes, "an operand of Split")
    elif "split" in a:
        parts = list(a["split"])
    else:
        size = -(-whole // a["outputs"])
        parts = [min(size, whole - n) for n in range(0, whole, size)]
    return tuple(x.split(parts, axis))


def _reshape(a: Attributes, x: Any, shape: Any) -> Any:
    wanted = known(shape, "the shape of Reshape")
    keeps = not a.get("allowzero", 0)
    return x.reshape([x.shape[n] if size == 0 and keeps else size for n, size in enumerate(wanted)])


def _axes(a: Attributes, given: Any, what: str) -> list[int] | None:
    if given is not None:
        return known(given, what)
    return list(a["axes"]) if "axes" in a else None


def _unsqueeze(a: Attributes, x: Any, axes: Any = None) -> Any:
    found = _axes(a, axes, "the axes of Unsqueeze") or []
    rank = x.dim() + len(found)
    for axis in sorted(n % rank for n in found):
        x = x.unsqueeze(axis)
    return x


def _squeeze(a: Attributes, x: Any, axes: Any = None) -> Any:
    found = _axes(a, axes, "the axes of Squeeze")
    return x.squeeze() if found is None else x.squeeze(found)


def _reduction(call: Row) -> Row:
    def row(a: Attributes, x: Any, axes: Any = None) -> Any:
        found = _axes(a, axes, "the axes of a reduction") or list(range(x.dim()))
        return call(x, dim=found, keepdim=bool(a.get("keepdims", 1)))

    return row


def _pad(a: Attributes, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    if a.get("mode", "constant") != "constant" or axes is not None:
        raise UnsupportedError("a Pad with elements of the tensor, or along some axes")
    amounts = list(a["pads"]) if pads is None else known(pads, "the amounts of Pad")
    rank = x.dim()
    pairs = list(zip(amounts[:rank], amounts[rank:], strict=True))[::-1]
    number = float(a.get("value", 0.0)) if value is None else float(value)
    return F.pad(x, [n for pair in pairs for n in pair], value=number)


def _clip(a: Attributes, x: Any, low: Any = None, high: Any = None) -> Any:
    bounds = [a.get("min") if low is None else low, a.get("max") if high is None else high]
    return torch.clamp(x, *[None if b is None else float(b) for b in bounds])


def _gather(a: Attributes, x: Any, places: Any) -> Any:
    axis = a.get("axis", 0) % x.dim()
    found = x.index_select(axis, places.reshape(-1))
    return found.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


def _flatten(a: Attributes, x: Any) -> Any:
    axis = a.get("axis", 1) % (x.dim() + 1)
    return x.reshape(x.shape[:axis].numel(), -1)


def _plain(call: Row) -> Row:
    return lambda a, *operands: call(*operands)


def _folded(call: Row) -> Row:
    def row(a: Attributes, first: Any, *others: Any) -> Any:
        for other in others:
            first = call(first, other)
        return first

    return row


ROWS: dict[str, Row] = {
    "Abs": _plain(torch.abs),
    "Add": _plain(torch.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _norm,
    "Clip": _clip,
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _plain(torch.div),
    "Dropout": lambda a, x, *_: x,
    "Erf": _plain(torch.erf),
    "Exp": _plain(torch.exp),
    "Expand": lambda a, x, s: x + torch.zeros(known(s, "the shape of Expand"), dtype=x.dtype),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", "none")),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "HardSwish": _plain(F.hardswish),
    "Identity": _plain(lambda x: x),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "Log": _plain(torch.log),
    "MatMul": _plain(torch.matmul),
    "Max": _folded(torch.maximum),
    "MaxPool": _max_pool,
    "Min": _folded(torch.minimum),
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "Pad": _pad,
    "Pow": _plain(torch.pow),
    "ReduceMax": _reduction(torch.amax),
    "ReduceMean": _reduction(torch.mean),
    "ReduceSum": _reduction(torch.sum),
    "Relu": _plain(torch.relu),
    "Reshape": _reshape,
    "Sigmoid": _plain(torch.sigmoid),
    "Slice": _slice,
    "Softmax": lambda a, x: x.softmax(a.get("axis", -1)),
    "Split": _split,
    "Sqrt": _plain(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _plain(torch.sub),
    "Sum": _folded(torch.add),
    "Tanh": _plain(torch.tanh),
    "Transpose": lambda a, x: x.permute(a.get("perm", list(range(x.dim()))[::-1])),
    "Unsqueeze": _unsqueeze,
    "Where": _plain(torch.where),
}
