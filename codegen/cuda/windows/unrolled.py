"""A block graph over windows, unrolled into the scalar graph of one thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mirage_py.codegen.cuda.windows.linear import (
    ALWAYS,
    Condition,
    Linear,
    at_least,
    both,
    combined,
    linear,
    opposite,
)
from mirage_py.codegen.cuda.windows.scalars import Element, Scalar, ScalarGraph
from mirage_py.codegen.cuda.windows.shares import Shares
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BOOL, F32, DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Places and positions at which an index is compared with one that does not wrap around.
_MOST_PLACES = 1 << 22


@dataclass(frozen=True, slots=True)
class _Sum:
    """A position: ``terms`` of the thread's share, what is added ``inside`` of it and of a window,
    and a constant.
    """

    terms: tuple[tuple[IndexExpr, int], ...]
    inside: tuple[tuple[IndexExpr, int], ...]
    constant: int


def unrolled(
    block: BlockGraph,
    dtypes: Sequence[DType],
    sizes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    shares: Shares,
) -> ScalarGraph:
    """The graph of a thread; its terms are the thread's places along the dimensions of the grid,
    counted in shares.
    """
    return _Unroller(block, dtypes, sizes, tensors, shares).run()


def share_counts(sizes: Mapping[str, int], shares: Shares) -> dict[str, int]:
    """The number of shares along each dimension."""
    return {d: -(-sizes[d] // n) for d, n in shares.registers.items()}


class _Unroller:
    def __init__(
        self,
        block: BlockGraph,
        dtypes: Sequence[DType],
        sizes: Mapping[str, int],
        tensors: Mapping[str, Tensor],
        shares: Shares,
    ) -> None:
        self.nodes, self.dtypes = block.nodes, dtypes
        self.sizes, self.tensors, self.shares = sizes, tensors, shares
        self.extents = share_counts(sizes, shares)
        self.graph = ScalarGraph()
        needed = masks_of_loads(block)
        self.index = {
            n: tuple(plain_index(e, needed[n], sizes) for e in node.access.index)
            for n, node in block.loads()
        }
        self.known: dict[tuple[int, tuple[int, ...]], int] = {}
        self.sums: dict[IndexExpr, _Sum | None] = {}
        self.flat: dict[tuple[str, tuple[IndexExpr, ...]], IndexExpr] = {}
        self.dims_of: dict[Predicate, tuple[str, ...]] = {}
        self.conditions: dict[tuple[Predicate, tuple[int, ...]], Condition] = {}
        self.inside: dict[tuple[Linear, int], Condition] = {}

    def run(self) -> ScalarGraph:
        for node in self.nodes:
            if node.op == "store":
                dtype = self.tensors[node.access.tensor].dtype
                for at in self._points(node.access.dims()):
                    value = self._value(node.args[0], at)
                    scalar = self.graph.scalars[value]
                    if scalar.op == "cast" and scalar.dtype == dtype:
                        (value,) = scalar.args  # what is stored is rounded
                    place = self._place(node.access.tensor, node.access.index, at)
                    element = Element(node.access.tensor, place, self._inside(at))
                    self.graph.stores.append((element, value))
        return self.graph

    def _points(self, dims: Collection[str]) -> list[dict[str, int]]:
        registers = self.shares.registers
        inside = [d for d in registers if d in dims]
        # The fastest in memory varies fastest.
        ranges = [range(registers[d]) for d in reversed(inside)]
        return [dict(zip(reversed(inside), at, strict=True)) for at in product(*ranges)]

    def _value(self, number: int, at: Mapping[str, int]) -> int:
        node = self.nodes[number]
        key = number, tuple(at[d] for d in node.dims)
        if key not in self.known:
            self.known[key] = self._made(number, node, at)
        return self.known[key]

    def _made(self, number: int, node: Node, at: Mapping[str, int]) -> int:
        graph = self.graph
        if node.op in ("sum", "max", "matmul"):
            return self._reduced(node, at)
        if node.op == "load":
            guard = self._guard(number, at)
            place = self._place(node.access.tensor, self.index[number], at)
            element = Element(node.access.tensor, place, guard)
            return graph.add(Scalar("load", element=element, dtype=self.dtypes[number]))
        if node.op == "const":
            assert isinstance(node.attr, float)
            return graph.const(node.attr)
        if node.op == "size":
            return graph.const(float(self.sizes[str(node.attr)]))
        if node.op == "mask":
            assert isinstance(node.attr, Predicate)
            return graph.mask(self._condition(node.attr, at))
        if node.op == "index":
            assert isinstance(node.attr, IndexExpr)
            return graph.add(Scalar("index", attr=self._form(node.attr, at)))
        args = [self._value(a, at) for a in node.args]
        if node.op == "where" and graph.scalars[args[0]].dtype == BOOL:
            return graph.selected(*args)
        if node.op == "mul":
            return graph.product(*args)
        if node.op == "cast" and self._keeps(graph.scalars[args[0]].dtype, self.dtypes[number]):
            return args[0]
        return graph.add(Scalar(node.op, tuple(args), dtype=self.dtypes[number]))

    def _keeps(self, source: DType, to: DType) -> bool:
        """Whether a cast changes no value, as scalars are floats here."""
        return source == to or (to == F32 and source != BOOL)

    def _reduced(self, node: Node, at: Mapping[str, int]) -> int:
        parts = []
        for position in product(*(range(self.sizes[d]) for d in node.reduced)):
            inside = {**at, **dict(zip(node.reduced, position, strict=True))}
            values = [self._value(a, inside) for a in node.args]
            value = self.graph.product(*values) if node.op == "matmul" else values[0]
            if not self._adds_nothing(node, value):
                parts.append(value)
        if not parts:
            return self.graph.const(0.0)
        if len(parts) == 1:
            return parts[0]
        return self.graph.add(Scalar("max" if node.op == "max" else "sum", tuple(parts)))

    def _adds_nothing(self, node: Node, value: int) -> bool:
        scalar = self.graph.scalars[value]
        return node.op != "max" and scalar.op == "const" and scalar.attr == 0.0

    def _mapping(self, at: Mapping[str, int]) -> dict[str, IndexExpr]:
        registers = self.shares.registers
        found = {d: ix.dim(d) * n + at[d] for d, n in registers.items()}
        return found | {d: ix.const(at[d]) for d in self.shares.window if d in at}

    def _form(self, expr: IndexExpr, at: Mapping[str, int]) -> Linear:
        """A position of the thread. Most are sums of multiples: only their constants differ."""
        if expr not in self.sums:
            self.sums[expr] = _sum_of_multiples(expr, self.shares)
        known = self.sums[expr]
        if known is None:
            return linear(ix.simplify(expr.substitute(self._mapping(at)), self.extents))
        inside = sum(f * t.evaluate(at) for t, f in known.inside)
        return Linear(known.terms, known.constant + inside)

    def _condition(self, predicate: Predicate, at: Mapping[str, int]) -> Condition:
        if predicate not in self.dims_of:
            self.dims_of[predicate] = predicate.dims()
        key = predicate, tuple(at[d] for d in self.dims_of[predicate])
        if key not in self.conditions:
            parts = [self._condition(a, at) for a in predicate.args]
            forms = [self._form(e, at) for e in predicate.exprs]
            self.conditions[key] = combined(predicate.op, parts, forms, self.extents)
        return self.conditions[key]

    def _place(self, tensor: str, index: Sequence[IndexExpr], at: Mapping[str, int]) -> Linear:
        key = tensor, tuple(index)
        if key not in self.flat:
            flat = ix.const(0)
            for expr, stride in zip(index, self.tensors[tensor].element_strides, strict=True):
                flat = flat + expr * stride
            self.flat[key] = flat
        return self._form(self.flat[key], at)

    def _guard(self, number: int, at: Mapping[str, int]) -> Condition:
        """The condition under which a load is inside its tensor."""
        shape = self.tensors[self.nodes[number].access.tensor].shape
        found: list[Condition] = []
        for expr, extent in zip(self.index[number], shape, strict=True):
            form = self._form(expr, at)
            if (form, extent) not in self.inside:
                low, high = at_least(form, 0, self.extents), at_least(form, extent, self.extents)
                self.inside[form, extent] = both(low, opposite(high))
            found.append(self.inside[form, extent])
        return both(*found)

    def _inside(self, at: Mapping[str, int]) -> Condition:
        """Where a result exists: the last share along a dimension may be cut off."""
        found = ALWAYS
        for dim in self.shares.registers:
            form = self._form(ix.dim(dim), at)
            found = both(found, opposite(at_least(form, self.sizes[dim], self.extents)))
        return found


def _sum_of_multiples(expr: IndexExpr, shares: Shares) -> _Sum | None:
    """None where a quotient or remainder depends on a place of the thread."""
    form, registers = linear(expr), shares.registers
    if not all(t.is_dim or all(d in shares.window for d in t.dims()) for t, _ in form.terms):
        return None
    own = tuple((t, f * registers[t.name]) for t, f in form.terms if t.name in registers)
    return _Sum(own, form.terms, form.constant)


def masks_of_loads(block: BlockGraph) -> dict[int, tuple[Predicate, ...]]:
    """For each load the masks without which nothing reads it: elsewhere it may be anything finite.

    A factor that is 0 where a mask does not hold counts: x (m w) needs x no more than (x m) w does.
    """
    nodes = block.nodes
    zero: list[tuple[Predicate, ...]] = []
    for node in nodes:
        parts: tuple[Predicate, ...] = ()
        if node.op == "mask" and isinstance(node.attr, Predicate):
            parts = (node.attr,)
        elif node.op == "mul" or (node.op == "where" and _is_zero(nodes[node.args[2]])):
            parts = tuple(dict.fromkeys((*zero[node.args[0]], *zero[node.args[1]])))
        elif node.op == "cast":
            parts = zero[node.args[0]]
        zero.append(parts)
    needed: list[tuple[Predicate, ...] | None] = [None] * len(nodes)
    for number in reversed(range(len(nodes))):
        node = nodes[number]
        own = needed[number] or ()
        for place, argument in enumerate(node.args):
            mine = own if node.op not in ("sum", "max", "matmul", "store") else ()
            if node.op in ("mul", "matmul"):
                mine = (*mine, *zero[node.args[1 - place]])
            elif node.op == "where" and place == 1:
                mine = (*mine, *zero[node.args[0]])
            known = needed[argument]
            needed[argument] = mine if known is None else tuple(p for p in known if p in mine)
    return {n: needed[n] or () for n, _ in block.loads()}


def _is_zero(node: Node) -> bool:
    return node.op == "const" and node.attr == 0.0


def plain_index(expr: IndexExpr, masks: Sequence[Predicate], sizes: Mapping[str, int]) -> IndexExpr:
    """An index without its wrapping at the end of the axis, if it is the same wherever the masks
    hold; where they do not, it may lie outside of the axis.
    """
    if expr.op != "mod":
        return expr
    dims = expr.dims()
    own = [p for m in masks for p in _conjuncts(m) if set(p.dims()) <= set(dims)]
    if not own or not dims or int(np.prod([sizes[d] for d in dims])) > _MOST_PLACES:
        return expr
    grid = np.meshgrid(*(np.arange(sizes[d]) for d in dims), indexing="ij", sparse=True)
    env = dict(zip(dims, grid, strict=True))
    truth = np.bool_(True)
    for mask in own:
        truth = truth & mask.evaluate(env)
    apart = expr.args[0].evaluate(env) - expr.evaluate(env)
    gaps = np.unique(
        np.broadcast_to(apart, np.broadcast_shapes(np.shape(apart), np.shape(truth)))[
            np.broadcast_to(truth, np.broadcast_shapes(np.shape(apart), np.shape(truth)))
        ]
    )
    return expr.args[0] - int(gaps[0]) if len(gaps) == 1 else expr


def _conjuncts(mask: Predicate) -> list[Predicate]:
    if mask.op == "and":
        return [p for a in mask.args for p in _conjuncts(a)]
    return [mask]
