"""Scalar arguments of a kernel after its pointers: sizes and strides known at launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage_py.codegen.triton.tile_text import size_name, stride_name
from mirage_py.ugraph.checks.run_time_sizes import RunTimeSizes
from mirage_py.ugraph.ir.ugraph import BlockGraph


@dataclass(frozen=True, slots=True)
class Scalar:
    """The size of dimension ``dim``, or, where that is empty, the stride of an axis of a tensor."""

    dim: str = ""
    tensor: str = ""
    axis: int = 0

    @property
    def name(self) -> str:
        """The kernel's parameter."""
        return size_name(self.dim) if self.dim else stride_name(self.tensor, self.axis)

    def value(self, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]) -> int:
        """The argument, for sizes of dimensions and strides of tensors in elements."""
        return sizes[self.dim] if self.dim else strides[self.tensor][self.axis]


def scalars_of(
    block: BlockGraph, pointers: Sequence[str], run_time: RunTimeSizes
) -> tuple[Scalar, ...]:
    """What a kernel with these pointers takes besides: sizes of what it mentions, then strides."""
    seen = {d for node in block.nodes for d in node.dims}
    seen |= {str(node.attr) for node in block.nodes if node.op == "size"}
    seen |= {axis.dim for axis in block.grid}
    seen |= {section.loop for section in block.sections if section.loop}
    sizes = [Scalar(dim=d) for d in run_time.dims if d in seen]
    strides = [
        Scalar(tensor=name, axis=axis)
        for name in pointers
        for axis in run_time.strides.get(name, ())
    ]
    return (*sizes, *strides)
