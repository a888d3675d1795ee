"""Depthwise convolutions with the pointwise one that alone reads them, as one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from mirage_py.dynamo.networks.convolution_kernels import Match
from mirage_py.dynamo.networks.convolution_times import Timed
from mirage_py.ugraph.ir.convolution import FusedConvolution

# Channels of the image and of the result that a block has; positions of a window, whose sums of
# small whole numbers are exact in every type.
_MOST_CHANNELS, _MOST_RESULTS, _MOST_TAPS = 128, 256, 28


@dataclass(frozen=True)
class Pair:
    """Two matches, and the one that is both."""

    deep: Match
    point: Match
    whole: Match


def pairs(found: Sequence[Match]) -> list[Pair]:
    """The pairs among matches; nothing is between the two, and nothing else reads the first."""
    deep = {m.last: m for m in found if _is_deep(m)}
    return [
        Pair(deep[m.image], m, _whole(deep[m.image], m))
        for m in found
        if m.image in deep and _is_point(m) and len(m.image.users) == 1
    ]


def chosen_pairs(found: Sequence[Pair], times: Mapping[FusedConvolution, Timed]) -> list[Pair]:
    """Those that take less time as one kernel than as two of any kind."""

    def best_us(match: Match) -> float:
        timed = times[match.spec]
        return min(timed.us, timed.library_us)

    def pays(pair: Pair) -> bool:
        timed = times[pair.whole.spec]
        return timed.pays and timed.us < best_us(pair.deep) + best_us(pair.point)

    return [pair for pair in found if pays(pair)]


def without_pairs(found: Sequence[Match], taken: Sequence[Pair]) -> list[Match]:
    """The matches with pairs as one, where the second of them was."""
    gone = {id(pair.deep) for pair in taken}
    whole = {id(pair.point): pair.whole for pair in taken}
    return [whole.get(id(m), m) for m in found if id(m) not in gone]


def _is_deep(match: Match) -> bool:
    spec = match.spec
    fits = 1 < spec.taps <= _MOST_TAPS and spec.inputs <= _MOST_CHANNELS
    plain = spec.is_bare and not (spec.pool or spec.is_planar or spec.has_frames)
    return spec.is_depthwise and fits and plain


def _is_point(match: Match) -> bool:
    spec = match.spec
    plain = spec.is_plain_product and spec.groups == 1 and not (spec.has_frames or match.is_rows)
    return plain and not (spec.relu_before or spec.pitch) and spec.results <= _MOST_RESULTS


def _whole(deep: Match, point: Match) -> Match:
    assert deep.weight is not None
    assert point.weight is not None
    first, last = deep.spec, point.spec
    spec = replace(
        first,
        results=last.results,
        is_separable=True,
        has_bias=last.has_bias,
        has_residual=last.has_residual,
        relu_after=last.relu_after,
        residual_pitch=last.residual_pitch,
        residual_offset=last.residual_offset,
    )
    weight = torch.cat([deep.weight.reshape(-1), point.weight.reshape(-1)])
    return replace(point, spec=spec, image=deep.image, weight=weight)
