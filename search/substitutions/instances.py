"""Instances of rules: a side as a graph of networks at given sizes, and the field test of a rule.

The field test knows nothing of cells and certificates: both sides are evaluated by the operators of
networks themselves, with numbers for strides, paddings and dilations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from mirage_py.axioms.substitutions.expression import (
    ANY,
    UNIT,
    Axis,
    Expr,
    inputs,
    nodes,
    window_parts,
)
from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.ugraph.field import FIELDS, FieldOps

TRIALS = 4
_SMALL, _ODD, _LONG = (1, 2, 3, 4), (1, 3), (7, 8, 9, 10)


@dataclass(frozen=True, slots=True)
class Window:
    """What a window of a rule is in numbers, the same along each spatial axis."""

    kind: str
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    def border(self, taps: int) -> int:
        """The padding for a kernel of so many taps."""
        return self.padding if self.kind == ANY else self.dilation * (taps - 1) // 2

    def count(self, length: int, taps: int) -> int:
        """How many positions there are."""
        whole = length + 2 * self.border(taps) - self.dilation * (taps - 1) - 1
        return whole // self.stride + 1


@dataclass(frozen=True)
class Sizes:
    """Numbers for the names in the types of a rule, and for its windows by kind."""

    numbers: Mapping[str, int]
    windows: Mapping[str, Window]

    def of(self, axis: Axis) -> int:
        """How long an axis is."""
        return sum(map(self._one, axis))

    def _one(self, size: str) -> int:
        parts = window_parts(size)
        if parts is None:
            return self.numbers[size]
        window, h, taps = parts
        return self.windows[window].count(self.of(h), self.of(taps) if taps else 1)


def drawn(sides: Sequence[Expr], seed: int) -> Sizes:
    """Sizes for a rule: kernels are odd, images longer than they are."""
    random = Random(seed)
    taps, images = _roles(sides)
    names = {s: None for x in inputs(*sides) for axis in x.type for s in _names(axis)}
    names |= dict.fromkeys(taps)
    names |= {str(x.attr("margin")): None for x in nodes(*sides) if x.op == "enlarge"}
    numbers = {}
    for name in names:
        some = _LONG if name in images else _ODD if name in taps else _SMALL
        numbers[name] = random.choice(some)
    windows = {}
    for kind in ("any", "same", "unit"):
        stride = 1 if kind == UNIT else random.choice((1, 2))
        # The mean of a pool has no dilation.
        pools = any(x.op == "avg_pool" for x in nodes(*sides))
        dilation = 1 if pools else random.choice((1, 2))
        windows[kind] = Window(kind, stride, dilation, random.choice((0, 1)))
    return Sizes(numbers, windows)


def _names(axis: Axis) -> Iterator[str]:
    for size in axis:
        parts = window_parts(size)
        if parts is None:
            yield size
        else:
            yield from _names((*parts[1], *parts[2]))


def _roles(sides: Sequence[Expr]) -> tuple[dict[str, None], dict[str, None]]:
    """The names of taps of kernels, and of positions of images."""
    taps: dict[str, None] = {}
    images: dict[str, None] = {}
    for x in nodes(*sides):
        if x.op.endswith("pool"):
            taps[str(x.attr("kernel"))] = None
        kernels = inputs(x.args[1]) if x.op == "conv" else []
        taps |= {s: None for i in kernels if len(i.type) == 3 for s in _names(i.type[2])}
        if x.op == "conv" or x.op.endswith("pool"):
            read = (i for i in inputs(x.args[0]) if i not in kernels and len(i.type) == 3)
            images |= {s: None for i in read for s in _names(i.type[2]) if s not in taps}
    return {t: None for t in taps if t not in images}, images


def graph_of(roots: Sequence[Expr], sizes: Sizes, order: Sequence[Expr]) -> Graph:
    """One side as a graph of networks, with one spatial axis; ``order`` are its inputs."""
    builder = GraphBuilder()
    made = {x: builder.input(x.name, [sizes.of(axis) for axis in x.type]) for x in order}
    for x in nodes(*roots):
        if x not in made:
            made[x] = _added(builder, x, [made[a] for a in x.args], sizes)
    return builder.build(*(made[x] for x in roots))


def _added(builder: GraphBuilder, x: Expr, of: Sequence[Value], sizes: Sizes) -> Value:
    match x.op:
        case "transpose":
            return builder.apply("transpose", *of, perm=(1, 0))
        case "concat":
            return builder.apply("concat", *of, axis=x.attrs[0])
        case "split":
            parts = x.attr("sizes")
            assert isinstance(parts, tuple)
            lengths = tuple(sizes.of(part) for part in parts)  # type: ignore[arg-type]
            found = builder.apply_all("split", *of, axis=x.attrs[0], sizes=lengths)
            return found[int(str(x.attrs[1]))]
        case "enlarge":
            (taps,) = builder.type_of(of[0]).shape[2:]
            return builder.apply("enlarge", *of, kernel=(taps + 2 * sizes.of((str(x.attrs[0]),)),))
        case "conv" | "max_pool" | "avg_pool":
            return _windowed(builder, x, of, sizes)
    return builder.apply(x.op, *of)


def _windowed(builder: GraphBuilder, x: Expr, of: Sequence[Value], sizes: Sizes) -> Value:
    window = sizes.windows[str(x.attr("window"))]
    kernel = builder.type_of(of[1]).shape[2] if x.op == "conv" else 0
    taps = kernel or sizes.of((str(x.attr("kernel")),))
    numbers: dict[str, object] = {"stride": window.stride, "padding": window.border(taps)}
    if x.op != "avg_pool":
        numbers["dilation"] = window.dilation
    if x.op == "conv":
        return builder.apply("conv1d", *of, **numbers, groups=x.attr("groups"))
    return builder.apply(f"{x.op}1d", *of, **numbers, kernel=taps)


def differs(
    left: Sequence[Expr], right: Sequence[Expr], *, trials: int = TRIALS, seed: int = 0
) -> bool:
    """Whether the two sides differ at some random sizes, on random elements of a finite field.

    Raises InputError where no sizes that were drawn suit the operators.
    """
    order = inputs(*left, *right)
    done = 0
    for number in range(6 * trials):
        sizes = drawn((*left, *right), seed * 1000 + number)
        try:
            graphs = [graph_of(side, sizes, order) for side in (left, right)]
        except InputError:
            continue
        ops = FieldOps(FIELDS[number % len(FIELDS)], seed=number)
        given = random_inputs(graphs[0], ops)
        one, other = (over_field(graph, given, ops) for graph in graphs)
        for a, b in zip(one, other, strict=True):
            if a.shape != b.shape or not np.array_equal(a.p, b.p):
                return True
        done += 1
        if done == trials:
            return False
    raise InputError("no sizes were found at which both sides have a shape")
