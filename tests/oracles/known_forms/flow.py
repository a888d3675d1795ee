"""Data flow of a whole µGraph as one graph, through memory and from kernel to kernel.

Sets of nodes are integers with a bit for each member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mirage_py.search.extract.bounds import bits_of, members_of
from mirage_py.search.space.splits import split_dims
from mirage_py.ugraph.ir.node import REDUCING, STORES
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.operators import ELEMENTWISE, operator
from mirage_py.ugraph.rewrite.split_dim import outer_dim

_CARRIES = ("cast", "load", *STORES)


@dataclass(frozen=True, slots=True)
class Value:
    """A node of a kernel, or a library call.

    ``args`` are positions of earlier values; a load of what another kernel stored has the store for
    its argument. ``loop`` is the position of the loop around it among the kernel's sections, None
    outside of loops. ``tensor`` is what a load or a store names.
    """

    op: str
    args: tuple[int, ...]
    dims: tuple[str, ...]
    reduced: tuple[str, ...]
    kernel: int
    loop: int | None
    tensor: str
    is_library: bool = False


class Flow:
    """``values`` in the order in which they are computed.

    ``parts`` are the dimensions that number the parts of split ones.
    """

    def __init__(self, ugraph: UGraph) -> None:
        self.ugraph = ugraph
        self.values: list[Value] = []
        self.parts = tuple(outer_dim(d) for d in split_dims(ugraph.program))
        # Who made each tensor last, and over which dimensions its axes go.
        self._makers: dict[str, int] = {}
        self._axes: dict[str, tuple[str, ...]] = {}
        for node in ugraph.program.nodes:
            if node.op == "load":
                index = node.access.index
                self._axes.setdefault(node.access.tensor, tuple(str(e) for e in index))
        for number, kernel in enumerate(ugraph.kernels):
            if isinstance(kernel, BlockGraph):
                self._add_block(number, kernel)
            else:
                self._add_call(number, kernel)

    # -- questions --------------------------------------------------------------------------------

    def all_of(self, *ops: str) -> Iterator[int]:
        """The values of these operators."""
        return (n for n, value in enumerate(self.values) if value.op in ops)

    def feeds(self, source: int, target: int) -> bool:
        """Whether the target is computed from the source, however far behind it."""
        return bool(self._ancestors[target] >> source & 1)

    def sources(self, target: int, *ops: str) -> list[int]:
        """The values of these operators that the target is computed from."""
        return [n for n in members_of(self._ancestors[target]) if self.values[n].op in ops]

    def origins(self, target: int, *ops: str) -> list[int]:
        """The values of these operators that the target is nothing but an elementwise function of.

        Accumulators, memory, and sums that end a split reduction count as elementwise.
        """
        found = (n for n in members_of(self._through[target]) if not self._passes_on(n))
        return [n for n in found if self.values[n].op in ops]

    def is_elementwise_in(self, source: int, target: int) -> bool:
        """Whether only such operators lie on some way from the source to the target."""
        return bool(self._through[target] >> source & 1)

    def tensors(self, target: int) -> frozenset[str]:
        """The program's inputs that a value is computed from."""
        loads = (n for n in (target, *self.sources(target, "load")) if self.values[n].op == "load")
        return frozenset(self.values[n].tensor for n in loads if not self.values[n].args)

    def users(self, source: int) -> list[int]:
        """The values that have this one for an argument."""
        return [n for n, value in enumerate(self.values) if source in value.args]

    def is_in_one_loop(self, *numbers: int) -> bool:
        """Whether all are in the same loop of the same kernel."""
        where = {(self.values[n].kernel, self.values[n].loop) for n in numbers}
        return len(where) == 1 and self.values[numbers[0]].loop is not None

    def loops_over(self, kernel: int, dim: str) -> int:
        """How many loops of a kernel go over a dimension."""
        block = self.ugraph.kernels[kernel]
        sections = block.sections if isinstance(block, BlockGraph) else ()
        return sum(section.loop == dim for section in sections)

    def in_cluster(self, kernel: int) -> tuple[str, ...]:
        """The parts that blocks of a cluster of a kernel have, one each."""
        block = self.ugraph.kernels[kernel]
        shared = block.cluster_dims if isinstance(block, BlockGraph) else ()
        return tuple(d for d in shared if d in self.parts)

    def stores_over(self, *dims: str) -> bool:
        """Whether some kernel stores a value over all of these dimensions."""
        stored = (self.values[n].dims for n in self.all_of(*STORES))
        return any(all(d in value for d in dims) for value in stored)

    @property
    def kernels(self) -> int:
        """How many kernels there are, library calls among them."""
        return len(self.ugraph.kernels)

    # -- construction -----------------------------------------------------------------------------

    def _add_block(self, number: int, block: BlockGraph) -> None:
        first = len(self.values)
        for position, node in enumerate(block.nodes):
            section = block.section_of[position]
            loop = section if block.sections[section].loop else None
            args = tuple(first + a for a in node.args)
            dims, tensor = node.dims, ""
            if node.op in _CARRIES and node.op != "cast":
                tensor = node.access.tensor
            if node.op == "load" and tensor in self._makers:
                args = (self._makers[tensor],)
            if node.op in STORES:
                dims = self.values[args[0]].dims
                self._makers[tensor] = len(self.values)
                self._axes[tensor] = tuple(str(e) for e in node.access.index)
            reduced = node.reduced if node.op in REDUCING else ()
            self.values.append(Value(node.op, args, dims, reduced, number, loop, tensor))

    def _add_call(self, number: int, call: LibraryCall) -> None:
        args = []
        for name in call.args:
            maker = (self._makers[name],) if name in self._makers else ()
            args.append(len(self.values))
            self.values.append(Value("load", maker, self._axes[name], (), number, None, name))
        left, right = (self._axes[name] for name in call.args)
        dims, reduced = (*left[:-1], right[-1]), left[-1:]
        self._axes[call.result] = dims
        self._makers[call.result] = len(self.values)
        self.values.append(
            Value(call.op, tuple(args), dims, reduced, number, None, call.result, is_library=True)
        )

    @cached_property
    def _ancestors(self) -> Sequence[int]:
        known: list[int] = []
        for value in self.values:
            bits = bits_of(value.args)
            for a in value.args:
                bits |= known[a]
            known.append(bits)
        return known

    @cached_property
    def _through(self) -> Sequence[int]:
        """For each value itself and what it is an elementwise function of."""
        known: list[int] = []
        for number, value in enumerate(self.values):
            bits = 1 << number
            for a in value.args if self._passes_on(number) else ():
                bits |= known[a]
            known.append(bits)
        return known

    def _passes_on(self, number: int) -> bool:
        value = self.values[number]
        if not value.args:
            return False
        if value.op == "sum":
            return all(d in self.parts for d in value.reduced)
        accumulates = value.op.startswith("accum_")
        return accumulates or value.op in _CARRIES or operator(value.op).kind == ELEMENTWISE
