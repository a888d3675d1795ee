"""Reductions and matmuls as Triton text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mirage_py.codegen.lowering.base_two_shifts import is_shift
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.text.operator_text import atom
from mirage_py.codegen.text.writer import CodeWriter
from mirage_py.codegen.tiling.padding import Padding
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.triton.expressions import product
from mirage_py.codegen.triton.tile_text import TileText
from mirage_py.ugraph.checks.whole_numbers import whole_bounds
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.node import Node

_MATRIX = 2
# Any number will do.
_ADDED_APART = 32

# The text of a node's value over its own axes.
ValueText = Callable[[int, Sequence[str], int], str]


class _Sides(NamedTuple):
    """The operands of a matmul, the one with the rows first, and the axes of rows and columns."""

    first: int
    second: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]


class ContractionEmitter:
    """Emits sums, maxima and matmuls, masking the padding where it could be seen."""

    def __init__(
        self,
        typed: TypedBlock,
        tiling: Tiling,
        tiles: TileText,
        value: ValueText,
        precision: Precision,
        out: CodeWriter,
    ) -> None:
        self.block = typed.block
        self.dtypes = typed.dtypes
        self.tiling = tiling
        self.tiles = tiles
        self.value = value
        self.precision = precision
        self.out = out
        self.padding = Padding(tiling, typed.block)
        # Whole numbers, such as positions, are never NaN.
        program = tiling.program
        self._whole = whole_bounds(typed.block.nodes, program.sizes, program.tensors)

    def reduce(self, number: int, section: int) -> str:
        """A sum or max of a tile over some of its axes."""
        node = self.block.nodes[number]
        neutral = "0.0" if node.op == "sum" else 'float("-inf")'
        text = self.masked(node.args[0], node.reduced, section, neutral)
        axes = self._axes_of(node.args[0], section)
        if node.op == "sum" and axes[:1] == node.reduced and self._is_of_operand(number):
            text, axes = f"tl.trans({text})", axes[::-1]
        found = reduced(text, node.op, axes, node.reduced)
        if node.op == "sum" or found == text or self._only_shifts(number) or self._whole[number]:
            return found
        # The hardware's maximum of NaN and a number is the number; PyTorch's is NaN.
        unordered = f"({text} != {text}).to(tl.int32)"
        is_nan = reduced(unordered, "max", axes, node.reduced)
        return f'tl.where({is_nan} != 0, float("nan"), {found})'

    def _is_of_operand(self, number: int) -> bool:
        """Whether a matrix that is loaded for a product is summed elementwise, as for a norm.

        A column of it, summed as it stands, Triton 3.6 takes in the layout of the product's result,
        where it lies in many threads: 845 instructions an iteration of attention with normalised
        keys on sm_90, 690 with the transpose.
        """
        nodes = self.block.nodes
        tile = nodes[number].args[0]
        while nodes[tile].op in ("square", "cast"):
            tile = nodes[tile].args[0]
        products = (i for i, n in enumerate(nodes) if n.op == "matmul" and tile in n.args)
        is_matrix = len(self._axes_of(tile, self.block.section_of[tile])) == _MATRIX
        return is_matrix and nodes[tile].op == "load" and any(map(self.tiling.is_dot, products))

    def _only_shifts(self, number: int) -> bool:
        """Whether a maximum, or a multiple of it, only shifts exponents: a NaN comes through the
        exponential anyway.
        """
        nodes = self.block.nodes
        users = (n for n, node in enumerate(nodes) if number in node.args)
        return all(
            is_shift(nodes[n]) or (self._is_multiple(nodes[n]) and self._only_shifts(n))
            for n in users
        )

    def _is_multiple(self, node: Node) -> bool:
        return node.op == "mul" and self.block.nodes[node.args[1]].op == "const"

    def is_dot(self, number: int) -> bool:
        """Whether a node is a matmul on tensor cores."""
        return self.block.nodes[number].op == "matmul" and self.tiling.is_dot(number)

    def is_plain_dot(self, number: int) -> bool:
        """Whether the operands are matrices as they are: one live dimension on each side."""
        if not self.is_dot(number):
            return False
        roles = self.tiling.roles(number)
        return max(len(roles.left), len(roles.right), len(roles.contracted)) == 1

    def matmul(self, number: int, section: int) -> str:
        """A matmul on tensor cores where its tiles are large enough, else a product and a sum."""
        if not self.tiling.is_dot(number):
            return self._product_and_sum(self.block.nodes[number], section)
        return self.as_tile(number, section, self.dot(number, section))

    def _sides(self, number: int, section: int) -> _Sides:
        """Operands and axes of a matmul; rows are the side that comes first in the result."""
        node = self.block.nodes[number]
        roles = self.tiling.roles(number)
        result = self.tiles.axes(node.dims, section)
        left, right = self.tiles.ordered(roles.left), self.tiles.ordered(roles.right)
        first, second = node.args
        if result.index(right[0]) < result.index(left[0]):
            first, second, left, right = second, first, right, left
        return _Sides(first, second, left, right)

    def matrix_shape(self, number: int, section: int) -> str:
        """The shape of a matmul's result as a matrix."""
        sides = self._sides(number, section)
        shape = (self.tiling.elements(side, section) for side in (sides.rows, sides.columns))
        return f"[{', '.join(map(str, shape))}]"

    def as_tile(self, number: int, section: int, text: str) -> str:
        """A matmul's result, given as a matrix, over the axes that its node has."""
        if self.is_plain_dot(number):
            return text
        sides = self._sides(number, section)
        axes = (*sides.rows, *sides.columns)
        text = f"tl.reshape({text}, {self.tiles.shape(axes, section)})"
        result = self.tiles.axes(self.block.nodes[number].dims, section)
        if axes != result:
            text = f"tl.permute({text}, ({', '.join(str(axes.index(d)) for d in result)}))"
        return text

    def dot(self, number: int, section: int, accumulator: str | None = None) -> str:
        """A matmul on tensor cores as a matrix, added to ``accumulator`` where there is one."""
        node = self.block.nodes[number]
        first, second, rows, columns = self._sides(number, section)
        inner = self.tiles.ordered(self.tiling.roles(number).contracted)
        a = self._matrix(first, node.reduced, section, (rows, inner))
        if len(inner) == 1 < len(columns):
            # A wgmma of columns over several axes behind one, Triton 3.6 does not compile.
            b = f"tl.trans({self._matrix(second, node.reduced, section, (columns, inner))})"
        else:
            b = self._matrix(second, node.reduced, section, (inner, columns))
        is_exact = self.dtypes[node.args[0]] == F32 and self.precision is Precision.IEEE
        suffix = f", {accumulator}" if accumulator is not None and not is_exact else ""
        if self.dtypes[node.args[0]] == F32:
            suffix += f', input_precision="{self.precision}"'
            if self.precision is Precision.TF32:
                a, b = (
                    self._nearest(a, f"tf32_left{number}"),
                    self._nearest(b, f"tf32_right{number}"),
                )
        text = f"tl.dot({a}, {b}{suffix})"
        if is_exact:
            # With this option Triton does not add on in the accumulator itself: a chain of
            # multiply-adds over 2048 terms was three times as far off as cuBLAS on an H200.
            text = f"{text[:-1]}, max_num_imprecise_acc={_ADDED_APART})"
            text = text if accumulator is None else f"{accumulator} + {text}"
        return text

    def _nearest(self, text: str, name: str) -> str:
        """The numbers of TF32 nearest to a matrix, ties away from zero, under a name: tensor cores
        leave out what TF32 has no bits for, and such errors add up.
        """
        self.out.line(f"{name} = {text}")
        up = f"({name}.to(tl.int32, bitcast=True) + {1 << 12}).to(tl.float32, bitcast=True)"
        self.out.line(f"{name} = tl.where({name} == {name}, {up}, {name})")
        return name

    def _axes_of(self, number: int, section: int) -> tuple[str, ...]:
        return self.tiles.axes(self.block.nodes[number].dims, section)

    def masked(self, number: int, dims: Sequence[str], section: int, neutral: str = "0.0") -> str:
        """The operand, with the padding of ``dims`` replaced where it may not be neutral."""
        axes = self._axes_of(number, section)
        text = self.value(number, axes, section)
        tails = [
            d
            for d in axes
            if d in dims
            and self.tiling.has_tail(d, section)
            and not (neutral == "0.0" and self.padding.is_zero(number, d))
        ]
        if not tails:
            return text
        return f"tl.where({self.tiles.in_range(tails, axes, section)}, {text}, {neutral})"

    def _matrix(
        self,
        number: int,
        reduced: Sequence[str],
        section: int,
        sides: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> str:
        """The operand as a matrix whose axes are ``sides``."""
        text = self.masked(number, reduced, section, "0.0")
        have = self._axes_of(number, section)
        want = (*sides[0], *sides[1])
        if have != want:
            if len(want) == 2:
                text = f"tl.trans({text})"
            else:
                text = f"tl.permute({text}, ({', '.join(str(have.index(d)) for d in want)}))"
        if len(want) > 2:
            shape = ", ".join(str(self.tiling.elements(side, section)) for side in sides)
            text = f"tl.reshape({text}, [{shape}])"
        return text

    def _product_and_sum(self, node: Node, section: int) -> str:
        dims = [d for a in node.args for d in self.block.nodes[a].dims]
        axes = self.tiles.axes(dims, section)
        have = [self._axes_of(argument, section) for argument in node.args]
        factors = []
        for argument, own in zip(node.args, have, strict=True):
            text = self.masked(argument, node.reduced, section, "0.0")
            factors.append(atom(self.tiles.expand(text, own, axes)))
        return reduced(product(factors, have, axes), "sum", axes, node.reduced)


def reduced(text: str, op: str, axes: Sequence[str], over: Sequence[str]) -> str:
    """``text``, a tile over ``axes``, reduced over some of them."""
    for position in range(len(axes) - 1, -1, -1):
        if axes[position] in over:
            text = f"tl.{op}({text}, axis={position})"
    return text
