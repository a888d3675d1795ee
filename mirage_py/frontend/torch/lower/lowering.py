"""The context in which handlers work: the program being built and the graph node in hand."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.capture import source
from mirage_py.frontend.torch.lower.indices import index_of, index_result, mask_of
from mirage_py.reasons import Code
from mirage_py.settings import torch_rounds
from mirage_py.ugraph.building import views
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.checks.whole_numbers import Bounds, whole_bounds
from mirage_py.ugraph.ir.dtypes import DType, Fp32Precision, dtype
from mirage_py.ugraph.ir.predicates import FALSE, TRUE

Scalar = bool | int | float
# What an operand of an ATen operator becomes: an array, or a plain number.
Operand = NamedArray | Scalar


# What logic is on the numbers 0 and 1.
_ON_NUMBERS = {"and": "mul", "or": "maximum"}


class Held(IntEnum):
    """How a kernel holds the integers of a tensor, from best to worst.

    ``EXACT``: they are known to be small. ``WHOLE``: whole numbers of float32, such as floats that
    were cast. ``KEPT``: the integers that are in memory. ``NEAREST``: the nearest float32 of each.
    ``MOVED``: nearly that, and on the right side of each number up to 2^22: such ones and a small
    number added up. ``SUMMED``: as near as sums of floats are, to which such ones are converted.
    ``LOST``: nothing is known of them, but as positions.
    """

    EXACT = 0
    WHOLE = 1
    KEPT = 2
    NEAREST = 3
    MOVED = 4
    SUMMED = 5
    LOST = 6


class Lowering:
    """Builds one program; handlers call its methods with arrays and numbers.

    ``node`` is the graph node whose handler runs: its meta data gives the type of the result, its
    stack trace the user's line.
    """

    def __init__(self, builder: ProgramBuilder, where: str) -> None:
        self.builder = builder
        self.where = where
        self.node: torch.fx.Node | None = None
        # Of nodes of the graph how their integers are held (held_integers.py).
        self.held: dict[torch.fx.Node, Held] = {}
        # By the symbol of how many there are, what masks select (selections.py).
        self.selections: dict[str, Any] = {}
        # Numbers that the function has written down, and what torch makes of these alone.
        self.literals: dict[torch.fx.Node, torch.Tensor] = {}
        # Arrays that a norm has in groups of channels, as it has them.
        self.in_groups: dict[NamedArray, NamedArray] = {}
        # Nodes of the program that convolutions have brought.
        self.convolved: list[int] = []

    @property
    def fp32_precision(self) -> Fp32Precision:
        """How exact sums of products of float32 are, as torch is set now. Where there are but
        convolutions, or none, one of its two settings goes for all.
        """
        matmuls, convolutions = torch_rounds()
        products = {n for n, node in enumerate(self.builder.nodes) if node.op == "matmul"}
        of_windows = products.intersection(self.convolved)
        if products == of_windows:
            matmuls = convolutions
        elif not of_windows:
            convolutions = matmuls
        return Fp32Precision.of(matmuls=matmuls, convolutions=convolutions)

    # -- arrays ------------------------------------------------------------------------------------

    def array(self, x: Operand) -> NamedArray:
        """A number as an array without axes; an array as it is."""
        return x if isinstance(x, NamedArray) else NamedArray(self.builder.const(float(x)), ())

    def apply(self, op: str, *operands: Operand) -> NamedArray:
        """An elementwise operator on operands that broadcast by position."""
        arrays = views.broadcast(self.builder, [self.array(x) for x in operands])
        return NamedArray(self.combine(op, [a.node for a in arrays]), arrays[0].axes)

    def combine(self, op: str, nodes: Sequence[int]) -> int:
        """An elementwise operator on nodes over the same dimensions.

        Index arithmetic stays index expressions, conditions on indices stay predicates. On top of
        the operators of a program there are ``not``, ``and`` and ``or`` on truth values, and
        ``floordiv`` and ``mod`` on positions.
        """
        result = index_result(self.builder, op, nodes)
        if result is not None:
            return result
        if op in ("floordiv", "mod"):
            raise self.refuse(
                "division with rounding is not supported here",
                why="it is known for positions made with arange only, divided by a constant >= 1",
                repair="divide with `/`, or take positions that start at 0 or above",
            )
        if op == "not":
            inner = self.builder.nodes[nodes[0]]
            if inner.op == "sub" and self.builder.nodes[inner.args[0]].attr == 1.0:
                return inner.args[1]  # twice not
            return self.builder.apply("sub", self.builder.const(1.0), nodes[0])
        if op == "where":
            decided = mask_of(self.builder, nodes[0])
            if decided in (TRUE, FALSE):
                return nodes[1] if decided == TRUE else nodes[2]
        return self.builder.apply(_ON_NUMBERS.get(op, op), *nodes)

    def shape(self, x: NamedArray) -> tuple[int, ...]:
        """The extent of each axis."""
        return views.shape_of(self.builder, x)

    def positions(self, *operands: Operand) -> bool:
        """Whether all are positions, or whole numbers beside one."""
        nodes = [self.array(x).node for x in operands]
        return any(self.builder.nodes[n].op == "index" for n in nodes) and all(
            index_of(self.builder, n) is not None for n in nodes
        )

    def full(self, shape: Sequence[int], value: Scalar) -> NamedArray:
        """One number everywhere."""
        return views.expand(self.builder, self.array(value), shape)

    # -- types -------------------------------------------------------------------------------------

    def torch_dtype(self, position: int) -> torch.dtype:
        """The type torch gives to an operand of the node in hand."""
        assert self.node is not None
        operand = self.node.args[position]
        assert isinstance(operand, torch.fx.Node)
        return self.result_dtype(operand)

    def result_dtype(self, node: torch.fx.Node | None = None) -> torch.dtype:
        """The type torch gives to the result of a node, by default the one in hand."""
        value = (node or self.node_in_hand).meta["val"]
        first = value[0] if isinstance(value, (tuple, list)) else value
        kind = first.dtype
        assert isinstance(kind, torch.dtype)
        return kind

    @property
    def node_in_hand(self) -> torch.fx.Node:
        """The graph node whose handler runs."""
        assert self.node is not None
        return self.node

    def whole_bounds(self, x: NamedArray) -> Bounds | None:
        """The least and the greatest whole number that an array may hold; None where there may be
        others, or nothing but a type of 32 bits and more says it.
        """
        short = {t.name: t for t in self.builder.inputs.values() if t.dtype.bytes < 4}
        return whole_bounds(self.builder.nodes, self.builder.sizes, short)[x.node]

    def check_byte_floats(self, x: NamedArray) -> None:
        """Refuses arithmetic of floats of a byte, which torch has none of."""
        kind = self.result_dtype()
        if kind in BYTE_FLOATS and self.builder.nodes[x.node].op not in _BYTE_FLOATS_OF:
            raise self.refuse(
                f"arithmetic of {kind} is not supported here",
                why="torch has none either",
                repair="convert to float32 first, as in x.float()",
            )

    # -- errors ------------------------------------------------------------------------------------

    def refuse(
        self, what: str, *, why: str = "", repair: str = "", code: Code = Code.OTHER
    ) -> UnsupportedError:
        """The error that says that the node in hand cannot be part of a program; raise it."""
        line = None if self.node is None else source.of_node(self.node)
        quoted = f" in `{line.code}`" if line is not None and line.code else ""
        return UnsupportedError(
            f"{what}{quoted}",
            where=self.where if line is None else str(line),
            why=why,
            repair=repair,
            code=code,
        )


def program_dtype(kind: torch.dtype) -> DType | None:
    """The element type a kernel reads or writes for a torch type; None where none does."""
    return dtype(str(kind)) if kind in _STORED else None


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# Floats of a byte: kernels read and write them as they are, and round to the first alone.
BYTE_FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
# The operators that give some: what reads, rounds or chooses.
_BYTE_FLOATS_OF = ("load", "read", "e4m3", "where", "const")
_STORED = (torch.float16, torch.bfloat16, torch.float32, *BYTE_FLOATS, *INTEGERS, torch.bool)
