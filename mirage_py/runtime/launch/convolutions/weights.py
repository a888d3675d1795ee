"""Weights of fused convolutions in memory: one form for each kind of kernel, and back.

A weight is [results, channels of a group, *window]; that of a separable convolution is flat, the
depthwise one first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirage_py.codegen.triton.separable_convolution import pointwise_offset
from mirage_py.ugraph.building.window_convolutions import weight_shape
from mirage_py.ugraph.ir.convolution import (
    ConvolutionPlan,
    ConvolutionTiles,
    FusedConvolution,
    LibraryConvolution,
    WindowTiles,
)

if TYPE_CHECKING:
    import torch


class WeightForm(Protocol):
    """How one kind of kernel reads the weight of a convolution."""

    @property
    def groups(self) -> int:
        """Groups of a convolution with the dense weight."""

    def packed(self, weight: torch.Tensor) -> torch.Tensor:
        """A weight as the kernel reads it."""

    def dense(self, packed: torch.Tensor) -> torch.Tensor:
        """The weight of a convolution of ``groups`` groups that computes the same."""


def weight_form(spec: FusedConvolution, plan: ConvolutionPlan) -> WeightForm:
    """The form in which the kernel of a plan reads the weight."""
    if isinstance(plan, LibraryConvolution):
        return _Library(spec)
    if spec.is_separable:
        return _Separable(spec)
    return _Windows(spec) if isinstance(plan, WindowTiles) else _Packs(spec, plan)


@dataclass(frozen=True, slots=True)
class _Form:
    spec: FusedConvolution

    @property
    def groups(self) -> int:
        return self.spec.groups


class _Library(_Form):
    """The library reads weights in the memory format of the images."""

    def packed(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.contiguous(memory_format=memory_format(self.spec))

    def dense(self, packed: torch.Tensor) -> torch.Tensor:
        return packed


class _Separable(_Form):
    """The depthwise weight as [taps, channels], the pointwise one as [channels, results]."""

    def packed(self, weight: torch.Tensor) -> torch.Tensor:
        spec = self.spec
        deep, point = separable_parts(spec, weight)
        packed = weight.new_zeros(pointwise_offset(spec) + point.numel())
        packed[: deep.numel()] = deep.reshape(spec.inputs, spec.taps).t().reshape(-1)
        packed[pointwise_offset(spec) :] = point.reshape(spec.results, spec.inputs).t().reshape(-1)
        return packed

    def dense(self, packed: torch.Tensor) -> torch.Tensor:
        import torch

        spec = self.spec
        deep = packed[: spec.taps * spec.inputs].reshape(spec.taps, spec.inputs).t()
        point = packed[pointwise_offset(spec) :].reshape(spec.inputs, spec.results).t()
        return torch.cat([deep.reshape(-1), point.reshape(-1)])


class _Windows(_Form):
    """A kernel over windows reads [taps, channels], of planar images [channels, taps]."""

    def packed(self, weight: torch.Tensor) -> torch.Tensor:
        spec = self.spec
        rows = weight.reshape(spec.results, spec.taps)
        return (rows if spec.is_planar else rows.t()).reshape(weight_shape(spec)).contiguous()

    def dense(self, packed: torch.Tensor) -> torch.Tensor:
        spec = self.spec
        rows = packed if spec.is_planar else packed.reshape(spec.taps, spec.results).t()
        return rows.reshape(spec.results, 1, *spec.window)


@dataclass(frozen=True, slots=True)
class _Packs:
    """An implicit GEMM reads [packs, taps * channels, results]: zeros where a result of a pack does
    not read a channel of the pack.
    """

    spec: FusedConvolution
    tiles: ConvolutionTiles

    @property
    def groups(self) -> int:
        return self.tiles.packs(self.spec)

    def packed(self, weight: torch.Tensor) -> torch.Tensor:
        spec, packs, pack = self.spec, self.groups, self.tiles.pack
        outside, inside = spec.results // spec.groups, spec.inputs // spec.groups
        wide = weight.new_zeros(packs, pack, outside, pack, inside, spec.taps)
        each = weight.reshape(packs, pack, outside, inside, spec.taps)
        for n in range(pack):
            wide[:, n, :, n] = each[:, n]
        whole = wide.reshape(packs, pack * outside, pack * inside, spec.taps)
        return whole.permute(0, 3, 2, 1).reshape(self.tiles.packed_shape(spec)).contiguous()

    def dense(self, packed: torch.Tensor) -> torch.Tensor:
        spec, packs = self.spec, self.groups
        inside, outside = self.tiles.channels(spec)
        apart = packed.reshape(packs, spec.taps, inside, outside).permute(0, 3, 2, 1)
        return apart.reshape(packs * outside, inside, *spec.window)


def separable_parts(
    spec: FusedConvolution, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The depthwise and the pointwise weight of a separable convolution."""
    first = spec.inputs * spec.taps
    deep, point = weight[:first], weight[first:]
    return (
        deep.reshape(spec.inputs, 1, *spec.window),
        point.reshape(spec.results, spec.inputs, *(1,) * len(spec.window)),
    )


def memory_format(spec: FusedConvolution) -> torch.memory_format:
    """The memory format of its images."""
    import torch

    if spec.is_planar:
        return torch.contiguous_format
    return torch.channels_last_3d if spec.has_frames else torch.channels_last
