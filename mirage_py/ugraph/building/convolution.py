"""The program of a convolution, at any sizes: what a library call is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program

# Sizes of samples, groups, channels of the input and of the result: none like another.
_SMALL = {"n": 2, "g": 3, "c": 4, "o": 5}
_FEW_WINDOWS = 4


def small_sizes(
    spec: Convolution, input_shape: Sequence[int], weight_shape: Sequence[int]
) -> tuple[Mapping[str, int], Mapping[str, int], tuple[int, ...]]:
    """Extents of the parts of input and weight, and counts, with few windows along each axis.

    Paddings in front and behind stay as they are, and so do kernels.
    """
    of_input = spec.extents(0, input_shape)
    of_weight = spec.extents(1, weight_shape)
    for known in (of_input, of_weight):
        known.update({p: min(n, _SMALL[p]) for p, n in known.items() if p in _SMALL})
    counts = list(spec.counts)
    for axis, stride in enumerate(spec.stride):
        size, part = of_input.get(str(axis), 1), str(axis)
        reach = (of_weight.get(part, 1) - 1) * spec.dilation[axis] + 1
        # What an element more of the input, or a window more, brings of the other.
        step_of_size, step_of_count = (1, stride) if spec.transposed else (stride, 1)
        enough = max(reach, _FEW_WINDOWS)
        while counts[axis] - step_of_count >= _FEW_WINDOWS and size - step_of_size >= enough:
            counts[axis] -= step_of_count
            size -= step_of_size
        if part in of_input:
            of_input[part] = size
    return of_input, of_weight, tuple(counts)


def convolution_program(
    spec: Convolution,
    of_input: Mapping[str, int],
    of_weight: Mapping[str, int],
    counts: Sequence[int],
) -> Program:
    """The sum of products that a convolution of these extents is."""
    builder = ProgramBuilder("convolution")
    along = [str(n) for n in range(spec.rank)]
    x = _operand(builder, "x", spec.axes[0], of_input, ("n", "g", "c", *along))
    w = _operand(builder, "w", spec.axes[1], of_weight, ("g", "o", "c", *along))
    steps = zip(counts, spec.stride, spec.padding, spec.dilation, strict=True)
    at = {
        3 + n: Window(of_weight.get(str(n), 1), count, s, p, d, spec.transposed)
        for n, (count, s, p, d) in enumerate(steps)
    }
    read, _ = windows(builder, x, at, 0.0)
    batch, group, channel, *rest = read.axes
    places, inside = rest[: spec.rank], rest[spec.rank :]
    # The weight takes the dimensions of the windows.
    taps = views.retarget(builder, w, (group, w.axes[1], channel, *inside))
    summed = [d for axis in (channel, *inside) for d in axis]
    total = builder.sum(builder.apply("mul", read.node, taps.node), summed)
    known = {"n": batch, "g": group, "o": w.axes[1], **dict(zip(along, places, strict=True))}
    axes = tuple(tuple(d for p in parts for d in known[p]) for parts in spec.axes[2])
    views.output(builder, "y", NamedArray(total, axes), F32)
    return builder.build()


def _operand(
    builder: ProgramBuilder,
    name: str,
    axes: Sequence[str],
    extents: Mapping[str, int],
    order: Sequence[str],
) -> NamedArray:
    """An input with these axes, as an array with one axis for each part."""
    builder.input(name, [prod(extents[p] for p in parts) for parts in axes], F32)
    letters = "".join(axes)
    whole = views.from_input(builder, name, [*(f"{name}{n}" for n in range(len(axes)))])
    apart = views.reshape(builder, whole, [extents[p] for p in letters])
    place = dict(zip(letters, apart.axes, strict=True))
    return NamedArray(apart.node, tuple(place.get(p, ()) for p in order))
