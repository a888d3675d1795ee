"""Block analysis: which nodes of a typed block graph are emitted, and what each of them reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from mirage_py.codegen.cuda.analysis.cluster_plan import ClusterPadding, ClusterPlan
from mirage_py.codegen.lowering.base_two_shifts import BaseTwoShifts
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.padding import Padding
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.checks.kept_integers import WIDE
from mirage_py.ugraph.ir.dtypes import BOOL, F32
from mirage_py.ugraph.ir.node import REDUCING, STORES
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.operators import ELEMENTWISE, operator

_LITERALS = ("const", "size")
_POSITIONS = ("mask", "index")
_SUMS = ("accum_sum", "accum_rescaled")


class BlockAnalysis:
    """A typed block graph as the CUDA back end sees it."""

    def __init__(
        self,
        program: Program,
        typed: TypedBlock,
        tensors: Mapping[str, Tensor],
        reversed_axes: bool,
        in_base_two: Collection[str],
        cut: ClusterPlan | None = None,
        computed: Collection[str] = (),
    ) -> None:
        """``reversed_axes`` is the launch option ``axes``, ``in_base_two`` the tensors that hold
        shifts in base 2, ``cut`` where the blocks of its cluster meet, ``computed`` those of
        ``tensors`` that the kernel itself computes.
        """
        self.cut = cut
        if cut is not None:
            typed, tensors = cut.typed, {**tensors, **cut.tensors}
            in_base_two = {*in_base_two, *cut.in_base_two}
        self.program = program
        self.block = typed.block
        self.dtypes = typed.dtypes
        self.tensors = tensors
        self.tiling = Tiling(program, typed.block) if cut is None else cut.tiling
        self.order = self.tiling.axis_order(reversed_axes)
        self.shifts = BaseTwoShifts(self.block, self.dtypes, in_base_two, "f", computed)

    # -- extents ---------------------------------------------------------------------------------

    def section(self, number: int) -> int:
        """The position of a node's section."""
        return self.block.section_of[number]

    def tiles_order(self, dims: Iterable[str]) -> tuple[str, ...]:
        """The dimensions, each once, in the order of axes."""
        chosen = set(dims)
        return tuple(d for d in self.order if d in chosen)

    def live(self, number: int) -> tuple[str, ...]:
        """The dimensions along which a node's tile has several points, in the order of axes."""
        dims = self.block.nodes[number].dims
        return self.tiles_order(self.tiling.live(dims, self.section(number)))

    def extent(self, number: int, dim: str) -> int:
        """Points of a node's tile along a dimension."""
        return self.tiling.padded(dim, self.section(number))

    def extents(self, number: int) -> dict[str, int]:
        """Points of a node's tile along each of its live dimensions."""
        return {d: self.extent(number, d) for d in self.live(number)}

    def elements(self, number: int) -> int:
        """Points of a node's tile."""
        return self.tiling.elements(self.block.nodes[number].dims, self.section(number))

    # -- what is emitted -------------------------------------------------------------------------

    @property
    def sources(self) -> Mapping[int, int]:
        """Loads of what arrives from other blocks, and the node whose value each block sends."""
        return {} if self.cut is None else self.cut.sources

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each node those that have it for an argument."""
        users: list[list[int]] = [[] for _ in self.block.nodes]
        for number, node in enumerate(self.block.nodes):
            for argument in dict.fromkeys(node.args):
                users[argument].append(number)
        for load, source in self.sources.items():
            users[source].append(load)
        return tuple(map(tuple, users))

    @cached_property
    def padding(self) -> Padding:
        """What values are in the padding of their tiles."""
        if self.cut is None:
            return Padding(self.tiling, self.block)
        return ClusterPadding(self.tiling, self.block, self.cut.sources)

    def is_literal(self, number: int) -> bool:
        """Whether it is a number."""
        return self.block.nodes[number].op in _LITERALS

    def is_position(self, number: int) -> bool:
        """Whether it follows from positions alone."""
        return self.block.nodes[number].op in _POSITIONS

    def is_transparent(self, number: int) -> bool:
        """Whether it is computed where it is read: the same value in another type."""
        node = self.block.nodes[number]
        if node.op != "cast" or self.is_literal(node.args[0]) or self.is_position(node.args[0]):
            return False
        is_kept = self.dtypes[node.args[0]] in (BOOL, *WIDE)
        return self.dtypes[number] == F32 and not is_kept

    def root(self, number: int) -> int:
        """The node whose registers hold it."""
        while self.is_transparent(number):
            number = self.block.nodes[number].args[0]
        return number

    @cached_property
    def dots(self) -> tuple[int, ...]:
        """Matmuls of tiles that are large enough for tensor cores."""
        nodes = enumerate(self.block.nodes)
        return tuple(
            n for n, node in nodes
            if node.op == "matmul" and self.tiling.is_dot(n)
        )  # fmt: skip

    @cached_property
    def fused(self) -> dict[int, int]:
        """Matmuls on tensor cores that nothing but an accumulator of their section reads."""
        return {
            n: self.users[n][0]
            for n in self.dots
            if len(self.users[n]) == 1 and self._accumulates(self.users[n][0], n)
        }

    @cached_property
    def fused_by(self) -> dict[int, int]:
        """The same the other way round: {accumulator: matmul}."""
        return {accumulator: product for product, accumulator in self.fused.items()}

    @cached_property
    def deferred_by(self) -> dict[int, int]:
        """Accumulators whose sums are finished after the loop: {accumulator: sum}."""
        return {
            self.users[n][0]: n
            for n, node in enumerate(self.block.nodes)
            if node.op == "sum" and len(self.users[n]) == 1
            and self._accumulates(self.users[n][0], n)
        }  # fmt: skip

    def _accumulates(self, user: int, number: int) -> bool:
        node = self.block.nodes[user]
        here = self.section(user) == self.section(number)
        return here and node.op in _SUMS and node.args[0] == number

    @cached_property
    def emitted(self) -> tuple[int, ...]:
        """Nodes with a text of their own, in order."""
        gone = {
            *self.fused, *self.deferred_by.values(), *self.shifts.subtractions,
            *self.shifts.factors,
        }  # fmt: skip
        return tuple(
            n for n in range(len(self.block.nodes))
            if n not in gone and not self.is_literal(n) and not self.is_transparent(n)
            and not self.is_position(n) and self.block.nodes[n].op not in STORES
        )  # fmt: skip

    def operands(self, number: int) -> tuple[int, ...]:
        """What the text of a node reads, as it reads it."""
        node = self.block.nodes[number]
        if number in self.shifts.exponents:
            source, shift = self.shifts.exponents[number]
            source = self.shifts.factors.get(source, (source, 1.0))[0]
            return source, shift
        if number in self.fused_by:
            return (*self.block.nodes[self.fused_by[number]].args, *node.args[1:])
        if number in self.deferred_by:
            return (*self.block.nodes[self.deferred_by[number]].args, *node.args[1:])
        return node.args

    def inputs(self, number: int) -> tuple[int, ...]:
        """The nodes whose registers it reads."""
        roots = (self.root(a) for a in self.operands(number))
        return tuple(a for a in roots if not self.is_literal(a) and not self.is_position(a))

    def reads_in_registers(self, load: int) -> bool:
        """Whether something but a matmul on tensor cores reads a load."""
        readers = [*self.emitted, *(n for n, _ in self.block.stores())]
        return any(load in self.inputs(n) for n in readers if not self._multiplies(n))

    def _multiplies(self, number: int) -> bool:
        return number in self.dots or number in self.fused_by

    def is_in_thread_graph(self, number: int) -> bool:
        """Whether a node is one of a chain: no load or store, no matmul, no accumulator."""
        op = self.block.nodes[number].op
        is_other = op == "load" or op in REDUCING or op.startswith("accum")
        return number in self.emitted and not self._multiplies(number) and not is_other

    # -- chains of matmuls -----------------------------------------------------------------------

    def comes_from_dot(self, number: int) -> bool:
        """Whether it is elementwise in the result of a matmul on tensor cores, of its shape."""
        if number in self.dots:
            return True
        if operator(self.block.nodes[number].op).kind != ELEMENTWISE:
            return False
        return any(
            self.live(a) == self.live(number) and self.comes_from_dot(a)
            for a in map(self.root, self.operands(number))
        )

    def contracted_by_next(self, product: int) -> tuple[str, ...]:
        """The dimensions over which another matmul sums what is elementwise in this one."""
        for number in self.dots:
            for argument in self.block.nodes[number].args:
                if self._is_made_of(argument, product):
                    return self.block.nodes[number].reduced
        return ()

    def _is_made_of(self, number: int, product: int) -> bool:
        if number == product:
            return True
        if number in self.dots or operator(self.block.nodes[number].op).kind != ELEMENTWISE:
            return False
        same = (a for a in self.operands(number) if self.live(a) == self.live(number))
        return any(self._is_made_of(a, product) for a in same)

    def sums_at_end(self, product: int) -> bool:
        """Whether a matmul lies outside of loops."""
        return self.block.sections[self.section(product)].loop is None
