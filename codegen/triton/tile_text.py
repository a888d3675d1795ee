"""Tiles as text: axes, broadcasting, positions, addresses and masks of one kernel.

Every value is a tile whose axes are its live dimensions (extent above 1) in one order for the whole
kernel, so that broadcasting is inserting None where an axis is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.codegen.text.operator_text import atom
from mirage_py.codegen.tiling.contiguity import strided
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.checks.run_time_sizes import FIXED, RunTimeSizes
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Tensor

# A function of the emitted file: the position, if it is one of so many; else the kernel ends with
# an error.
CHECKED_POSITION = "checked_position"


class TileText:
    """Names and index arithmetic for the tiles of one block graph.

    The launch option ``axes`` may reverse the order of axes (see codegen.axis_order).
    """

    def __init__(
        self,
        tiling: Tiling,
        tensors: Mapping[str, Tensor],
        options: LaunchConfig,
        run_time: RunTimeSizes = FIXED,
    ) -> None:
        self.tiling = tiling
        self.tensors = tensors
        self.run_time = run_time
        program = tiling.program
        self.axis_order = tiling.axis_order(options.reversed_axes)
        self.dim_var = {d: d for d in program.dim_names}
        # Variables that hold elements of tensors.
        self.loaded: dict[str, str] = {}

    def ordered(self, dims: Sequence[str]) -> tuple[str, ...]:
        """The dimensions in the kernel's axis order."""
        return tuple(d for d in self.axis_order if d in dims)

    def axes(self, dims: Sequence[str], section: int) -> tuple[str, ...]:
        """The axes of a tile over ``dims``."""
        return self.ordered(self.tiling.live(tuple(dims), section))

    def shape(self, axes: Sequence[str], section: int) -> str:
        """The tile's shape as text."""
        return f"[{', '.join(str(self.tiling.padded(d, section)) for d in axes)}]"

    def expand(self, text: str, have: Sequence[str], want: Sequence[str]) -> str:
        """A tile with axes ``have`` so that it broadcasts over axes ``want``."""
        if not have or tuple(have) == tuple(want):
            return text
        picks = ", ".join(":" if d in have else "None" for d in want)
        return f"{atom(text)}[{picks}]"

    def positions(self, want: Sequence[str]) -> dict[str, str]:
        """Text of each dimension's positions, expanded to the axes ``want``."""
        return {
            d: self.expand(var, (d,) if d in want else (), want) for d, var in self.dim_var.items()
        }

    def in_range(self, dims: Sequence[str], want: Sequence[str], section: int) -> str:
        """The condition that ``dims`` are inside their extents; empty where no tail exists."""
        parts = [
            self.expand(f"{self.dim_var[d]}_in", (d,), want)
            for d in want
            if d in dims and self.tiling.has_tail(d, section)
        ]
        return " & ".join(parts)

    def size(self, dim: str) -> str:
        """The size of a dimension as text: a number, or the kernel's argument."""
        if dim in self.run_time.dims:
            return size_name(dim)
        return str(self.tiling.program.sizes[dim])

    def address(self, node: Node, want: Sequence[str], section: int) -> str:
        """The pointers of a load or store over the axes ``want``."""
        names = self.positions(want)
        for expr in node.access.index:
            self.name_element(expr, names, want, section)
        masks: dict[IndexExpr, str] | None = None
        if node.op in STORES:
            masks = {e: self.in_range(e.dims(), want, section) for e in node.access.index}
        terms, reached = self._terms(node.access.tensor, node.access.index, names, masks, want)
        # Along an axis of stride 0 the tile repeats itself, and is as wide all the same: it may be
        # summed over it.
        terms += [f"{names[d]} * 0" for d in want if d not in reached]
        return " + ".join(terms)

    def name_element(
        self, expr: IndexExpr, names: dict[str, str], want: Sequence[str], section: int
    ) -> None:
        """Texts of positions that are data, loaded where they are needed, innermost first."""
        for part in expr.args:
            self.name_element(part, names, want, section)
        if str(expr) in self.loaded:
            names[str(expr)] = self.loaded[str(expr)]
        elif expr.op == "data":
            terms, _ = self._terms(expr.name, expr.args, names)
            mask = self.in_range(expr.dims(), want, section)
            text = f"{' + '.join(terms)}{f', mask={mask}, other=0' if mask else ''}"
            names[str(expr)] = f"tl.load({text}).to(tl.int64)"
        elif expr.op == "mod" and expr.tensors():
            # Triton's remainder has the sign of the dividend.
            inner, extent = atom(expr.args[0].render(names)), expr.value
            names[str(expr)] = f"(({inner} % {extent} + {extent}) % {extent})"
        elif expr.op == "floordiv" and expr.tensors():  # its quotient is rounded towards 0
            inner, n = atom(expr.args[0].render(names)), expr.value
            names[str(expr)] = f"(({inner} - ({inner} % {n} + {n}) % {n}) // {n})"

    def _terms(
        self,
        name: str,
        index: Sequence[IndexExpr],
        names: Mapping[str, str],
        checked: Mapping[IndexExpr, str] | None = None,
        want: Sequence[str] = (),
    ) -> tuple[list[str], set[str]]:
        """The summands of an address, and the dimensions that it depends on. A position that is
        data is inside, modulo the extent, or ``checked`` where its mask, if it has one, is true.

        Where a position is a sum along two axes of ``want``, what goes along one axis is summed up
        before it meets the other: in a loop that is computed for a row and for a column.
        """
        tensor = self.tensors[name]
        terms = [pointer_name(tensor.name)]
        reached: set[str] = set()
        by_axes: dict[tuple[str, ...], list[str]] = {}
        is_apart = False
        at_run_time = self.run_time.strides.get(tensor.name, ())
        for axis, expr, stride in strided(index, tensor, at_run_time):
            if expr.op == "const" and expr.value == 0:
                continue
            parts = _summands(expr, want) if axis not in at_run_time else []
            is_apart |= bool(parts)
            for along, part in parts:
                text = part.render(names)
                text = text if stride == 1 else f"{atom(text)} * {stride}"
                by_axes.setdefault(along, []).append(text)
            reached.update(expr.dims())
            if parts:
                continue
            text = expr.render(names)
            if checked is not None and expr.tensors():
                mask = checked[expr]
                text = f"tl.where({mask}, {text}, 0)" if mask else text
                text = f"{CHECKED_POSITION}({text}, {tensor.shape[axis]})"
            if axis in at_run_time:
                terms.append(f"{atom(text)} * {stride_name(tensor.name, axis)}")
            else:
                text = text if stride == 1 else f"{atom(text)} * {stride}"
                along = tuple(d for d in want if d in expr.dims())
                by_axes.setdefault(along, []).append(text)
                terms.append(text)
        if is_apart:
            placed = {text for texts in by_axes.values() for text in texts}
            terms = [t for t in terms if t not in placed]
            terms += [f"({' + '.join(texts)})" for texts in by_axes.values()]
        return terms, reached


def _summands(expr: IndexExpr, want: Sequence[str]) -> list[tuple[tuple[str, ...], IndexExpr]]:
    """The summands of a position with the axes of ``want`` that each goes along; none where these
    are not several.
    """
    todo, found = [expr], []
    while todo:
        part = todo.pop()
        if part.op == "add":
            todo += part.args[::-1]
        else:
            found.append((tuple(d for d in want if d in part.dims()), part))
    kinds = {along for along, _ in found if along}
    return found if len(kinds) > 1 and not expr.tensors() else []


def pointer_name(tensor: str) -> str:
    """The parameter that points to a tensor."""
    return f"{tensor}_ptr"


def size_name(dim: str) -> str:
    """The parameter that is the size of a dimension."""
    return f"{dim}_size"


def stride_name(tensor: str, axis: int) -> str:
    """The parameter that is the distance, in elements, of neighbours along an axis."""
    return f"{tensor}_stride{axis}"


def descriptor_name(tensor: str) -> str:
    """The parameter that describes a tensor to TMA."""
    return f"{tensor}_desc"
