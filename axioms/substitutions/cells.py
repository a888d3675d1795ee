"""Cells: an expression over axes with parts, as Programs over named dimensions.

A value is computed part by part of its axes, so ``concat`` and ``split`` only choose: no Program
has a border in it, and what is proved holds wherever the borders are. A sum over an axis with parts
is one sum for each. Windows of convolutions and pools are tables: ``at[h, r]`` is the position that
output h reads with tap r, ``in[h, r]`` is 1 where that lies inside and 0 in the padding. Tables are
inputs of the Program, so what is proved holds for every stride, padding and dilation, and for any
number of spatial axes. Enlarged kernels have zeros around the kernel, whose taps are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count, product

from mirage_py.axioms.substitutions.expression import (
    ANY,
    UNIT,
    Axis,
    Expr,
    axis_text,
    nodes,
    split_axes,
)
from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32, I64
from mirage_py.ugraph.ir.index import IndexExpr

# Sizes that the Programs are written with; all differ, so that none stands for another.
_SIZES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89)


@dataclass(frozen=True, slots=True)
class Place:
    """A point of an axis: in which of its parts, and where in it."""

    part: int
    at: IndexExpr


def sizes_of(*roots: Expr) -> dict[str, int]:
    """A size for each name in the types of some expressions."""
    names = dict.fromkeys(s for x in nodes(*roots) for axis in x.type for s in axis)
    more = (s for x in nodes(*roots) if x.op.endswith("pool") for s in (str(x.attr("kernel")),))
    order = sorted((*names, *more))
    if len(dict.fromkeys(order)) > len(_SIZES):
        raise UnsupportedError("an expression of so many sizes")
    return dict(zip(dict.fromkeys(order), _SIZES, strict=False))


class Lowering:
    """Expressions as nodes of a builder, point by point."""

    def __init__(self, name: str, sizes: Mapping[str, int]) -> None:
        self.builder = ProgramBuilder(name)
        self.sizes = sizes
        self._extents: dict[str, list[int]] = {}
        self._known: dict[tuple[Expr, tuple[Place, ...]], int | None] = {}

    def outputs(self, roots: Sequence[Expr]) -> dict[str, tuple[int, tuple[str, ...]]]:
        """For each output and each of its parts a node, over dimensions of its own."""
        found = {}
        for number, root in enumerate(roots):
            for parts in product(*(range(len(axis)) for axis in root.type)):
                dims = [
                    self.builder.dim(f"o{number}_{n}_{part}", self.sizes[axis[part]])
                    for n, (axis, part) in enumerate(zip(root.type, parts, strict=True))
                ]
                where = tuple(Place(part, ix.dim(d)) for part, d in zip(parts, dims, strict=True))
                node = self.at(root, where)
                name = "_".join(map(str, (f"Y{number}", *parts)))
                found[name] = (self.builder.const(0.0) if node is None else node, tuple(dims))
        return found

    def at(self, x: Expr, where: tuple[Place, ...]) -> int | None:
        """The value at a point; None where it is 0."""
        key = (x, where)
        if key not in self._known:
            self._known[key] = self._at(x, where)
        return self._known[key]

    def _at(self, x: Expr, where: tuple[Place, ...]) -> int | None:
        match x.op:
            case "input":
                return self._input(x, where)
            case "add" | "mul":
                of = [self.at(a, where if a.type else ()) for a in x.args]
                if x.op == "mul":
                    return self._product(*of)
                return self._sum([n for n in of if n is not None])
            case "relu":
                inner = self.at(x.args[0], where)
                return None if inner is None else self.builder.apply("relu", inner)
            case "transpose":
                return self.at(x.args[0], where[::-1])
            case "concat":
                return self._concat(x, where)
            case "split":
                return self._split(x, where)
            case "matmul":
                return self._matmul(x, where)
            case "conv":
                return self._conv(x, where)
            case "enlarge":
                taps = where[2].part - 1
                inside = 0 <= taps < len(x.args[0].type[2])
                inner_place = (*where[:2], Place(taps, where[2].at))
                return self.at(x.args[0], inner_place) if inside else None
        return self._pool(x, where)

    # -- operators --------------------------------------------------------------------------------

    def _input(self, x: Expr, where: tuple[Place, ...]) -> int:
        name = "_".join(map(str, (x.name, *(place.part for place in where))))
        shape = [self.sizes[axis[p.part]] for axis, p in zip(x.type, where, strict=True)]
        if name not in self.builder.inputs:
            self.builder.input(name, shape, F32)
        return self.builder.load(name, [p.at for p in where])

    def _product(self, left: int | None, right: int | None) -> int | None:
        if left is None or right is None:
            return None
        return self.builder.apply("mul", left, right)

    def _sum(self, terms: Sequence[int]) -> int | None:
        add = lambda a, b: self.builder.apply("add", a, b)  # noqa: E731
        return reduce(add, terms) if terms else None

    def _concat(self, x: Expr, where: tuple[Place, ...]) -> int | None:
        axis = int(str(x.attr("axis")))
        place, first = where[axis], len(x.args[0].type[axis])
        if place.part < first:
            return self.at(x.args[0], where)
        there = Place(place.part - first, place.at)
        return self.at(x.args[1], (*where[:axis], there, *where[axis + 1 :]))

    def _split(self, x: Expr, where: tuple[Place, ...]) -> int | None:
        axis, index = int(str(x.attr("axis"))), int(str(x.attr("index")))
        before = sum(map(len, split_axes(x.attr("sizes"))[:index]))
        there = Place(where[axis].part + before, where[axis].at)
        return self.at(x.args[0], (*where[:axis], there, *where[axis + 1 :]))

    def _matmul(self, x: Expr, where: tuple[Place, ...]) -> int | None:
        a, b = x.args
        terms = []
        for part, size in enumerate(a.type[1]):
            k = self._bound(size, where)
            inner = Place(part, ix.dim(k))
            terms.append(
                self._total(
                    self._product(self.at(a, (where[0], inner)), self.at(b, (inner, where[1]))),
                    (k,),
                )
            )
        return self._sum([t for t in terms if t is not None])

    def _conv(self, x: Expr, where: tuple[Place, ...]) -> int | None:
        image, kernel = x.args
        groups = int(str(x.attr("groups")))
        group = where[1].part * groups // len(x.type[1])
        own = kernel.type[1]
        terms = []
        for (c, channels), (tap, taps) in product(enumerate(own), enumerate(kernel.type[2])):
            k = self._bound(channels, where)
            r = self._bound(taps, where, k)
            weight = self.at(kernel, (where[1], Place(c, ix.dim(k)), Place(tap, ix.dim(r))))
            if weight is None:
                continue
            at, inside = self._window(x, kernel.type[2], tap, where[2].at, r)
            pixel = self.at(
                image,
                (where[0], Place(c + group * len(own), ix.dim(k)), Place(0, at)),
            )
            if pixel is None:
                continue
            seen = self._product(pixel, self._inside(inside, where[2].at, r))
            terms.append(self._total(self._product(seen, weight), (k, r)))
        return self._sum([t for t in terms if t is not None])

    def _pool(self, x: Expr, where: tuple[Place, ...]) -> int | None:
        kernel = str(x.attr("kernel"))
        r = self._bound(kernel, where)
        at, inside = self._window(x, (kernel,), 0, where[2].at, r)
        value = self.at(x.args[0], (*where[:2], Place(0, at)))
        if value is None:
            return None
        if x.op == "max_pool":
            # A tap in the padding reads again what another one of the window reads.
            return self.builder.max(value, (r,))
        mask = self._inside(inside, where[2].at, r)
        total = self.builder.sum(self.builder.apply("mul", value, mask), (r,))
        return self.builder.apply("div", total, self.builder.size(r))

    # -- sums and windows -------------------------------------------------------------------------

    def _bound(self, size: str, where: Sequence[Place], *more: str) -> str:
        """A dimension to sum over, other than those of the point; the same on both sides."""
        used = {*more, *(d for place in where for d in place.at.dims())}
        name = next(d for n in count() if (d := f"{_word(size)}_{n}") not in used)
        return self.builder.dim(name, self.sizes[size])

    def _total(self, term: int | None, dims: Sequence[str]) -> int | None:
        return None if term is None else self.builder.sum(term, dims)

    def _window(self, x: Expr, taps: Axis, tap: int, h: IndexExpr, r: str) -> tuple[IndexExpr, str]:
        """Where a tap of one part of a kernel reads, and the table of what is inside."""
        (size,) = x.args[0].type[2] if len(x.args[0].type[2]) == 1 else ("",)
        if not size:
            raise UnsupportedError("a window over an axis with parts")
        window, before, after = str(x.attr("window")), [*taps[:tap]], [*taps[tap + 1 :]]
        if window != ANY:
            # From the middle of the kernel: what stands on both sides of the part cancels.
            for s in tuple(before):
                if s in after:
                    before.remove(s)
                    after.remove(s)
        else:
            after = []
        parts = (window, size, taps[tap], axis_text(tuple(before)), axis_text(tuple(after)))
        stem = "__".join(_word(part) for part in parts)
        extents = [self._extent(h, x), self.sizes[taps[tap]]]
        at, inside = f"at_{stem}", f"in_{stem}"
        if at not in self.builder.inputs:
            self.builder.input(at, extents, I64)
        self._extents[inside] = extents
        return ix.data(at, [h, ix.dim(r)]) % self.sizes[size], inside

    def _inside(self, table: str, h: IndexExpr, r: str) -> int:
        """1 where a tap reads the image, 0 where it reads its padding."""
        if table not in self.builder.inputs:
            self.builder.input(table, self._extents[table], F32)
        return self.builder.load(table, [h, ix.dim(r)])

    def _extent(self, h: IndexExpr, x: Expr) -> int:
        del h
        (size,) = x.args[0].type[2] if x.attr("window") == UNIT else x.type[2]
        return self.sizes[size]


def _word(text: str) -> str:
    """The text as part of a name; another one for another text."""
    return "".join(c if c.isalnum() else f"_{ord(c):x}" for c in text)
