"""Relations among the nodes of a kernel that do not depend on its tiles.

Ranking computes the work of one block graph under hundreds of tilings; what they share is computed
once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property

from mirage_py.codegen.cuda.analysis.row_reductions import producer_nodes
from mirage_py.codegen.lowering.precision import dot_types
from mirage_py.codegen.tiling.axis_order import axis_order
from mirage_py.codegen.tiling.contiguity import strided
from mirage_py.search.tilings.residency import accesses_of, passes_of, touched_bytes
from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.dtypes import I8, U8, DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import ACCESSES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import EFFECT, ELEMENTWISE, LEAF, operator


class BlockBody:
    """The nodes of a block graph, with tiles or without, by position. ``scope`` is the program with
    every tensor that it reads or writes.
    """

    def __init__(self, scope: Program, block: BlockGraph) -> None:
        self._scope = scope
        self._block = block
        self._nodes = block.nodes
        # Filled by the tilings, which have many sizes of tiles in common.
        self.iterations: dict[Hashable, float] = {}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The kernel's natural order of axes."""
        return axis_order(self._scope, self._block)

    @cached_property
    def passes(self) -> Mapping[str, int]:
        """How often the kernel goes over each tensor that it reads."""
        return passes_of(self._block)

    @cached_property
    def touched(self) -> Mapping[str, int]:
        """Bytes of each tensor that the kernel reads or writes."""
        return touched_bytes(self._scope, accesses_of(self._block))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each operator."""
        return tuple(operator(n.op).kind for n in self._nodes)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """What reads each node, each once."""
        return tuple(reads_of(self._nodes))

    @cached_property
    def has_loop_sums(self) -> bool:
        """Whether an accumulator takes what a sum gives: such a sum may wait for its loop's end."""
        accumulators = (n for n in self._nodes if n.op.startswith("accum"))
        return any(self._nodes[n.args[0]].op == "sum" for n in accumulators)

    @cached_property
    def aside(self) -> frozenset[int]:
        """Nodes of row reductions that the producer warps can compute (``sums producer``)."""
        return producer_nodes(self._block)

    @cached_property
    def mask_dims(self) -> tuple[str, ...]:
        """Dimensions of the grid that masks depend on."""
        masks = (n.attr for n in self._nodes if isinstance(n.attr, Predicate))
        found = dict.fromkeys(d for mask in masks for d in mask.dims())
        return tuple(d for d in found if d in self._block.grid_tiles)

    @cached_property
    def accumulated(self) -> frozenset[int]:
        """Nodes that accumulators alone read."""
        return frozenset(
            number
            for number, readers in enumerate(self.readers)
            if all(self._nodes[r].op.startswith("accum") for r in readers)
        )

    @cached_property
    def by_element(self) -> frozenset[int]:
        """Nodes that are computed element by element together with what reads them."""
        return frozenset(
            number
            for number, readers in enumerate(self.readers)
            if self.kinds[number] == ELEMENTWISE
            and {self.kinds[r] for r in readers} <= {ELEMENTWISE, EFFECT}
        )

    @cached_property
    def reduced_at_once(self) -> frozenset[int]:
        """Nodes that are computed element by element, and which one reduction reads: squares."""
        return frozenset(
            number
            for number, readers in enumerate(self.readers)
            if self.kinds[number] == ELEMENTWISE
            and [self._nodes[r].op for r in readers] in (["sum"], ["max"])
        )

    @cached_property
    def in_place(self) -> frozenset[int]:
        """Values behind the loops that take the registers of an accumulator: computed from it
        element by element, and nothing that is computed from them reads it again.
        """
        nodes, readers, together = self._nodes, self.readers, self.by_element
        found: dict[int, int] = {}
        for number, node in enumerate(nodes):
            is_behind = self._block.sections[self._block.section_of[number]].loop is None
            if not is_behind or self.kinds[number] != ELEMENTWISE or number in together:
                continue
            below = _reached(node.args, lambda n: nodes[n].args if n in together else ())
            above = _reached(readers[number], lambda n: readers[n])
            for state in sorted(below):
                if not nodes[state].op.startswith("accum") or {*nodes[state].dims} != {*node.dims}:
                    continue
                read_by = _reached(readers[state], lambda n: readers[n] if n in together else ())
                if not above & read_by:
                    found.setdefault(state, number)
        return frozenset(found.values())

    @cached_property
    def promoted(self) -> frozenset[int]:
        """Matmuls that are scaled by loads and added to an accumulator in each iteration, and these
        products: emitters multiply an element once, by the product of the scales.
        """
        found: list[int] = []
        for number, node in enumerate(self._nodes):
            section = self._block.sections[self._block.section_of[number]]
            chain = [number] if node.op == "matmul" and section.loop is not None else []
            while chain and len(self.readers[chain[-1]]) == 1:
                (reader,) = self.readers[chain[-1]]
                op, others = self._nodes[reader].op, self._nodes[reader].args
                if op == "mul" and all(a in chain or self._nodes[a].op == "load" for a in others):
                    chain.append(reader)
                    continue
                found += chain if op in ("sum", "accum_sum") and len(chain) > 1 else []
                break
        return frozenset(found)

    @cached_property
    def handed_on(self) -> frozenset[int]:
        """Loads whose registers the one value has that is made of them, as of queries that are
        scaled.
        """
        return frozenset(
            number
            for number, (node, readers) in enumerate(zip(self._nodes, self.readers, strict=True))
            if node.op == "load"
            and len(readers) == 1
            and self.kinds[readers[0]] == ELEMENTWISE
            and readers[0] not in self.by_element
            and self._nodes[readers[0]].dims == node.dims
        )

    @cached_property
    def dot_types(self) -> Mapping[int, DType]:
        """The type of the operands of each matmul."""
        return dot_types(self._block, self._scope.tensors)

    @cached_property
    def codes(self) -> Mapping[int, tuple[int, ...]]:
        """Matmuls with an operand computed from integers of a byte alone, and the nodes that it is
        computed by: the load first, the operand last.
        """
        found = {}
        for number, node in enumerate(self._nodes):
            chains = [self._chain(a) for a in node.args if node.op == "matmul"]
            chosen = [c for c in chains if c]
            if len(chosen) == 1:
                found[number] = chosen[0]
        return found

    def _chain(self, operand: int) -> tuple[int, ...]:
        """What an operand is computed by elementwise from integers of a byte, and from scales of
        groups of them if from anything else; their load first.
        """
        todo, seen = [operand], set[int]()
        while todo:
            number = todo.pop()
            if number not in seen and self.kinds[number] == ELEMENTWISE:
                todo.extend(self._nodes[number].args)
            seen.add(number)
        chain = sorted(seen)
        loads = [n for n in chain if self._nodes[n].op == "load"]
        others = [n for n in chain if n not in loads]
        if not loads or any(self.kinds[n] not in (ELEMENTWISE, LEAF) for n in others):
            return ()
        codes = max(loads, key=lambda n: len(self._nodes[n].dims))
        inside = set(self._nodes[codes].dims)
        scales = [n for n in loads if n != codes]
        types = [self._dtype_of(n) for n in scales]
        are_scales = all(set(self._nodes[n].dims) < inside for n in scales)
        are_exact = all(t.is_half or t == U8 for t in types)
        if not are_scales or not are_exact or self._dtype_of(codes) not in (I8, U8):
            return ()
        return (codes, *(n for n in others if self._nodes[n].dims))

    def _dtype_of(self, load: int) -> DType:
        return self._scope.tensors[self._nodes[load].access.tensor].dtype

    @cached_property
    def matmul_dims(self) -> Mapping[int, tuple[str, ...]]:
        """For each matmul the dimensions of its multiplications."""
        return {
            number: self._scope.order(tuple(d for a in node.args for d in self._nodes[a].dims))
            for number, node in enumerate(self._nodes)
            if node.op == "matmul"
        }

    @cached_property
    def element_bytes(self) -> Mapping[int, int]:
        """Of the tensor that each load or store names."""
        return {n: self._scope.tensors[node.access.tensor].dtype.bytes for n, node in self._named()}

    @cached_property
    def access_dims(self) -> Mapping[int, tuple[str, ...]]:
        """The dimensions that each load or store depends on."""
        return {n: node.access.dims() for n, node in self._named()}

    @cached_property
    def run_dims(self) -> Mapping[int, tuple[str, ...]]:
        """For each load or store the dimensions along which elements lie side by side."""
        return {n: self._run_dims(node) for n, node in self._named()}

    @cached_property
    def moving(self) -> Mapping[int, tuple[tuple[IndexExpr, int], ...]]:
        """What each load or store moves along, and the stride of it, the smallest first; digits of
        a position that are axes of one run are that position.
        """
        tensors = self._scope.tensors
        found = {}
        for number, node in self._named():
            moved = strided(node.access.index, tensors[node.access.tensor])
            along = [(expr, stride) for _, expr, stride in moved]
            found[number] = tuple(sorted(along, key=lambda pair: pair[1]))
        return found

    def _named(self) -> list[tuple[int, Node]]:
        return [(n, node) for n, node in enumerate(self._nodes) if node.op in ACCESSES]

    def _run_dims(self, node: Node) -> tuple[str, ...]:
        tensor = self._scope.tensors[node.access.tensor]
        axes = zip(node.access.index, tensor.element_strides, tensor.shape, strict=True)
        for expr, stride, extent in axes:
            if stride == 1 and extent > 1:
                return () if expr.tensors() else expr.dims()
        return ()


def _reached(first: Iterable[int], beyond: Callable[[int], Iterable[int]]) -> set[int]:
    """The first nodes, and what lies beyond each that is reached."""
    found, todo = set[int](), list(first)
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += beyond(number)
    return found
