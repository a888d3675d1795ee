"""A program: what the user asked for, as a graph of operators over named dimensions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mirage_py.ugraph.ir.dtypes import F32, DType, Fp32Precision
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Node

_MOST_LISTED = 8


def listed(values: Sequence[object]) -> str:
    """Values parted by commas, for a repr: the first ones, where there are many."""
    shown = [str(value) for value in values[:_MOST_LISTED]]
    more = len(values) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


@dataclass(frozen=True, slots=True)
class Dim:
    """A named dimension. Two dimensions of equal size are still two dimensions."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in device memory. ``strides`` count elements; None means row-major."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each axis."""
        if self.strides is not None:
            return self.strides
        out: list[int] = []
        step = 1
        for extent in reversed(self.shape):
            out.append(step)
            step *= extent
        return tuple(reversed(out))

    @property
    def last_offset(self) -> int:
        """Distance in elements of the last one from the first: in a view of a large tensor it is
        farther than it has elements.
        """
        pairs = zip(self.shape, self.element_strides, strict=True)
        return sum((extent - 1) * stride for extent, stride in pairs)

    @property
    def elements(self) -> int:
        """How many elements it holds."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def bytes(self) -> int:
        """Its size in bytes, without gaps."""
        return self.elements * self.dtype.bytes

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        stride = "" if self.strides is None else f" strides ({', '.join(map(str, self.strides))})"
        return f"{self.name}[{shape}] : {self.dtype}{stride}"


@dataclass(frozen=True, slots=True)
class Output:
    """A result: the node's value at a point is written to ``tensor`` at ``index``.

    The index expressions are a bijection from the node's dimensions to the tensor's elements.
    """

    tensor: Tensor
    node: int
    index: tuple[IndexExpr, ...]

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions that index it."""
        return tuple(d for e in self.index for d in e.dims())


@dataclass(frozen=True, repr=False)
class Program:
    """A tensor program. Nodes are in topological order; a node's dims follow the order of ``dims``.
    ``fp32_precision`` is the required precision of its float32 matmuls and convolutions.
    """

    name: str
    dims: tuple[Dim, ...]
    inputs: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    fp32_precision: Fp32Precision = Fp32Precision.IEEE

    def __repr__(self) -> str:
        read, made = listed(self.inputs), listed([o.tensor for o in self.outputs])
        return f"<Program '{self.name}': {read} -> {made}; {len(self.nodes)} nodes>"

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Extent of each dimension."""
        return {d.name: d.size for d in self.dims}

    @cached_property
    def dim_names(self) -> tuple[str, ...]:
        """Names of the dimensions in order."""
        return tuple(d.name for d in self.dims)

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Inputs and outputs by name."""
        return {t.name: t for t in (*self.inputs, *(o.tensor for o in self.outputs))}

    @cached_property
    def matmul_type(self) -> DType:
        """The type that computed operands of matmuls are rounded to."""
        halves = [t.dtype for t in self.inputs if t.dtype.is_half]
        return max(halves, key=lambda t: t.unit_roundoff, default=F32)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that defines it: wiring, attributes, types, strides, sizes."""
        content: tuple[object, ...] = self.dims, self.inputs, self.nodes, self.outputs
        if self.fp32_precision is not Fp32Precision.IEEE:
            content = *content, str(self.fp32_precision)
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def order(self, dims: tuple[str, ...] | frozenset[str]) -> tuple[str, ...]:
        """The given dimensions in the program's order."""
        return tuple(d for d in self.dim_names if d in dims)

    @property
    def has_fp32_matmul(self) -> bool:
        """Whether matmuls may have operands of float32."""
        multiplies = any(n.op == "matmul" for n in self.nodes)
        return multiplies and any(t.dtype == F32 for t in self.inputs)

    def held_to(self, precision: Fp32Precision) -> Program:
        """The same program with this precision; itself if it has no float32 matmul."""
        return replace(self, fp32_precision=precision) if self.has_fp32_matmul else self

    def renamed(self, name: str) -> Program:
        """The same program under another name."""
        return replace(self, name=name)
