"""Convolutions: what a library computes, as axes of its tensors and windows on them; and one with
what stands around it as a kernel of ours, with its tiles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from mirage_py.errors import FormatError, ValidationError


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of two tensors whose axes may be in any order.

    An axis is written as its parts, major to minor: ``n`` samples, ``g`` groups, ``c`` channels of
    the input in a group, ``o`` channels of the result in a group, ``0`` ``1`` ``2`` the axes that
    windows slide along (of the weight: the positions in a window). PyTorch's conv2d has the axes
    ``n gc 0 1, go c 0 1 -> n go 0 1``. A part that no axis has is of extent 1.

    There are ``counts`` windows along each of these. At place o and position k a window reads the
    element ``o * stride + k * dilation - padding``; where ``transposed``, the element i with
    ``i * stride + k * dilation - padding == o``. Elements beyond the ends are 0.
    """

    axes: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    groups: int
    counts: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool = False

    @property
    def rank(self) -> int:
        """How many axes windows slide along."""
        return len(self.stride)

    def extents(self, which: int, shape: Sequence[int]) -> dict[str, int]:
        """The extent of each part of the axes of the input (0), the weight (1), the result (2)."""
        axes = self.axes[which]
        if len(axes) != len(shape):
            raise ValidationError(f"{len(shape)} axes, not {len(axes)}", where="convolution")
        found: dict[str, int] = {}
        for parts, size in zip(axes, shape, strict=True):
            known = self.groups if "g" in parts else 1
            rest = parts.replace("g", "")
            if size % known or len(rest) > 1 or (not rest and size != known):
                raise ValidationError(f"an axis '{parts}' of {size} elements", where="convolution")
            if "g" in parts:
                found["g"] = known
            if rest:
                found[rest] = size // known
        return found

    def result_shape(
        self, input_shape: Sequence[int], weight_shape: Sequence[int]
    ) -> tuple[int, ...]:
        """The shape of the result."""
        of_input, of_weight = self.extents(0, input_shape), self.extents(1, weight_shape)
        if of_input.get("c", 1) != of_weight.get("c", 1):
            raise ValidationError("channels of input and weight differ", where="convolution")
        known = {"n": of_input.get("n", 1), "g": self.groups, "o": of_weight.get("o", 1)}
        known |= {str(n): count for n, count in enumerate(self.counts)}
        return tuple(prod(known.get(p, 1) for p in parts) for parts in self.axes[2])

    def flops(self, input_shape: Sequence[int], weight_shape: Sequence[int]) -> float:
        """Each result has a term for each channel and position; where it is transposed, a stride
        leaves out most of these.
        """
        parts = self.extents(1, weight_shape)
        terms = prod(n for part, n in parts.items() if part not in "go")
        results = prod(self.result_shape(input_shape, weight_shape))
        return 2.0 * results * terms / (prod(self.stride) if self.transposed else 1)

    def __str__(self) -> str:
        of_input, of_weight, of_result = (" ".join(p or "." for p in a) for a in self.axes)
        numbers = [
            f"{name} {' '.join(map(str, values))}"
            for name, values in (
                ("groups", (self.groups,)),
                ("counts", self.counts),
                ("stride", self.stride),
                ("padding", self.padding),
                ("dilation", self.dilation),
            )
        ]
        kind = ["transposed"] if self.transposed else []
        return "; ".join([f"{of_input}, {of_weight} -> {of_result}", *numbers, *kind])


def read_convolution(text: str, source: str = "convolution") -> Convolution:
    """What ``str`` of a convolution gives. Raises FormatError."""
    try:
        axes, groups, counts, stride, padding, dilation, *kind = text.split("; ")
        operands, result = axes.split(" -> ")
        of_input, of_weight = operands.split(", ")
        named = {}
        for part in (groups, counts, stride, padding, dilation):
            name, *values = part.split(" ")
            named[name] = tuple(map(int, values))
        (count,) = named["groups"]
        found = Convolution(
            (_axes(of_input), _axes(of_weight), _axes(result)),
            count,
            named["counts"],
            named["stride"],
            named["padding"],
            named["dilation"],
            kind == ["transposed"],
        )
    except (ValueError, KeyError):
        found = None
    if found is None or str(found) != text or not _is_sound(found):
        raise FormatError(
            f"{text!r} is no convolution",
            where=source,
            repair="write it as `n gc 0 1, go c 0 1 -> n go 0 1; groups 1; counts 8 8; stride 1 1; "
            "padding 0 0; dilation 1 1`",
        )
    return found


def _axes(text: str) -> tuple[str, ...]:
    return tuple(part.replace(".", "") for part in text.split())


_PARTS = ("ngc012", "goc012", "ngo012")


