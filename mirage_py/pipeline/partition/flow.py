"""The data flow that a partition cuts: values of a program, their users, and which may be in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import prod

from mirage_py.pipeline.partition.values import Value, values_of
from mirage_py.search.space.layouts_in_memory import axes_as_computed
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.operators import ELEMENTWISE, LEAF, operator
from mirage_py.ugraph.rewrite.convolutions import (
    Product,
    axes_in_memory,
    convolution_at,
)
from mirage_py.ugraph.rewrite.degrees import shiftable_exps
from mirage_py.ugraph.rewrite.merged_dims import WHOLE_TILES, counted_pairs, whole_axes

# Columns of a head that a block has at once.
_COLUMNS = 256


@dataclass(frozen=True)
class Flow:
    """The values of a program: classes of nodes that are equal up to the names of dimensions.

    With ``products_apart`` every matmul is a part by itself, as convolutions are. ``in_halves``:
    what is in memory has the inputs' half type wherever PyTorch may have it so.
    """

    program: Program
    products_apart: bool = False
    in_halves: bool = False

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The value of every node."""
        return values_of(self.program)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of each tensor among those of the program."""
        return {name: n for n, name in enumerate(self.program.tensors)}

    @cached_property
    def first(self) -> Mapping[int, int]:
        """The first node of each value."""
        found: dict[int, int] = {}
        for node, value in enumerate(self.values):
            found.setdefault(value.number, node)
        return found

    @cached_property
    def needs(self) -> Mapping[int, tuple[int, ...]]:
        """For each value that is computed, in topological order: the computed values it reads.

        What no load goes into (masks, sizes, numbers made of these) counts as a leaf: every part
        makes its own. So do windows of a tensor in memory, with their masks.
        """
        nodes = self.program.nodes
        found: dict[int, tuple[int, ...]] = {}
        for number, place in self.first.items():
            if self._computed[place]:
                args = [n for a in nodes[place].args for n in self._sources(a)]
                found[number] = tuple(dict.fromkeys(args))
        return found

    @cached_property
    def _computed(self) -> tuple[bool, ...]:
        nodes = self.program.nodes
        reads: list[bool] = []
        for node in nodes:
            reads.append(node.op == "load" or any(reads[a] for a in node.args))
        windows = dict.fromkeys(n for p in self.products.values() for n in p.inner)
        kept = [o.node for o in self.program.outputs]
        kept += [n.args[0] for n in nodes if n.op == "read"]
        for position in kept:
            windows.pop(position, None)
        return tuple(
            r and operator(n.op).kind != LEAF and at not in windows
            for at, (r, n) in enumerate(zip(reads, nodes, strict=True))
        )

    def _sources(self, position: int) -> tuple[int, ...]:
        """The computed values that a node stands for: itself, or what is behind a leaf."""
        if self._computed[position]:
            return (self.values[position].number,)
        args = self.program.nodes[position].args
        return tuple(dict.fromkeys(n for a in args for n in self._sources(a)))

    @cached_property
    def products(self) -> Mapping[int, Product]:
        """The convolutions among the nodes, which a library computes."""
        found = {}
        for position in range(len(self.program.nodes)):
            product = convolution_at(self.program, position)
            if product is not None:
                found[position] = product
        return found

    @cached_property
    def alone(self) -> Mapping[int, None]:
        """Values that are a part each: a library computes them."""
        found = list(self.products)
        if self.products_apart:
            found += [n for n, node in enumerate(self.program.nodes) if node.op == "matmul"]
        return {self.values[position].number: None for position in found}

    @cached_property
    def loads(self) -> Mapping[int, tuple[str, ...]]:
        """For each computed value the tensors of the program that it reads itself."""
        nodes = self.program.nodes
        found: dict[int, tuple[str, ...]] = {}
        for number in self.needs:
            accesses = (nodes[n].access for n in self._behind(number) if nodes[n].op == "load")
            found[number] = tuple(dict.fromkeys(name for a in accesses for name in a.tensors))
        return found

    @cached_property
    def behind_reads(self) -> Mapping[int, tuple[int, ...]]:
        """For each computed value those that it reads at other indices: they are in memory."""
        nodes = self.program.nodes
        found: dict[int, tuple[int, ...]] = {}
        for number in self.needs:
            behind = self._behind(number)
            windows = (n for n in behind if nodes[n].op == "read" and self._is_window(n))
            found[number] = tuple(dict.fromkeys(s for n in windows for s in self._sources(n)))
        return found

    def _behind(self, number: int) -> Iterator[int]:
        """The nodes that a computed value is made of, up to other computed values and with them."""
        nodes = self.program.nodes
        todo = list(nodes[self.first[number]].args)
        while todo:
            at = todo.pop()
            yield at
            if not self._computed[at]:
                todo += nodes[at].args

    def _is_window(self, position: int) -> bool:
        """Whether a node reads a value at other indices, and not under other names."""
        operand = self.program.nodes[position].args[0]
        return self.values[position].number != self.values[operand].number

    @cached_property
    def axes(self) -> Mapping[int, Sequence[Sequence[str]]]:
        """Which dimensions of the first node of a value are one axis of the tensor: those at which
        it is read as digits of one position, and two that are one axis of all inputs and outputs,
        or of weights that it is multiplied by. Tiles of groups of channels would have tails; those
        of heads of 64 columns have none.
        """
        nodes = self.program.nodes
        found: dict[int, Sequence[Sequence[str]]] = {}

        def add(operand: int, axes: Sequence[Sequence[str]]) -> None:
            value = self.values[operand]
            first = self.values[self.first[value.number]].dims
            names = dict(zip(value.dims, first, strict=True))
            found.setdefault(value.number, [[names[d] for d in axis] for axis in axes])

        for node in nodes:
            if node.op == "read":
                dims = nodes[node.args[0]].dims
                shape = [self.program.sizes[d] for d in dims]
                axes = axes_in_memory(node.access.index, shape)
                if len(axes) < len(shape):
                    add(node.args[0], [[dims[n] for n in axis] for axis in axes])
        order = axes_as_computed(self.program)
        one_axis = whole_axes(self.program)
        for pair in counted_pairs(self.program):
            if self.program.sizes[pair[1]] % WHOLE_TILES:
                for number in self.needs:
                    dims = order[self.first[number]]
                    place = dims.index(pair[0]) if pair[0] in dims else 0
                    if dims[place : place + 2] == pair:
                        summed = self._summed(number, pair)
                        if all(summed) and (summed or pair in one_axis):
                            add(self.first[number], [pair])
        return found

    def _summed(self, number: int, pair: Sequence[str]) -> list[bool]:
        """For each matmul that reads a value whether it sums over both dimensions; False for one
        that reads it at other indices.
        """
        nodes, own = self.program.nodes, self.values[self.first[number]].dims
        found = []
        for node in nodes:
            for arg in node.args if node.op in ("read", "matmul") else ():
                if self.values[arg].number == number:
                    names = dict(zip(own, self.values[arg].dims, strict=True))
                    is_matmul = node.op == "matmul"
                    found.append(is_matmul and all(names[d] in node.reduced for d in pair))
        return found

    @cached_property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """Two topological orders of the computed values: as the program has them, and by depth.

        By depth, products of the same rows stand together wherever their results are needed. In
        both, what is computed of inputs alone, element by element, stands before what needs it: the
        running statistics of all norms of a network would be a part by themselves.
        """
        depth: dict[int, int] = {}
        for number, needed in self.needs.items():
            depth[number] = 1 + max((depth[n] for n in needed), default=0)
        written = tuple(self.needs)
        by_depth = tuple(sorted(written, key=lambda n: depth[n]))
        return tuple(dict.fromkeys((self._late(written), self._late(by_depth))))

    def _late(self, order: Sequence[int]) -> tuple[int, ...]:
        """The order, with values of inputs alone right before the first that needs them, and what
        is in no memory, so that no other value stands between.
        """
        nodes = self.program.nodes
        light: dict[int, None] = dict.fromkeys(self.attended)
        for number, needed in self.needs.items():
            op = operator(nodes[self.first[number]].op)
            if op.kind == ELEMENTWISE and all(
                n in light and n not in self.attended for n in needed
            ):
                light[number] = None
        found: dict[int, None] = {}

        def add(number: int) -> None:
            for n in self.needs[number]:
                if n in light and n not in found:
                    add(n)
            found[number] = None

        for number in order:
            if number not in light:
                add(number)
        for number in order:  # those that nothing needs
            if number not in found:
                add(number)
        return tuple(found)

    @cached_property
    def smallest_first(self) -> tuple[int, ...]:
        """A topological order in which small values come as early as they can: what is computed of
        a sample stands before what is computed of its rows.
        """
        nodes, sizes = self.program.nodes, self.program.sizes
        missing = {number: len(needed) for number, needed in self.needs.items()}
        users: dict[int, list[int]] = {}
        for number, needed in self.needs.items():
            for n in needed:
                users.setdefault(n, []).append(number)

        def entry(number: int) -> tuple[int, int]:
            return prod(sizes[d] for d in nodes[self.first[number]].dims), number

        ready = [entry(number) for number, count in missing.items() if not count]
        heapify(ready)
        found: list[int] = []
        while ready:
            _, number = heappop(ready)
            found.append(number)
            for user in users.get(number, ()):
                missing[user] -= 1
                if not missing[user]:
                    heappush(ready, entry(user))
        return self._late(found)

    @cached_property
    def outputs(self) -> Mapping[int, tuple[Output, ...]]:
        """The program's outputs by the value they hold."""
        found: dict[int, list[Output]] = {}
        for output in self.program.outputs:
            found.setdefault(self.values[output.node].number, []).append(output)
        return {number: tuple(outputs) for number, outputs in found.items()}

    @cached_property
    def scaled(self) -> tuple[int, ...]:
        """Values that carry the scale of an exponential which cancels later: only its own kernels
        can shift them, so they may not be in memory between two parts.
        """
        nodes = self.program.nodes
        _, degrees = shiftable_exps(nodes, [o.node for o in self.program.outputs])
        found = (self.values[n].number for n, degree in enumerate(degrees) if degree)
        return tuple(dict.fromkeys(found))

    @cached_property
    def attended(self) -> Mapping[int, None]:
        """Scores and all up to the probabilities that a matmul weighs rows by, as in attention: a
        block has them at hand. In memory they may be smaller than queries or results, of few keys,
        but kernels would wait for one another, and their rows are as odd as the keys are many.

        Only where the columns of a head fit a block. Others would need the scores once more.
        """
        nodes, sizes = self.program.nodes, self.program.sizes
        found: dict[int, None] = {}
        for node in nodes if not self.products_apart else ():
            for weights, rows in (node.args, node.args[::-1]) if node.op == "matmul" else ():
                mine, columns = {*nodes[weights].dims}, {*nodes[rows].dims}
                is_attention = mine - columns and prod(sizes[d] for d in columns - mine) <= _COLUMNS
                if is_attention and node.reduced:
                    inside = self._scores(weights, node.reduced)
                    if any(nodes[n].op == "exp" for n in inside):
                        found |= dict.fromkeys(self.values[n].number for n in inside)
        return found

    def _scores(self, weights: int, keys: Sequence[str]) -> tuple[int, ...]:
        """The nodes behind a value, up to the matmuls that it is made of, which are of ``keys``."""
        nodes = self.program.nodes
        found: dict[int, None] = {}
        todo = [weights]
        while todo:
            n = todo.pop()
            if self._computed[n] and n not in found:
                found[n] = None
                todo += nodes[n].args if nodes[n].op != "matmul" else ()
        products = [n for n in found if nodes[n].op == "matmul"]
        is_one = products and all({*keys} <= {*nodes[n].dims} for n in products)
        return tuple(found) if is_one else ()

    def dtype(self, number: int) -> DType:
        """The type of a value in memory.

        A value that a product reads has the common half type of the floating-point inputs it comes
        from, as in an eager framework: the product rounds it to that anyway. All others, and those
        without such a type, are f32: the numerical check holds a plan to roundings at products
        alone, and half a last place before an exponential is far more than that. A value that the
        program casts has that type. ``in_halves`` all have the half type but statistics, which are
        read at many places.
        """
        return self._dtypes[number]

    @cached_property
    def _dtypes(self) -> Mapping[int, DType]:
        nodes = self.program.nodes
        multiplied = {a: None for n in nodes if n.op == "matmul" for a in n.args}
        # A library reads and writes halves alike.
        for position, product in self.products.items():
            for side in (product.left, product.right):
                behind = nodes[side].args if nodes[side].op == "read" else ()
                multiplied |= dict.fromkeys((position, side, *behind))
        in_products = {self.values[a].number: None for a in multiplied}
        sources: list[dict[DType, None]] = []
        for node in nodes:
            mine = {t: None for a in node.args for t in sources[a]}
            if node.op == "load":
                dtype = self.program.tensors[node.access.tensor].dtype
                mine = {dtype: None} if dtype.is_float else {}
            sources.append(mine)
        found: dict[int, DType] = {}
        for number, place in self.first.items():
            attr, types = nodes[place].attr, list(sources[place])
            found[number] = F32
            if isinstance(attr, DType):
                found[number] = attr
            elif len(types) == 1 and types[0].is_half:
                is_rounded = number in in_products
                is_rounded |= self.in_halves and number not in self._statistics
                found[number] = types[0] if is_rounded else F32
        return found

    @cached_property
    def _statistics(self) -> Mapping[int, None]:
        """Values that are read along dimensions which they do not have, or what these are made of
        element by element. A read at other indices has other dimensions, of as many elements.
        """
        nodes = self.program.nodes
        found: dict[int, None] = {}
        for number in reversed(range(len(nodes))):
            node = nodes[number]
            if node.op not in REDUCING:
                is_one = self.values[number].number in found
                is_read = node.op == "read"
                for a in node.args:
                    wider = not is_read and any(d not in nodes[a].dims for d in node.dims)
                    if is_one or wider:
                        found[self.values[a].number] = None
        return found
