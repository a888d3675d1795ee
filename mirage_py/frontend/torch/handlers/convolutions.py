"""Convolutions: sums of products over sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_letters

from mirage_py.frontend.torch.handlers.contractions import contract
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.ir.dtypes import dtype

Numbers = Sequence[int] | int


@handles(
    "conv1d.default",
    "conv1d.padding",
    "conv2d.default",
    "conv2d.padding",
    "conv3d.default",
    "conv3d.padding",
)
def conv(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray,
    bias: NamedArray | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> NamedArray:
    """The windows of x by the weight, summed over channels and positions, + bias."""
    return _convolved(t, x, weight, bias, stride, padding, dilation, groups, None)


@handles("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def conv_transpose(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray,
    bias: NamedArray | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> NamedArray:
    """The gradient of a convolution: x with zeros between its elements under a turned weight."""
    return _convolved(t, x, weight, bias, stride, padding, dilation, groups, output_padding)


@handles("convolution.default")
def convolution(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray,
    bias: NamedArray | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> NamedArray:
    """Either of the two, as torch.compile has it."""
    more = output_padding if transposed else None
    return _convolved(t, x, weight, bias, stride, padding, dilation, groups, more)


def _convolved(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray,
    bias: NamedArray | None,
    stride: Numbers,
    padding: Numbers | str,
    dilation: Numbers,
    groups: int,
    output_padding: Numbers | None,
) -> NamedArray:
    """``output_padding`` is there where it is transposed; the weight is then [in, out, ...]."""
    rank = len(weight.axes) - 2
    if len(x.axes) == rank + 1:
        raised = views.unsqueeze(t.builder, x, 0)
        result = _convolved(
            t, raised, weight, bias, stride, padding, dilation, groups, output_padding
        )
        return views.squeeze(t.builder, result, 0)
    shape, kernel = t.shape(x), t.shape(weight)[2:]
    strides, dilations = each(stride, rank), each(dilation, rank)
    reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    before, after = _paddings(padding, reach)
    along: dict[int, Window] = {}
    for n in range(rank):
        size, s, d = shape[2 + n], strides[n], dilations[n]
        if output_padding is None:
            count = (size + before[n] + after[n] - reach[n] - 1) // s + 1
            along[2 + n] = Window(kernel[n], count, s, before[n], d)
        else:
            more = each(output_padding, rank)[n]
            count = (size - 1) * s - before[n] - after[n] + reach[n] + more + 1
            along[2 + n] = Window(kernel[n], count, s, before[n], d, upsampled=True)
    split = all(w.is_split(shape[p]) for p, w in along.items())
    if not all(w.has_each_once(shape[p]) for p, w in along.items()):
        x = _with_repeats_in_memory(t, x)
    read, _ = windows(t.builder, x, along, 0.0)
    places, inside = ascii_letters[3 : 3 + rank], ascii_letters[10 : 10 + rank]
    channels = shape[1] // groups
    extents = t.shape(read)
    grouped = views.reshape(t.builder, read, (extents[0], groups, channels, *extents[2:]))
    outer = t.shape(weight)
    if output_padding is None:
        taps = views.reshape(t.builder, weight, (groups, outer[0] // groups, channels, *kernel))
        term = f"GOC{inside}"
    else:
        taps = views.reshape(t.builder, weight, (groups, channels, outer[1], *kernel))
        term = f"GCO{inside}"
    # Weights that are computed, as standardised or scaled ones, are an operand as a whole; without
    # windows it is a matmul as any other.
    if prod(kernel) > 1:
        t.builder.stored(taps.node)
    first = len(t.builder.nodes)
    result = contract(t, [f"NGC{places}{inside}", term], f"NGO{places}", [grouped, taps])
    t.convolved += [*range(first, len(t.builder.nodes))]
    batch, group, out, *rest = result.axes
    node = result.node if split else t.builder.stored(result.node)
    result = NamedArray(node, (batch, (*group, *out), *rest))
    if bias is None:
        return result
    return t.apply("add", result, NamedArray(bias.node, (*bias.axes, *((),) * rank)))


def _with_repeats_in_memory(t: Lowering, x: NamedArray) -> NamedArray:
    """Images upsampled by repeating their elements are copied: no library reads windows of them."""
    known = t.builder.nodes[x.node].dims
    repeated = [n for n, axis in enumerate(x.axes) if n > 1 and any(d not in known for d in axis)]
    if not repeated:
        return x
    for axis in repeated:
        x = views.renewed(t.builder, x, axis)
    return NamedArray(t.builder.cast(x.node, dtype(str(t.torch_dtype(0)))), x.axes)


def _paddings(padding: Numbers | str, reach: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Elements of padding in front and behind; ``same`` puts the odd one behind."""
    if padding == "same":
        return [r // 2 for r in reach], [r - r // 2 for r in reach]
    known = [0] * len(reach) if isinstance(padding, str) else each(padding, len(reach))
    return known, known


def each(numbers: Numbers, rank: int) -> Sequence[int]:
    """One number for each axis; torch takes one for all of them."""
    given = [numbers] if isinstance(numbers, int) else list(numbers)
    return given * rank if len(given) == 1 else given
