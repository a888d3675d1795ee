"""Where the windows of a convolution lie on its image, axis by axis, as a matmul has them.

A transposed convolution with steps of s writes s phases of results: place q and phase r are the
result q * s + r. All phases of a place read the same few elements of the image, and each has the
positions of the window that meet it there; of others the weight is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.program import Tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """``taps`` elements of the image at each of ``places``: place q reads at tap m the element
    ``q * step + m * reach`` of an image with ``before`` zeros in front. Of phase r that meets the
    position ``(r + start - m * turn) / dilation`` of the window's ``extent``, where there is one.
    """

    places: int
    phases: int
    step: int
    taps: int
    reach: int
    before: int
    start: int
    turn: int
    dilation: int
    extent: int

    @property
    def span(self) -> int:
        """Elements of the image that windows reach."""
        return (self.places - 1) * self.step + (self.taps - 1) * self.reach + 1

    def position(self, phase: int, tap: int) -> int | None:
        """The position of the window that a tap meets."""
        at, rest = divmod(phase + self.start - tap * self.turn, self.dilation)
        return at if not rest and 0 <= at < self.extent else None

    @property
    def is_full(self) -> bool:
        """Whether every tap of every phase meets a position."""
        pairs = ((r, m) for r in range(self.phases) for m in range(self.taps))
        return all(self.position(r, m) is not None for r, m in pairs)


def axes_of(spec: Convolution, taps: Tensor) -> tuple[Axis, ...] | None:
    """The axes that windows slide along; None where no phase meets anything."""
    kernel = spec.extents(1, taps.shape)
    found = []
    for n in range(spec.rank):
        extent, count = kernel.get(str(n), 1), spec.counts[n]
        stride, padding, dilation = spec.stride[n], spec.padding[n], spec.dilation[n]
        if not spec.transposed:
            # Position m at tap m.
            found.append(Axis(count, 1, stride, extent, dilation, padding, 0, -1, 1, extent))
            continue
        met = [
            (r + padding - k * dilation) // stride
            for r in range(stride)
            for k in range(extent)
            if (r + padding - k * dilation) % stride == 0
        ]
        if not met:
            return None
        first, last = min(met), max(met)
        reach = gcd(*(e - first for e in met)) or 1
        start, turn = padding - first * stride, reach * stride
        if stride == 1:
            start, turn, dilation = start // dilation, -(-turn // dilation), 1
        found.append(
            Axis(
                places=-(-count // stride),
                phases=stride,
                step=1,
                taps=(last - first) // reach + 1,
                reach=reach,
                before=-first,
                start=start,
                turn=turn,
                dilation=dilation,
                extent=extent,
            )
        )
    return tuple(found)
