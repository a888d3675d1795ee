"""Convolutions of the vendor's library, through torch: cuDNN on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mirage_py.ugraph.ir.convolution import Convolution

if TYPE_CHECKING:
    import torch


def convolution_of(spec: Convolution) -> Callable[..., torch.Tensor]:
    """A function of input, weight and ``out`` that gives the tensor that holds the result: ``out``,
    or one that the library made, which lies alike.
    """
    return partial(_result, spec)


def convolution_function(spec: Convolution) -> Callable[..., Any]:
    """A function of input and weight that writes ``out``."""

    def write(x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor) -> None:
        found = _result(spec, x, weight, out)
        if found is not out:
            out.copy_(found)

    return write


def _result(
    spec: Convolution, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    data, taps = _operands(spec, x, weight)
    placed = _placed(spec, out)
    if placed is not None and _wrote_in_place(spec, data, taps, placed):
        return out
    found = convolved(spec, x, weight)
    if found.dtype == out.dtype and found.stride() == out.stride():
        return found
    return out.copy_(found)


def _placed(spec: Convolution, out: torch.Tensor) -> torch.Tensor | None:
    """The result with the axes of torch's convolution, where they are only in another order: with
    channels last the library computes in that memory format.
    """
    wanted = ("n", "go", *(str(n) for n in range(spec.rank)))
    if sorted(spec.axes[2]) != sorted(wanted):
        return None
    return out.permute([spec.axes[2].index(parts) for parts in wanted])


def convolved(spec: Convolution, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The convolution of two tensors, its axes as ``spec`` has them."""
    data, taps = _operands(spec, x, weight)
    known = spec.extents(0, x.shape) | spec.extents(1, weight.shape)
    extents = {p: known.get(p, 1) for p in "ngo"}
    extents |= {str(n): count for n, count in enumerate(spec.counts)}
    apart = _called(spec, data, taps).reshape(list(extents.values()))
    parts, letters = list(extents), "".join(spec.axes[2])
    order = [p for p in parts if p not in letters] + list(letters)
    shape = spec.result_shape(x.shape, weight.shape)
    return apart.permute([parts.index(p) for p in order]).reshape(shape)


def _operands(
    spec: Convolution, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Input and weight with the axes of torch's convolution."""
    of_input, of_weight = spec.extents(0, x.shape), spec.extents(1, weight.shape)
    along = [str(n) for n in range(spec.rank)]
    data = _laid_out(x, spec.axes[0], of_input, ("n", "gc", *along))
    sides = ("gc", "o") if spec.transposed else ("go", "c")
    taps = _laid_out(weight, spec.axes[1], of_weight, (*sides, *along)).to(data.dtype)
    return data, taps


def _laid_out(
    x: torch.Tensor, axes: Sequence[str], extents: Mapping[str, int], wanted: Sequence[str]
) -> torch.Tensor:
    """The tensor with these axes; a view where it has them already."""
    letters = "".join(axes)
    order = [p for parts in wanted for p in parts]
    apart = x.reshape([extents[p] for p in letters])
    turned = apart.permute([letters.index(p) for p in order if p in letters])
    shape = []
    for parts in wanted:
        count = 1
        for p in parts:
            count *= extents.get(p, 1)
        shape.append(count)
    return turned.reshape(shape)


def _called(spec: Convolution, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """torch's convolution; it pads alike on both sides, what is more behind is put there before."""
    import torch
    import torch.nn.functional as F

    sizes, kernel, rank = x.shape[2:], weight.shape[2:], spec.rank
    reach = [d * (k - 1) for d, k in zip(spec.dilation, kernel, strict=True)]
    if spec.transposed:
        function: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        full = [(sizes[n] - 1) * spec.stride[n] + reach[n] + 1 for n in range(rank)]
        even = [spec.counts[n] - full[n] + 2 * spec.padding[n] for n in range(rank)]
        # torch's output_padding, where it takes as much.
        most = map(max, spec.stride, spec.dilation)
        if all(0 <= e < m for e, m in zip(even, most, strict=True)):
            result: torch.Tensor
            if _is_timed(spec, x):
                result = torch.ops.aten.cudnn_convolution_transpose(
                    x, weight, spec.padding, even, spec.stride, spec.dilation, spec.groups,
                    True, True, torch.backends.cudnn.allow_tf32,
                )  # fmt: skip
                return result
            result = function(
                x, weight, None, spec.stride, spec.padding, even, spec.groups, spec.dilation
            )
            return result
        result = function(x, weight, None, spec.stride, 0, 0, spec.groups, spec.dilation)
        short = [max(0, spec.padding[n] + spec.counts[n] - full[n]) for n in range(rank)]
        result = F.pad(result, [e for s in reversed(short) for e in (0, s)])
        for n in range(rank):
            result = result.narrow(2 + n, spec.padding[n], spec.counts[n])
        return result
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    behind = [
        (spec.counts[n] - 1) * spec.stride[n] + reach[n] + 1 - sizes[n] - 2 * spec.padding[n]
        for n in range(rank)
    ]
    if any(b > 0 for b in behind):
        x = F.pad(x, [e for b in reversed(behind) for e in (0, max(b, 0))])
    result = function(x, weight, None, spec.stride, spec.padding, spec.dilation, spec.groups)
    for n in range(rank):
        result = result.narrow(2 + n, 0, spec.counts[n])
    return result


def _wrote_in_place(
    spec: Convolution, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor
) -> bool:
    """Whether cuDNN wrote the result where it belongs; else it is copied there."""
    import torch

    entry: Any = getattr(torch.ops.aten.cudnn_convolution, "out", None)
    even = all(
        (count - 1) * s + d * (k - 1) + 1 <= size + 2 * p < count * s + d * (k - 1) + 1
        for count, s, d, p, k, size in zip(
            spec.counts, spec.stride, spec.dilation, spec.padding, weight.shape[2:], x.shape[2:],
            strict=True,
        )
    )  # fmt: skip
    usable = entry is not None and out.dtype == x.dtype and _is_timed(spec, x)
    if not usable or not even or spec.transposed:
        return False
    entry(
        x, weight, spec.padding, spec.stride, spec.dilation, spec.groups, True, True,
        torch.backends.cudnn.allow_tf32, out=out,
    )  # fmt: skip
    return True


def _is_timed(spec: Convolution, x: torch.Tensor) -> bool:
    """Whether cuDNN is called past torch's own choice, to time its algorithms at the first call:
    the shapes of a plan never change. Of deterministic ones, which torch keeps apart from those
    that it takes without timing. Where no channels are summed torch has kernels of its own.
    """
    import torch

    sums_channels = "c" in "".join(spec.axes[0])
    return x.is_cuda and spec.rank > 1 and sums_channels and torch.backends.cudnn.enabled
