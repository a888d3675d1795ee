"""Pooling and nearest upsampling: maxima and means over windows, and elements repeated."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirage_py.frontend.torch.handlers.convolutions import Numbers, each
from mirage_py.frontend.torch.handlers.reductions import LOWEST, amax
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.building.windows import Window, windows


@handles("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def max_pool(
    t: Lowering,
    x: NamedArray,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> NamedArray:
    """The largest element of each window."""
    node = t.builder.nodes[x.node]
    if node.op == "relu":  # it keeps the order: the maximum goes first
        inner = NamedArray(node.args[0], x.axes)
        return t.apply(
            "relu", max_pool(t, inner, kernel_size, stride, padding, dilation, ceil_mode)
        )
    along = _along(t, x, kernel_size, stride, padding, dilation)
    read, _ = windows(t.builder, x, along, LOWEST, fused=True)
    return _reduced(t, read, len(x.axes), "max")


@handles(
    "max_pool1d_with_indices.default",
    "max_pool2d_with_indices.default",
    "max_pool3d_with_indices.default",
)
def max_pool_with_indices(
    t: Lowering, x: NamedArray, kernel_size: Sequence[int], *more: object, **options: object
) -> tuple[NamedArray, None]:
    """The largest elements; where they are is not known here."""
    return max_pool(t, x, kernel_size, *more, **options), None  # type: ignore[arg-type]


@handles("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(
    t: Lowering,
    x: NamedArray,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> NamedArray:
    """The mean of each window; padding counts as zeros, or not at all."""
    del ceil_mode  # in the shape of the result
    along = _along(t, x, kernel_size, stride, padding, 1)
    read, inside = windows(t.builder, x, along, 0.0, fused=True)
    total = _reduced(t, read, len(x.axes), "sum")
    if divisor_override is not None:
        return t.apply("div", total, float(divisor_override))
    if count_include_pad:
        # What a window has behind the padding, as ceil_mode lets it, is not counted.
        shape = t.shape(x)
        padded = {p: Window(w.extent, w.count, w.stride) for p, w in along.items()}
        sizes = [shape[p] + 2 * along[p].before if p in along else 1 for p in range(len(shape))]
        if all((w.count - 1) * w.stride + w.extent <= sizes[p] for p, w in padded.items()):
            return t.apply("div", total, float(prod(w.extent for w in along.values())))
        wide, inside = windows(t.builder, t.full(sizes, 1.0), padded, 0.0)
        read = NamedArray(inside, wide.axes)
    return t.apply("div", total, _reduced(t, NamedArray(inside, read.axes), len(x.axes), "sum"))


@handles(
    "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default",
    "adaptive_avg_pool3d.default",
    "_adaptive_avg_pool2d.default",
    "_adaptive_avg_pool3d.default",
)
def adaptive_avg_pool(t: Lowering, x: NamedArray, output_size: Numbers) -> NamedArray:
    """The mean of windows that make up the axes."""
    read = _adaptive(t, x, output_size)
    dims = [d for axis in read.axes[len(x.axes) :] for d in axis]
    return NamedArray(t.builder.mean(read.node, dims), read.axes[: len(x.axes)])


@handles(
    "adaptive_max_pool1d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default"
)
def adaptive_max_pool(t: Lowering, x: NamedArray, output_size: Numbers) -> tuple[NamedArray, None]:
    """The largest element of windows that make up the axes; its place is not known here."""
    return _reduced(t, _adaptive(t, x, output_size), len(x.axes), "max"), None


@handles(
    "upsample_nearest1d.default",
    "upsample_nearest2d.default",
    "upsample_nearest3d.default",
    "upsample_nearest1d.vec",
    "upsample_nearest2d.vec",
    "upsample_nearest3d.vec",
)
def upsample_nearest(
    t: Lowering, x: NamedArray, output_size: Sequence[int] | None, *scales: object
) -> NamedArray:
    """Each element of the last axes several times."""
    del output_size, scales
    result = t.node_in_hand.meta["val"].shape
    for axis in range(2, len(x.axes)):
        times, rest = divmod(result[axis], t.shape(x)[axis])
        if rest:
            raise t.refuse(
                f"torch resamples {t.shape(x)[axis]} elements to {result[axis]}",
                why="which is nearest follows from a rounded quotient; programs repeat each alike",
                repair="use a size that is a multiple; to pick every other element, slice: x[::2]",
            )
        x = views.repeat_interleave(t.builder, x, times, axis)
    return x


def _along(
    t: Lowering,
    x: NamedArray,
    kernel_size: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
) -> dict[int, Window]:
    """The windows of the last axes, as many as torch counts (pooling_output_shape)."""
    result = t.node_in_hand.meta["val"]
    shape = (result[0] if isinstance(result, tuple) else result).shape
    kernel = kernel_size if isinstance(kernel_size, int) else list(kernel_size)
    first = len(x.axes) - _rank(t)
    rank = len(x.axes) - first
    extents = each(kernel, rank)
    steps = each(stride, rank) if stride not in ((), []) else extents
    found = zip(extents, steps, each(padding, rank), each(dilation, rank), strict=True)
    return {
        first + n: Window(k, int(shape[first + n]), s, p, d) for n, (k, s, p, d) in enumerate(found)
    }


def _rank(t: Lowering) -> int:
    """How many axes the operator in hand slides along, as its name says."""
    name = str(t.node_in_hand.target)
    return next(n for n in (1, 2, 3) if f"pool{n}d" in name)


def _adaptive(t: Lowering, x: NamedArray, output_size: Numbers) -> NamedArray:
    """The axes in equal windows."""
    rank = _rank(t)
    first = len(x.axes) - rank
    along: dict[int, Window] = {}
    for n, count in enumerate(each(output_size, rank)):
        size = t.shape(x)[first + n]
        if size % count:
            raise t.refuse(
                f"{size} elements in {count} windows of an adaptive pooling",
                why="the windows have different sizes",
                repair="use a size that the windows divide, or leave this layer to torch",
            )
        along[first + n] = Window(size // count, count, size // count)
    read, _ = windows(t.builder, x, along, 0.0)
    return read


def _reduced(t: Lowering, read: NamedArray, rank: int, op: str) -> NamedArray:
    """The windows' elements, on axes from ``rank`` on, in one; a tensor in memory."""
    inner = range(rank, len(read.axes))
    if op == "max":
        return amax(t, read, list(inner))
    dims = [d for n in inner for d in read.axes[n]]
    return NamedArray(t.builder.sum(read.node, dims), read.axes[:rank])