def _is_sound(found: Convolution) -> bool:
    """Whether each part is at most once among the axes of a tensor, and numbers are in range."""
    for axes, legal in zip(found.axes, _PARTS, strict=True):
        letters = "".join(axes)
        allowed = legal[:3] + "012"[: found.rank]
        if len(set(letters)) < len(letters) or any(p not in allowed for p in letters):
            return False
    numbers = (found.counts, found.stride, found.padding, found.dilation)
    same = all(len(n) == found.rank for n in numbers) and 1 <= found.rank <= 3
    positive = found.groups >= 1 and min(*found.counts, *found.stride, *found.dilation) >= 1
    return same and positive


@dataclass(frozen=True, slots=True)
class FusedConvolution:
    """``relu(conv(relu(x), w) + bias + residual)``, with each but the convolution left out where it
    is not wanted, or a GELU (by erf) in the place of the last relu; along two axes, or along three
    where it ``has_frames``. ``inputs`` and ``results`` are channels, of all groups; ``dtype`` is of
    all tensors, sums are float32. Places of the image are ``pitch`` elements apart, more than its
    channels where it is a slice of another one, and its channels begin ``offset`` elements behind a
    place of that; the same holds for the residual. 0 is what a tensor of its own has.

    ``pool``: the largest element (``max``) or the mean (``mean``, of all taps) of each window, with
    no weight. ``is_planar``: a channel of an image is in one piece, and not last; places are then
    side by side, and ``pitch`` and ``offset`` are channels of a sample. Only of single channels.

    ``is_separable``: the convolution of single channels of the image, rounded to ``dtype``, and a
    pointwise one of that. ``groups`` are those of the first, and the weight is both in a row.
    """

    batch: int
    inputs: int
    height: int
    width: int
    results: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: str = "bf16"
    relu_before: bool = False
    has_bias: bool = False
    has_residual: bool = False
    relu_after: bool = False
    pitch: int = 0
    offset: int = 0
    residual_pitch: int = 0
    residual_offset: int = 0
    has_frames: bool = False
    frames: int = 1
    kernel_frames: int = 1
    stride_frames: int = 1
    padding_frames: int = 0
    dilation_frames: int = 1
    gelu_after: bool = False
    pool: str = ""
    is_planar: bool = False
    is_separable: bool = False

    @classmethod
    def of(
        cls,
        image: Sequence[int],
        weight: Sequence[int],
        sliding: Sequence[Sequence[int]],
        groups: int,
        dtype: str,
    ) -> FusedConvolution:
        """A convolution with nothing around it, of the shapes of an image and a weight; ``sliding``
        are stride, padding and dilation, with a number for each axis.
        """
        stride, padding, dilation = ((v[-2], v[-1]) for v in sliding)
        kernel = (weight[-2], weight[-1])
        batch, inputs, *_, height, width = image
        spec = cls(
            batch, inputs, height, width, weight[0], kernel, stride, padding, dilation, groups,
            dtype,
        )  # fmt: skip
        if len(image) == 4:
            return spec
        return replace(
            spec,
            has_frames=True,
            frames=image[2],
            kernel_frames=weight[2],
            stride_frames=sliding[0][0],
            padding_frames=sliding[1][0],
            dilation_frames=sliding[2][0],
        )

    @property
    def taps(self) -> int:
        """Positions in a window."""
        return self.kernel_frames * prod(self.kernel)

    @property
    def window(self) -> tuple[int, ...]:
        """The shape of a window, of as many axes as images have."""
        return (self.kernel_frames, *self.kernel) if self.has_frames else self.kernel

    @property
    def space(self) -> tuple[int, ...]:
        """The places of an image by axis."""
        size = (self.height, self.width)
        return (self.frames, *size) if self.has_frames else size

    @property
    def out_space(self) -> tuple[int, ...]:
        """The places of the result by axis."""
        size = (self.out_height, self.out_width)
        return (self.out_frames, *size) if self.has_frames else size

    @property
    def sliding(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Stride, padding and dilation by axis."""
        given = (self.stride, self.padding, self.dilation)
        if not self.has_frames:
            return given
        first = (self.stride_frames, self.padding_frames, self.dilation_frames)
        stride, padding, dilation = ((n, *pair) for n, pair in zip(first, given, strict=True))
        return stride, padding, dilation

    @property
    def apart(self) -> int:
        """Elements between a place of the image and the next one."""
        return self.pitch or self.inputs

    @property
    def residual_apart(self) -> int:
        """Elements between a place of the residual and the next one."""
        return self.residual_pitch or self.results

    @property
    def out_frames(self) -> int:
        """Frames of the result."""
        reach = self.dilation_frames * (self.kernel_frames - 1)
        return (self.frames + 2 * self.padding_frames - reach - 1) // self.stride_frames + 1

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return self._count(self.height, 0)

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return self._count(self.width, 1)

    @property
    def places(self) -> int:
        """Places of the result in all samples."""
        return self.batch * prod(self.out_space)

    @property
    def is_plain_product(self) -> bool:
        """Whether each place reads the one element at it."""
        stride, padding, _ = self.sliding
        return {*self.window, *stride} == {1} and not any(padding)

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel of the result is of one of the image, and each of these of one."""
        return self.groups == self.inputs == self.results and not self.is_separable

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the weight."""
        if self.is_separable:
            return (self.inputs * self.taps + self.results * self.inputs,)
        return (self.results, self.inputs // self.groups, *self.window)

    @property
    def is_bare(self) -> bool:
        """Whether nothing follows the convolution."""
        around = (self.has_bias, self.has_residual, self.relu_after, self.gelu_after)
        return not any(around)

    @property
    def is_matmul(self) -> bool:
        """Whether it is a product of a matrix, whose rows are its places along one axis."""
        return self.is_plain_product and self.groups == self.batch == self.width == 1

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the result, channels second."""
        return (self.batch, self.results, *self.out_space)

    def _count(self, size: int, axis: int) -> int:
        reach = self.dilation[axis] * (self.kernel[axis] - 1)
        return (size + 2 * self.padding[axis] - reach - 1) // self.stride[axis] + 1


@dataclass(frozen=True, slots=True)
class ConvolutionTiles:
    """How a block works: ``rows`` x ``columns`` of a pack, ``depth`` pairs a step.

    ``is_early``: the kernel starts before the one in front has ended (programmatic dependent
    launch), whatever that is: it waits for its end before it touches any tensor, and lets the next
    one start after that.
    """

    rows: int
    columns: int
    depth: int
    pack: int = 1
    splits: int = 1
    num_warps: int = 4
    stages: int = 4
    is_early: bool = False

    def packs(self, spec: FusedConvolution) -> int:
        """How many products there are."""
        return spec.groups // self.pack

    def channels(self, spec: FusedConvolution) -> tuple[int, int]:
        """Channels of the image and of the result in a pack."""
        packs = self.packs(spec)
        return spec.inputs // packs, spec.results // packs

    def steps(self, spec: FusedConvolution) -> int:
        """Steps of the loop over all pairs."""
        inside, _ = self.channels(spec)
        return -(-spec.taps * inside // self.depth)

    def tiles(self, spec: FusedConvolution) -> tuple[int, int]:
        """Tiles of a pack along rows and columns."""
        _, outside = self.channels(spec)
        return -(-spec.places // self.rows), -(-outside // self.columns)

    def blocks(self, spec: FusedConvolution) -> int:
        """Blocks of a launch."""
        return prod(self.tiles(spec)) * self.packs(spec) * self.splits

    def packed_shape(self, spec: FusedConvolution) -> tuple[int, int, int]:
        """The shape of the packed weight."""
        inside, outside = self.channels(spec)
        return self.packs(spec), spec.taps * inside, outside


@dataclass(frozen=True, slots=True)
class WindowTiles:
    """A kernel over windows (``codegen/cuda/windows/``): tiles of its blocks by dimension of the
    result, and warps of a block. Each thread computes some neighbouring results.
    """

    grid: tuple[tuple[str, int], ...]
    num_warps: int


@dataclass(frozen=True, slots=True)
class LibraryConvolution:
    """A convolution of the library: ``is_fused``, with bias, residual and relu in its kernel, else
    with one elementwise kernel of ours after it, which applies them in place. ``is_tuned``: cuDNN
    times its algorithms at the first call of a size in a process. ``is_product``: where places read
    one element each, it is a product of matrices, with bias and relu in its kernel if no residual
    is added between them.
    """

    is_fused: bool
    is_tuned: bool = False
    is_product: bool = False


ConvolutionPlan = ConvolutionTiles | WindowTiles | LibraryConvolution
"""How a convolution with what stands around it is computed."""


def plan_text(spec: FusedConvolution, plan: ConvolutionPlan) -> str:
    """A convolution and how it is computed as text, which ``read_plan`` reads."""
    return json.dumps([asdict(spec), asdict(plan)])


def read_plan(text: str) -> tuple[FusedConvolution, ConvolutionPlan]:
    """What ``plan_text`` gave."""
    spec, plan = json.loads(text)
    numbers: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in spec.items()}
    return FusedConvolution(**numbers), plan_of(plan)


def plan_of(fields: Mapping[str, Any]) -> ConvolutionPlan:
    """A plan by its fields, as ``asdict`` gives them, also after JSON."""
    if "grid" in fields:
        grid = tuple((str(d), int(tile)) for d, tile in fields["grid"])
        return WindowTiles(grid, int(fields["num_warps"]))
    return LibraryConvolution(**fields) if "is_fused" in fields else ConvolutionTiles(**fields)
