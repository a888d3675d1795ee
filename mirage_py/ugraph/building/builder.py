"""The program builder: hash-consed nodes, shape rules, and substitution of indices.

Front ends call this and nothing else, so every program is in one form: equal subterms are one node,
trivial scalar arithmetic is folded, and a sum of products is a chain of contractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, count

import numpy as np

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.decided_masks import LOW_MASK, without_mask
from mirage_py.ugraph.ir.dtypes import DType, Fp32Precision
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.predicates import negation
from mirage_py.ugraph.ir.program import Dim, Output, Program, Tensor
from mirage_py.ugraph.operators import ELEMENTWISE, operator

_MAX_FACTORS = 64


class ProgramBuilder:
    """Nodes are addressed by the integers its methods return."""

    def __init__(self, name: str, fp32_precision: Fp32Precision = Fp32Precision.IEEE) -> None:
        self.name = name
        self.fp32_precision = fp32_precision
        self.sizes: dict[str, int] = {}
        self.inputs: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.outputs: list[Output] = []
        self._known: dict[Node, int] = {}
        self._stored: dict[int, None] = {}
        self._places: dict[str, int] = {}
        # Positions that are data, with the extent of the axis that they lie in.
        self.looked_up: dict[tuple[IndexExpr, int], None] = {}

    # -- dimensions and tensors ------------------------------------------------------------------

    def dim(self, name: str, size: int) -> str:
        """Declare a dimension, or find it again with the same size."""
        if size < 1:
            raise InputError(
                f"dimension '{name}' has size {size}",
                where=self.name,
                why="an empty tensor needs no kernel",
                repair="give every dimension at least one element",
            )
        if self.sizes.setdefault(name, size) != size:
            raise InputError(
                f"dimension '{name}' has two sizes, {self.sizes[name]} and {size}", where=self.name
            )
        return name

    def fresh_dim(self, hint: str, size: int) -> str:
        """A new dimension named after ``hint``."""
        stem = hint.rstrip("0123456789_") or "i"
        for number in count():
            name = hint if number == 0 else f"{stem}_{number}"
            if name not in self.sizes:
                return self.dim(name, size)
        raise AssertionError("unreachable")

    def input(
        self, name: str, shape: Sequence[int], dtype: DType, strides: Sequence[int] | None = None
    ) -> Tensor:
        """Declare an input tensor."""
        if name in self.inputs:
            raise InputError(f"input '{name}' is declared twice", where=self.name)
        tensor = Tensor(name, tuple(shape), dtype, None if strides is None else tuple(strides))
        if strides is not None and Tensor(name, tuple(shape), dtype).element_strides == tuple(
            strides
        ):
            tensor = Tensor(name, tuple(shape), dtype)
        self.inputs[name] = tensor
        return tensor

    # -- leaves ----------------------------------------------------------------------------------

    def load(self, tensor: str, index: Sequence[IndexExpr | str]) -> int:
        """Read an input at the given index expressions, one per axis."""
        shape = self.inputs[tensor].shape
        exprs = self._simple(ix.dim(e) if isinstance(e, str) else e for e in index)
        if len(exprs) != len(shape):
            raise InputError(
                f"{tensor} has {len(shape)} axes but is read with {len(exprs)} indices"
            )
        for axis, (expr, extent) in enumerate(zip(exprs, shape, strict=True)):
            low, high = expr.bounds(self.sizes)
            if low < 0 or high >= extent:
                raise InputError(
                    f"index '{expr}' of {tensor} runs from {low} to {high}, "
                    f"outside axis {axis} of extent {extent}",
                    where=self.name,
                    repair="shift the index, or give the dimension the axis' extent",
                )
        return self._node("load", (), Access(tensor, exprs), Access(tensor, exprs).dims())

    def read(self, x: int, index: Sequence[IndexExpr]) -> int:
        """A value that is in memory as a tensor, read at one index for each of its dimensions."""
        dims = self.nodes[x].dims
        exprs = self._simple(index)
        if exprs == tuple(map(ix.dim, dims)):
            return x
        for expr, d in zip(exprs, dims, strict=True):
            low, high = expr.bounds(self.sizes)
            if low < 0 or high >= self.sizes[d]:
                raise InputError(
                    f"index '{expr}' runs from {low} to {high}, outside dimension '{d}' of "
                    f"{self.sizes[d]} points",
                    where=self.name,
                )
        self._stored[x] = None
        access = Access("", exprs)
        return self._node("read", (x,), access, access.dims())

    def stored(self, x: int) -> int:
        """The same value; from now on it is a tensor in memory that other indices only read.

        What is computed is computed once then, however often and wherever it is read. A load is
        such a tensor already.
        """
        if self.nodes[x].op not in ("load", "read") and self.nodes[x].dims:
            self._stored[x] = None
        return x

    @property
    def has_stored(self) -> bool:
        """Whether some value is a tensor in memory between kernels."""
        return bool(self._stored)

    def is_stored(self, x: int) -> bool:
        """Whether other indices read the value in memory, and copy nothing."""
        return x in self._stored

    def const(self, value: float) -> int:
        """A scalar."""
        return self._node("const", (), float(value), ())

    def size(self, dim: str) -> int:
        """The extent of a dimension as a number."""
        return self._node("size", (), dim, ())

    def index(self, expr: IndexExpr) -> int:
        """The value of an index expression as a number."""
        expr = ix.simplify(expr, self.sizes)
        if expr.op == "const":
            return self.const(float(expr.value))
        return self._node("index", (), expr, expr.dims())

    def mask(self, predicate: Predicate) -> int:
        """1 where the predicate on indices holds, else 0."""
        return self._node("mask", (), predicate, predicate.dims())

    # -- operators -------------------------------------------------------------------------------

    def apply(self, op: str, *args: int, attr: Attr = None) -> int:
        """An elementwise operator; operands broadcast by dimension name."""
        row = operator(op)
        if row.kind != ELEMENTWISE or len(args) != row.arity:
            raise UnsupportedError(f"'{op}' is not an elementwise operator of {len(args)} operands")
        folded = self._fold(op, args)
        if folded is not None:
            return folded
        dims = self.ordered(d for a in args for d in self.nodes[a].dims)
        return self._node(op, args, attr, dims)

    def cast(self, x: int, to: DType) -> int:
        """Round to ``to``."""
        return self.apply("cast", x, attr=to)

    def power(self, x: int, exponent: float) -> int:
        """x to a constant power, through products and roots where they say the same."""
        if exponent == 0.5:
            return self.apply("sqrt", x)
        if exponent == -0.5:
            return self.apply("rsqrt", x)
        if exponent == int(exponent) and abs(exponent) <= 8:
            whole = int(abs(exponent))
            if whole == 0:
                return self.const(1.0)
            result = x if whole % 2 else None
            square = x
            for bit in range(1, whole.bit_length()):
                square = self.apply("square", square)
                if whole >> bit & 1:
                    result = square if result is None else self.apply("mul", result, square)
            assert result is not None
            return result if exponent > 0 else self.apply("div", self.const(1.0), result)
        return self.apply("pow", x, self.const(exponent))

    def sum(self, x: int, dims: Iterable[str]) -> int:
        """Sum over dimensions. A product under the sum becomes contractions."""
        over = tuple(dims)
        # A dimension that x does not depend on repeats it: its sum is the extent times x.
        absent = [d for d in over if d not in self.nodes[x].dims]
        present = self.ordered(d for d in over if d in self.nodes[x].dims)
        result = self._sum_of_product(x, present) if present else x
        for d in absent:
            result = self.apply("mul", result, self.size(d))
        return result

    def max(self, x: int, dims: Iterable[str]) -> int:
        """Maximum over dimensions."""
        over = self.ordered(d for d in dims if d in self.nodes[x].dims)
        if not over:
            return x
        if self.nodes[x].op == "relu":  # it keeps the order: the maximum goes first
            return self.apply("relu", self.max(self.nodes[x].args[0], over))
        return self._node("max", (x,), over, self._without(x, over))

    def mean(self, x: int, dims: Iterable[str]) -> int:
        """Mean over dimensions: the sum divided by the extents."""
        over = tuple(dims)
        result = self.sum(x, over)
        for d in over:
            result = self.apply("div", result, self.size(d))
        return result

    def matmul(self, a: int, b: int, over: Iterable[str]) -> int:
        """Sum over ``over`` of a * b; both operands depend on every dimension of it."""
        dims = self.ordered(over)
        union = self.ordered((*self.nodes[a].dims, *self.nodes[b].dims))
        return self._node("matmul", (a, b), dims, tuple(d for d in union if d not in dims))

    # -- substitution ----------------------------------------------------------------------------

    def substitute(self, node: int, mapping: Mapping[str, IndexExpr]) -> int:
        """The same value read at other indices: dimension d becomes ``mapping[d]``.

        Dimensions bound by a reduction inside are renamed where an expression of the mapping
        would be captured.
        """
        return self._substitute(node, dict(mapping), {})

    def _substitute(
        self,
        node: int,
        mapping: dict[str, IndexExpr],
        memo: dict[tuple[int, tuple[tuple[str, IndexExpr], ...]], int],
    ) -> int:
        old = self.nodes[node]
        relevant = {d: e for d, e in mapping.items() if d in old.dims and e != ix.dim(d)}
        if not relevant:
            return node
        # Tensors between kernels are read at indices alone: at data the value is computed there.
        is_data = any(e.tensors() for e in relevant.values())
        if node in self._stored and not is_data:
            return self.read(node, [relevant.get(d, ix.dim(d)) for d in old.dims])
        key = (node, tuple(sorted(relevant.items(), key=lambda item: item[0])))
        if key in memo:
            return memo[key]
        memo[key] = result = self._substituted(old, relevant, memo)
        return result

    def _substituted(
        self,
        old: Node,
        mapping: dict[str, IndexExpr],
        memo: dict[tuple[int, tuple[tuple[str, IndexExpr], ...]], int],
    ) -> int:
        if old.op == "load":
            return self.load(old.access.tensor, [e.substitute(mapping) for e in old.access.index])
        if old.op == "read":
            index = [e.substitute(mapping) for e in old.access.index]
            if any(e.tensors() for e in index):
                places = dict(zip(self.nodes[old.args[0]].dims, index, strict=True))
                return self._substitute(old.args[0], places, memo)
            return self.read(old.args[0], index)
        if isinstance(old.attr, IndexExpr | Predicate):
            if any(e.tensors() for e in mapping.values()):
                return self._number_of(old.attr, mapping)
            at = old.attr.substitute(mapping)
            return self.index(at) if isinstance(at, IndexExpr) else self.mask(at)
        if operator(old.op).kind == ELEMENTWISE:
            return self.apply(
                old.op, *(self._substitute(a, mapping, memo) for a in old.args), attr=old.attr
            )
        free = {d for e in mapping.values() for d in e.dims()}
        bound = dict(mapping)
        reduced = list(old.reduced)
        for position, d in enumerate(reduced):
            if d in free:
                reduced[position] = self.fresh_dim(d, self.sizes[d])
                bound[d] = ix.dim(reduced[position])
        args = [self._substitute(a, bound, memo) for a in old.args]
        if old.op == "matmul":
            return self.matmul(args[0], args[1], reduced)
        return self.sum(args[0], reduced) if old.op == "sum" else self.max(args[0], reduced)

    def _number_of(self, attr: IndexExpr | Predicate, mapping: Mapping[str, IndexExpr]) -> int:
        """A position, or a condition on some, as a number where positions are data."""
        if isinstance(attr, Predicate):
            parts = [self._number_of(e, mapping) for e in attr.exprs]
            parts += [self._number_of(p, mapping) for p in attr.args]
            if attr.op == "not":
                return self.apply("sub", self.const(1.0), parts[0])
            return self.apply({"and": "mul", "or": "maximum"}.get(attr.op, attr.op), *parts)
        at = attr.substitute(mapping)
        if not at.tensors():
            return self.const(float(at.value)) if at.op == "const" else self.index(at)
        if at.op in ("add", "mul"):
            right = at.args[1] if at.op == "add" else ix.const(at.value)
            return self.apply(at.op, *(self._number_of(e, {}) for e in (at.args[0], right)))
        if at.op == "mod" and (at.args[0], at.value) in self.looked_up:
            # Python's negative positions; what is out of range is nobody's business.
            element = self._number_of(at.args[0], {})
            wrapped = self.apply("add", element, self.const(float(at.value)))
            negative = self.apply("lt", element, self.const(0.0))
            return self.apply("where", negative, wrapped, element)
        if at.op in ("mod", "floordiv"):
            # Of a position among several axes that were one: half a place more, so that no rounded
            # quotient falls below its whole number.
            whole = self._number_of(at.args[0], {})
            extent = self.const(float(at.value))
            shares = self.apply("div", self.apply("add", whole, self.const(0.5)), extent)
            share = self.apply("floor", shares)
            if at.op == "floordiv":
                return share
            return self.apply("sub", whole, self.apply("mul", share, extent))
        if at.op == "data":
            return self.load(at.name, at.args)
        raise UnsupportedError(
            f"the number of a position {at}",
            where=self.name,
            why="a value that depends on it is looked up at positions that are data",
            repair="look up before positions are computed with",
        )

    # -- results ---------------------------------------------------------------------------------

    def output(self, name: str, node: int, index: Sequence[IndexExpr | str], dtype: DType) -> None:
        """Declare a result: ``node`` stored row-major with one index expression per axis."""
        exprs = tuple(ix.dim(e) if isinstance(e, str) else e for e in index)
        missing = [
            d for d in self.nodes[node].dims if d not in {x for e in exprs for x in e.dims()}
        ]
        if missing:
            raise InputError(
                f"output {name} does not say where dimension {', '.join(missing)} goes",
                where=self.name,
                repair=f"add {', '.join(missing)} to its indices, or reduce over it",
            )
        shape = tuple(e.bounds(self.sizes)[1] + 1 for e in exprs)
        self.outputs.append(Output(Tensor(name, shape, dtype), node, exprs))

    def build(self) -> Program:
        """The finished program, without nodes and dimensions that no output needs."""
        if not self.outputs:
            raise InputError(
                "the program has no output", where=self.name, repair="assign to a tensor"
            )
        live = cone(self.nodes, [o.node for o in self.outputs])
        position = {old: new for new, old in enumerate(live)}
        nodes = tuple(
            Node(n.op, tuple(position[a] for a in n.args), n.attr, n.dims)
            for n in (self.nodes[i] for i in live)
        )
        outputs = tuple(Output(o.tensor, position[o.node], o.index) for o in self.outputs)
        used = {d for n in nodes for d in n.dims}
        used |= {d for o in outputs for d in o.dims}
        used |= {str(n.attr) for n in nodes if n.op == "size"}
        read = {t for n in nodes if n.op == "load" for t in n.access.tensors}
        for name in self.inputs:
            if name not in read:
                raise InputError(
                    f"input '{name}' is never read",
                    where=self.name,
                    repair="use it or leave it out",
                )
        dims = tuple(Dim(d, s) for d, s in self.sizes.items() if d in used)
        built = Program(self.name, dims, tuple(self.inputs.values()), nodes, outputs)
        return built.held_to(self.fp32_precision)

    def ordered(self, dims: Iterable[str]) -> tuple[str, ...]:
        """Distinct dimensions in the order of their declaration."""
        if len(self._places) < len(self.sizes):
            self._places = {d: n for n, d in enumerate(self.sizes)}
        wanted = (d for d in dict.fromkeys(dims) if d in self._places)
        return tuple(sorted(wanted, key=self._places.__getitem__))

    # -- inside ----------------------------------------------------------------------------------

    def _node(self, op: str, args: tuple[int, ...], attr: Attr, dims: Iterable[str]) -> int:
        node = Node(op, args, attr, self.ordered(dims))
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def _simple(self, index: Iterable[IndexExpr]) -> tuple[IndexExpr, ...]:
        return tuple(ix.recomposed(ix.simplify(e, self.sizes)) for e in index)

    def _without(self, x: int, over: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(d for d in self.nodes[x].dims if d not in over)

    def _const_value(self, node: int) -> float | None:
        attr = self.nodes[node].attr
        return attr if self.nodes[node].op == "const" and isinstance(attr, float) else None

    def _fold(self, op: str, args: tuple[int, ...]) -> int | None:
        """Scalar arithmetic that no search should have to rediscover."""
        values = [self._const_value(a) for a in args]
        row = operator(op)
        if op != "cast" and all(v is not None for v in values):
            assert row.over_floats is not None
            with np.errstate(all="ignore"):  # what is not finite stays unfolded
                result = float(row.over_floats(*values))
            if math.isfinite(result):
                return self.const(result)
        if op in ("add", "sub") and values[1] == 0.0:
            return args[0]
        if op in ("mul", "div") and values[1] == 1.0:
            return args[0]
        if (op, values[0]) in (("add", 0.0), ("mul", 1.0)):
            return args[1]
        kept = without_mask(self.nodes, op, args)
        return self._low_mask(op, args) if kept is None else kept

    def _low_mask(self, op: str, args: tuple[int, ...]) -> int | None:
        """A mask that chooses a very low number, or multiplies it to add it, as a mask of what is
        kept: the form that ``masked_fill`` gives it.
        """
        if op == "mul":
            mask, low = args if self.nodes[args[0]].op == "mask" else args[::-1]
            other = None
        elif op == "where":
            mask, low, other = args
        else:
            return None
        predicate, value = self.nodes[mask].attr, self._const_value(low)
        if not isinstance(predicate, Predicate) or value is None or value > LOW_MASK:
            return None
        kept = self.const(0.0) if other is None else other
        if (self._const_value(kept) or 0.0) <= LOW_MASK:
            return None
        return self.apply("where", self.mask(negation(predicate)), kept, low)

    def factors(self, x: int) -> list[int]:
        """The factors of a product from left to right; some are products where there are many.

        What a mask selects from stays with the mask: it may be anything where that is false. A
        tensor in memory is one factor.
        """
        factors, position = [x], 0
        while position < len(factors):
            node = self.nodes[factors[position]]
            # A product that is squared again and again has as many factors as a power of two.
            is_product = node.op == "mul" and not self.is_stored(factors[position])
            if is_product and not self._selects(node) and len(factors) < _MAX_FACTORS:
                factors[position : position + 1] = node.args
            else:
                position += 1
        return factors

    def _selects(self, node: Node) -> bool:
        """Whether a product is one value under a mask, and no product of values under it."""
        first, second = (self.nodes[a] for a in node.args)
        if "mask" not in (first.op, second.op):
            return False
        selected, mask = (second, first) if first.op == "mask" else (first, second)
        return (selected.op != "mul" or self._selects(selected)) and {*mask.dims} <= {
            *selected.dims
        }

    def _points(self, one: int, other: int) -> int:
        """How many elements a product of two values has."""
        dims = {*self.nodes[one].dims, *self.nodes[other].dims}
        return math.prod(self.sizes[d] for d in dims)

    def _sum_of_product(self, x: int, over: tuple[str, ...]) -> int:
        """Contract the factors of a product one dimension at a time, as an einsum would."""
        groups: list[int] = []
        for factor in sorted(self.factors(x), key=lambda f: -len(self.nodes[f].dims)):
            for position, group in enumerate(groups):
                if set(self.nodes[factor].dims) <= set(self.nodes[group].dims):
                    groups[position] = self.apply("mul", group, factor)
                    break
            else:
                groups.append(factor)
        if len(groups) == 1:
            return self._node("sum", (x,), over, self._without(x, over))
        todo = list(over)
        while todo:
            # The dimension that fewest factors share first: its contraction is the smallest.
            todo.sort(key=lambda d: sum(d in self.nodes[g].dims for g in groups))
            d = todo[0]
            touched = [g for g in groups if d in self.nodes[g].dims]
            rest = [g for g in groups if d not in self.nodes[g].dims]
            outside = {e for g in rest for e in self.nodes[g].dims}
            together = [
                e
                for e in todo
                if e not in outside and all(e in self.nodes[g].dims for g in touched)
            ]
            while len(touched) > 2:
                # A decay of rows and columns is a factor of their scores, not of the values.
                pairs = combinations(range(len(touched)), 2)
                one, other = min(pairs, key=lambda p: self._points(touched[p[0]], touched[p[1]]))
                touched[one] = self.apply("mul", touched[one], touched.pop(other))
            if len(touched) == 2:
                done = self.matmul(touched[0], touched[1], together)
            else:
                over_now = self.ordered(together)
                done = self._node(
                    "sum", (touched[0],), over_now, self._without(touched[0], over_now)
                )
            groups = [*rest, done]
            todo = [e for e in todo if e not in together]
        result = groups[0]
        for group in groups[1:]:
            result = self.apply("mul", result, group)
        return result
