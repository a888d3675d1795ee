"""A normal form of µGraphs that removes differences without effect.

What makes none, for real numbers:

* tiles, the order of grid axes, names of positions, values that nobody reads, the same value twice
* the order of the operands of +, *, max, min, and of a product; factors that are 1; a mask twice
* an index or a mask that is written otherwise and has the same values at these sizes
* a store_add that no two blocks make to one place; casts and stores to floating-point types, which
  only round, and casts of whole numbers
* what a shift of exponents is made of; its sign, if it is read once; and, if asked, whether there
  is one
* what where(mask, x, y) has where it is multiplied by the same mask
* the order in which a sum or a maximum goes through its terms
* the order of the places of an intermediate, if all that read it know
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from adversarial.machine import positions, truth
from numpy.typing import NDArray

from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

Form = tuple[object, ...]
_COMMUTES = ("add", "maximum", "minimum", "eq", "ne")


_ZERO: Form = ("const", 0.0)
_ONE: Form = ("const", 1.0)


def normal_form(ugraph: UGraph, *, unshifted: bool = False) -> Form:
    """Equal for µGraphs that are the same but for the above.

    ``unshifted`` takes every maximum and every shift for 0, as is right where they only shift
    exponents.
    """
    places = _Places(ugraph)
    kernels: list[Form] = []
    zeros: dict[str, None] = {}
    for kernel in ugraph.kernels:
        if isinstance(kernel, BlockGraph):
            block = _Block(kernel, ugraph, places, zeros if unshifted else None)
            kernels.append(block.form())
        else:
            kernels.append((kernel.op, kernel.args, kernel.result))
    return tuple(kernels)


class _Places:
    """For each axis of an intermediate the order in which its only store names its places."""

    def __init__(self, ugraph: UGraph) -> None:
        self.sizes = ugraph.program.sizes
        self._orders: dict[tuple[str, int], NDArray[np.int64]] = {}
        blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
        stores = [n for b in blocks for _, n in b.stores()]
        for tensor in ugraph.intermediates:
            mine = [s for s in stores if s.access.tensor == tensor.name]
            for axis, expr in enumerate(mine[0].access.index if len(mine) == 1 else ()):
                _, table = self._table(expr)
                if table.ndim == 1 and sorted(table) == list(range(tensor.shape[axis])):
                    self._orders[tensor.name, axis] = np.argsort(table)

    def of(self, access: Access) -> Form:
        """The values of each index."""
        found: list[Form] = [(access.tensor,)]
        for axis, expr in enumerate(access.index):
            dims, table = self._table(expr)
            order = self._orders.get((access.tensor, axis))
            known = order is not None and table.min() >= 0 and table.max() < len(order)
            found.append(_trimmed(dims, order[table] if known and order is not None else table))
        return tuple(found)

    def of_values(self, attr: IndexExpr | Predicate) -> Form:
        """The values of an index or the truth of a condition."""
        return _trimmed(*self._table(attr))

    def _table(self, attr: IndexExpr | Predicate) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        dims = tuple(d for d in self.sizes if d in attr.dims())
        place = {d: range(self.sizes[d]) for d in dims}
        found = positions(attr, dims, place) if isinstance(attr, IndexExpr) else truth(
            attr, dims, place
        )  # fmt: skip
        shape = tuple(self.sizes[d] for d in dims)
        return dims, np.broadcast_to(np.asarray(found, dtype=np.int64), shape)


def _trimmed(dims: Sequence[str], table: NDArray[np.int64]) -> Form:
    """Without dimensions along which nothing changes."""
    kept = []
    for axis, d in enumerate(dims):
        first = np.take(table, [0], axis=axis)
        if (table == first).all():
            table = first
        else:
            kept.append(d)
    shape = tuple(n for n in table.shape if n > 1)
    return tuple(kept), shape, tuple(int(x) for x in table.reshape(-1))


class _Block:
    """``zeros`` are the tensors that hold nothing but shifts, if these are to be left out."""

    def __init__(
        self,
        block: BlockGraph,
        ugraph: UGraph,
        places: _Places,
        zeros: dict[str, None] | None,
    ) -> None:
        self.block, self.ugraph, self.places, self.zeros = block, ugraph, places, zeros
        read = [self._uncast(a) for n in block.nodes if n.op != "cast" for a in n.args]
        self.uses = [read.count(n) for n in range(len(block.nodes))]
        self.shifts = [n for n, x in enumerate(block.nodes) if "shift" in (x.op, x.attr)]
        self.forms: list[Form] = []

    def form(self) -> Form:
        stores: list[Form] = []
        for n, node in enumerate(self.block.nodes):
            self.forms.append(
                self._node(n, node) if self.zeros is None else self._unshifted(n, node)
            )
            if node.op in STORES:
                if self.zeros is not None and self.forms[-1][-1] == _ZERO:
                    self.zeros[node.access.tensor] = None
                else:
                    stores.append(self.forms[-1])
        return tuple(sorted(stores, key=repr))

    def _uncast(self, n: int) -> int:
        node = self.block.nodes[n]
        return self._uncast(node.args[0]) if node.op == "cast" else n

    def _unshifted(self, n: int, node: Node) -> Form:
        """The node without what only shifts exponents."""
        args = [self.forms[a] for a in node.args]
        if node.op in ("max", "shift", "accum_max"):
            return _ZERO
        if node.op == "load" and node.access.tensor in (self.zeros or ()):
            return _ZERO
        if node.op in ("add", "sub") and args[1] == _ZERO:
            return args[0]
        if node.op == "exp" and args[0] == _ZERO:
            return _ONE
        if node.op == "accum_rescaled":
            return "accum_sum", None, (args[0],)
        return self._node(n, node)

    def _node(self, n: int, node: Node) -> Form:
        args = tuple(self.forms[a] for a in node.args)
        if n in self.shifts:
            return "shift", self.block.name, self.shifts.index(n), node.dims
        if node.op in STORES:
            adds = node.op == "store_add" and self.block.summed_axes(node) != ()
            return "store", adds, self.places.of(node.access), args[0]
        if not node.args:
            return self._leaf(node)
        if node.op == "cast":
            return args[0]
        if node.op in ("mul", "matmul"):
            factors = self._factors(args)
            product: Form = factors[0] if len(factors) == 1 else ("mul", *factors)
            return product if node.op == "mul" else self._reduced("sum", node, product)
        if node.op in ("sum", "max"):
            return self._reduced(node.op, node, args[0])
        return self._shifted(node, args) or self._plain(node, args)

    def _leaf(self, node: Node) -> Form:
        attr = node.attr
        if isinstance(attr, Access):
            return "load", self.places.of(attr)
        if isinstance(attr, IndexExpr):
            return "index", self.places.of_values(attr)
        if isinstance(attr, Predicate):
            dims, shape, values = self.places.of_values(attr)
            return ("mask", (dims, shape, values)) if dims else ("const", _number(values))
        if node.op == "size":
            return "const", float(self.ugraph.program.sizes[str(attr)])
        return "const", attr

    def _shifted(self, node: Node, args: tuple[Form, ...]) -> Form | None:
        """An addition of what only shifts exponents, if it is one that is read here only."""
        for at in (0, 1) if node.op in ("add", "sub") else ():
            shift = self._uncast(node.args[at])
            if shift in self.shifts and self.uses[shift] == 1:
                sign = "-" if node.op == "sub" and at == 0 else "+"
                return f"{sign}shifted", args[1 - at], args[at]
        return None

    def _plain(self, node: Node, args: tuple[Form, ...]) -> Form:
        ordered = tuple(sorted(args, key=repr)) if node.op in _COMMUTES else args
        return node.op, node.attr, ordered

    def _factors(self, args: tuple[Form, ...]) -> tuple[Form, ...]:
        factors: list[Form] = []
        for a in args:
            factors += [f for f in a[1:] if isinstance(f, tuple)] if a[0] == "mul" else [a]
        kept = [f for f in factors if f != _ONE]
        masks = dict.fromkeys(f for f in kept if f[0] == "mask")
        others = [_where(f, tuple(masks)) for f in kept if f[0] != "mask"]
        return (*sorted(masks, key=repr), *sorted(others, key=repr)) or (_ONE,)

    def _reduced(self, op: str, node: Node, body: Form) -> Form:
        """With the terms in an order that does not depend on how they are numbered."""
        for d in node.reduced:
            order = sorted(range(self.places.sizes[d]), key=lambda at, d=d: repr(_at(body, d, at)))
            body = _reordered(body, d, tuple(order))
        return op, node.reduced, body


def _where(form: Form, masks: tuple[Form, ...]) -> Form:
    """The form at points where all of these masks are 1."""
    if form[0] in ("sum", "max", "shift", "load", "mask", "index", "const"):
        return form
    if form[0] == "where" and isinstance(form[2], tuple) and form[2][0] in masks:
        return _where(form[2][1], masks)
    return tuple(
        _where(part, masks) if _is_form(part) else _each_where(part, masks) for part in form
    )


def _each_where(part: object, masks: tuple[Form, ...]) -> object:
    if isinstance(part, tuple) and all(_is_form(p) for p in part):
        return tuple(_where(p, masks) for p in part)
    return part


def _is_form(part: object) -> TypeGuard[Form]:
    return isinstance(part, tuple) and len(part) > 0 and isinstance(part[0], str)


def _number(values: object) -> float:
    assert isinstance(values, tuple)
    return float(values[0])


def _is_table(form: Form) -> bool:
    return len(form) == 3 and all(isinstance(part, tuple) for part in form) and all(
        isinstance(x, int) for x in (*form[1], *form[2])  # type: ignore[misc]
    ) and all(isinstance(d, str) for d in form[0])  # type: ignore[union-attr]  # fmt: skip


def _at(form: Form, d: str, at: int) -> object:
    """All tables in it at one position of a dimension."""
    return _mapped(form, d, (at,))


def _reordered(form: Form, d: str, order: tuple[int, ...]) -> Form:
    return _mapped(form, d, order)


def _mapped(form: Form, d: str, order: tuple[int, ...]) -> Form:
    if form and form[0] == "shift":
        return form
    if _is_table(form):
        dims, shape, values = form
        if d not in dims:  # type: ignore[operator]
            return form
        axis = dims.index(d)  # type: ignore[attr-defined]
        table = np.asarray(values).reshape(shape)  # type: ignore[arg-type]
        table = np.take(table, order, axis=axis)
        return dims, table.shape, tuple(int(x) for x in table.reshape(-1))
    return tuple(_mapped(part, d, order) if isinstance(part, tuple) else part for part in form)
