"""Costs of operators of networks on a target: the kind of an operator, and the time of a library's
kernel.

Times are measured ones where there are any (``measured``, by the key of an operator and its
operands), else those of the model that plans and regions are ranked by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

from mirage_py.networks.operators.opaque import OPAQUE
from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.search.model.baseline_model import fused_us, matmul_us
from mirage_py.search.model.model_constants import constants_of
from mirage_py.search.networks.convolutions.price import (
    CONVOLUTIONS,
    convolution_us,
    tensor_rate,
    used_share,
)
from mirage_py.search.networks.convolutions.tiles import least_us
from mirage_py.search.networks.egraph import INPUT, RESULT, ENode
from mirage_py.search.networks.extraction.problem import Kind
from mirage_py.targets import Target
from mirage_py.ugraph.ir.convolution import FusedConvolution
from mirage_py.ugraph.ir.dtypes import BF16, F16

_VIEWS = ("transpose", "reshape", "slice", "split", "expand", RESULT)
_POOLS = tuple(
    f"{name}{rank}d"
    for name in ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
    for rank in (1, 2, 3)
)
# What a kernel of ours may take beyond its model.
_DOUBT = 1.3


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """An operator that a library runs, to be measured: under what name, and what the model says."""

    signature: str
    node: ENode
    operands: tuple[TensorType, ...]
    modelled_us: float


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """Costs on a target."""

    target: Target
    measured: Mapping[str, float] = field(default_factory=dict)

    def kind(self, node: ENode) -> Kind:
        """How an operator runs."""
        if node.operator == INPUT:
            return Kind.FREE
        if node.operator in _VIEWS:
            return Kind.VIEW
        return Kind.LIBRARY if is_library(node.operator) else Kind.FUSED

    def library_us(
        self, node: ENode, operands: Sequence[TensorType], results: Sequence[TensorType]
    ) -> float:
        """The time of a library's kernel."""
        known = self.measured.get(signature(node, operands))
        if known is not None:
            # It will be a kernel of ours where that is faster, which is measured then.
            spec = convolution_of(node, operands)
            ours_us = inf if spec is None else least_us(spec, self.target)
            return min(known, ours_us * _DOUBT)
        if node.operator in CONVOLUTIONS:
            spec = convolution_of(node, operands)
            return convolution_us(
                int(node.attribute("groups")), operands, results[0], spec, self.target
            )
        moved = float(sum(t.elements * t.dtype.bytes for t in (*operands, *results)))
        if node.operator not in _FLOPS:
            return fused_us(moved, 0.0, self.target)
        flops = _FLOPS[node.operator](node, operands, results[0])
        rate = tensor_rate(operands[0], self.target)
        return matmul_us(moved, flops / rate / used_share(results[0], self.target), self.target)

    def moved_us(self, types: Sequence[TensorType]) -> float:
        """The time to read or write values once."""
        moved = sum(t.elements * t.dtype.bytes for t in types)
        return moved / (self.target.dram_bytes_per_us * constants_of(self.target).dram)

    def is_strided(self, node: ENode) -> bool:
        """Whether a view is not packed."""
        return node.operator in ("transpose", "expand", "slice", RESULT)

    @property
    def launch_us(self) -> float:
        """What a kernel takes besides what it moves."""
        return fused_us(0.0, 0.0, self.target)


def is_packed(node: ENode) -> bool:
    """Whether a library reads packed operands only: strided ones are copied for it."""
    return node.operator.startswith("conv") or node.operator in (OPAQUE.name, *_POOLS)


def is_library(name: str) -> bool:
    """Whether a library runs an operator as a kernel of its own."""
    return name in (*_FLOPS, *CONVOLUTIONS, OPAQUE.name, *_POOLS)


def convolution_of(node: ENode, operands: Sequence[TensorType]) -> FusedConvolution | None:
    """The convolution that a kernel of ours could compute, with nothing around it."""
    kinds = {F16.name: "f16", BF16.name: "bf16"}
    if node.operator not in ("conv2d", "conv3d") or operands[0].dtype.name not in kinds:
        return None
    a: dict[str, Any] = dict(node.attributes)
    x, w = operands
    sliding = (a["stride"], a["padding"], a["dilation"])
    return FusedConvolution.of(x.shape, w.shape, sliding, a["groups"], kinds[x.dtype.name])


def signature(node: ENode, operands: Sequence[TensorType]) -> str:
    """The key of a measured time: operator, attributes, operand types."""
    attributes = ", ".join(f"{name}={value}" for name, value in node.attributes)
    return f"{node.operator}({', '.join(map(str, operands))}; {attributes})"


def _matmul_flops(_: ENode, operands: Sequence[TensorType], result: TensorType) -> float:
    return 2.0 * result.elements * operands[0].shape[-1]


def _transposed_flops(_: ENode, operands: Sequence[TensorType], __: TensorType) -> float:
    return 2.0 * operands[0].elements * prod(operands[1].shape[1:])


_FLOPS: dict[str, Any] = {"matmul": _matmul_flops, "bmm": _matmul_flops}
_FLOPS |= {f"conv_transpose{rank}d": _transposed_flops for rank in (1, 2, 3)}
