"""Where the windows of a convolution lie on its image, axis by axis, for an implicit matmul.

A transposed convolution with stride s writes s phases of results: place q and phase r are the
result q * s + r. All phases of a place read the same few elements of the image. Each phase uses
only the window positions that fall on these elements; its weight is zero for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.program import Tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: at each of ``places``, ``taps`` elements of the image are read. Place q and tap m
    read element ``q * step + m * reach`` of an image with ``before`` zeros in front. For phase r
    that is position ``(r + start - m * turn) / dilation`` of the window, if this is a whole number
    below ``extent``.
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
        """How many elements of the image the windows span."""
        return (self.places - 1) * self.step + (self.taps - 1) * self.reach + 1

    def position(self, phase: int, tap: int) -> int | None:
        """The window position that a tap falls on; None if there is none."""
        at, rest = divmod(phase + self.start - tap * self.turn, self.dilation)
        return at if not rest and 0 <= at < self.extent else None

    @property
    def is_full(self) -> bool:
        """Whether every tap of every phase falls on a position."""
        pairs = ((r, m) for r in range(self.phases) for m in range(self.taps))
        return all(self.position(r, m) is not None for r, m in pairs)


def axes_of(spec: Convolution, taps: Tensor) -> tuple[Axis, ...] | None:
    """The axes that windows slide along; None if no tap falls on a position."""
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
