"""Rules of block graphs: grid, sections, levels of values, accumulators, stores."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mirage_py.errors import ValidationError
from mirage_py.ugraph.checks.node_rules import check_node
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.threads import check_threads
from mirage_py.ugraph.ir.ugraph import MAX_CLUSTER_BLOCKS, BlockGraph, Section
from mirage_py.ugraph.operators import CONTRACT, EFFECT, REDUCE, STATE, operator


def check_block(
    block: BlockGraph,
    sizes: Mapping[str, int],
    readable: Mapping[str, Tensor],
    writable: Mapping[str, Tensor],
) -> None:
    """ValidationError unless the block graph keeps every rule.

    Loads read ``readable`` tensors, stores write ``writable`` ones.
    """
    where = f"kernel {block.name}"
    _check_axes(block, sizes, where)
    _check_cluster(block, sizes, where)
    _check_partition(block, where)
    for position, node in enumerate(block.nodes):
        tensors = writable if node.op in STORES else readable
        check_node(block.nodes, position, sizes, tensors, where)
    if not any(node.op in STORES for node in block.nodes):
        raise ValidationError("it stores nothing", where=where, repair="store its results")
    ran: dict[int, None] = {}
    for section in block.sections:
        for position in section.nodes:
            _NodeInSection(block, section, position).check(ran)
            ran[position] = None
    check_threads(block)


def _check_axes(block: BlockGraph, sizes: Mapping[str, int], where: str) -> None:
    axes = [("grid axis", a.dim, a.tile) for a in block.grid]
    gridded = [a.dim for a in block.grid]
    axes += [("loop", s.loop, s.tile) for s in block.sections if s.loop is not None]
    for what, d, tile in axes:
        if d not in sizes:
            raise ValidationError(f"a {what} over '{d}', which is no dimension", where=where)
        if tile is not None and tile < 1:
            raise ValidationError(
                f"the {what} over '{d}' has tile {tile}", where=where, repair="use at least 1"
            )
        if gridded.count(d) > (what == "grid axis"):
            raise ValidationError(
                f"dimension '{d}' is a grid axis and a loop, or twice a grid axis",
                where=where,
                why="a tile would be cut twice",
                repair="split the dimension in two by an index expression in the program",
            )


def _check_cluster(block: BlockGraph, sizes: Mapping[str, int], where: str) -> None:
    tiles = {d: block.grid_tiles[d] for d in block.cluster_dims}
    counts = [-(-sizes[d] // tile) for d, tile in tiles.items() if tile is not None]
    if prod(counts) > MAX_CLUSTER_BLOCKS:
        raise ValidationError(
            f"a cluster of {prod(counts)} blocks, along {', '.join(tiles)}",
            where=where,
            why=f"the blocks of a cluster run side by side, and at most {MAX_CLUSTER_BLOCKS} do",
            repair="use larger tiles along its axes, or a second kernel to combine",
        )


def _check_partition(block: BlockGraph, where: str) -> None:
    placed = [n for s in block.sections for n in s.nodes]
    if sorted(placed) != list(range(len(block.nodes))):
        raise ValidationError(
            "the sections do not hold every node once",
            where=where,
            repair=f"place each of %0 to %{len(block.nodes) - 1} in one section",
        )
    if any(not s.nodes for s in block.sections):
        raise ValidationError("a section is empty", where=where, repair="leave it out")
    for number, section in enumerate(block.sections):
        if section.loop is None and section.tile is not None:
            raise ValidationError(f"section {number} has a tile and no loop", where=where)


class _NodeInSection:
    """The rules that depend on the section around a node."""

    def __init__(self, block: BlockGraph, section: Section, position: int) -> None:
        self.block = block
        self.section = section
        self.position = position
        self.node = block.nodes[position]
        self.kind = operator(self.node.op).kind

    def check(self, ran: Mapping[int, None]) -> None:
        for a in self.node.args:
            if a not in ran:
                self._fail(
                    f"operand %{a} runs later",
                    repair="order the sections so that operands come first",
                )
            self._check_operand(a)
        if self.kind in (REDUCE, CONTRACT):
            self._check_reduction()
        if self.kind == STATE:
            self._check_accumulator()
        if self.kind == EFFECT:
            self._check_store()

    def _check_operand(self, a: int) -> None:
        maker = self.block.sections[self.block.section_of[a]]
        operand = self.block.nodes[a]
        is_state = operator(operand.op).kind == STATE
        if maker is not self.section:
            if maker.loop is not None and not is_state:
                self._fail(
                    f"operand %{a} dies with an iteration of the loop over '{maker.loop}'",
                    repair="carry it out of the loop with an accumulator, or compute it again",
                )
            if self.section.loop is not None and self.section.loop in operand.dims:
                self._fail(
                    f"operand %{a} holds all of '{self.section.loop}', "
                    f"inside a loop that takes tiles of it",
                    repair="load or compute it inside the loop",
                )
        elif is_state and operand.op != "accum_max":
            self._fail(
                f"{operand.op} %{a} is read inside its own loop",
                why="it is complete only after the last iteration",
                repair="read it in a later section",
            )
        elif is_state and operand.attr != "shift" and self.node.op != "accum_rescaled":
            self._fail(
                f"accum_max %{a} is read inside its own loop",
                why="it is the maximum only after the last iteration",
                repair="read it in a later section; mark it 'shift' if it only shifts exponents",
            )

    def _check_reduction(self) -> None:
        reduced = self.node.reduced
        gridded = [a.dim for a in self.block.split_axes if a.dim in reduced]
        if gridded:
            self._fail(
                f"it reduces {', '.join(gridded)}, which the grid splits",
                why="a block sees only its own tile",
                repair="loop over the dimension instead, or split it in two: one part on the "
                "grid, one reduced here, and a second kernel to combine",
            )
        clustered = ", ".join(d for d in self.block.cluster_dims if d in reduced)
        if clustered and self.kind == CONTRACT:
            self._fail(
                f"it contracts {clustered}, which a cluster shares",
                why="no product on tensor cores reads the operands of other blocks",
                repair="split the dimension in two: contract what a block has of it, "
                "then take the sum over the cluster",
            )
        if clustered and self.section.loop is not None:
            self._fail(
                f"it reduces {clustered}, which a cluster shares, inside a loop",
                why="all blocks of the cluster would wait for one another in every iteration",
                repair="accumulate what each block has, and reduce it after the loop",
            )

    def _check_accumulator(self) -> None:
        loop = self.section.loop
        value, *shifts = self.node.args
        if loop is None:
            self._fail(
                "an accumulator outside of a loop", repair="use its operand, or put it in a loop"
            )
        if loop in self.block.nodes[value].dims:
            self._fail(
                f"operand %{value} still depends on the loop's dimension '{loop}'",
                repair=f"reduce the tile over '{loop}' first",
            )
        if not self._reduces_tile(value, str(loop)):
            self._fail(
                f"operand %{value} is the same in every iteration",
                why=f"nothing between it and the loads reduces '{loop}', so the result would "
                "count the iterations",
                repair="use the operand itself",
            )
        for shift in shifts:
            running = self.block.nodes[shift]
            same_loop = shift in self.section.nodes and running.op == "accum_max"
            if not same_loop or any(d not in self.node.dims for d in running.dims):
                self._fail(
                    f"%{shift} is no running maximum over dimensions of its value",
                    repair="give it an accum_max of the same loop, with no other dimensions",
                )

    def _reduces_tile(self, value: int, loop: str) -> bool:
        """Whether a reduction of the loop's dimension lies between the value and the loads."""
        todo, seen = [value], {value: None}
        while todo:
            node: Node = self.block.nodes[todo.pop()]
            if operator(node.op).kind in (REDUCE, CONTRACT) and loop in node.reduced:
                return True
            for a in node.args:
                if a in self.section.nodes and a not in seen:
                    seen[a] = None
                    todo.append(a)
        return False

    def _check_store(self) -> None:
        value = self.block.nodes[self.node.args[0]].dims
        summed = self.block.summed_axes(self.node) if self.node.op == "store_add" else ()
        lost = [d for d in value if d not in self.node.dims and d not in summed]
        if lost:
            self._fail(
                f"the indices do not say where {', '.join(lost)} goes",
                repair="add the dimension to the indices"
                if self.node.op == "store"
                else "add the dimension to the indices, reduce over it first, or put it on the "
                "grid: what blocks have is added up along grid axes only, and not along a cluster",
            )
        loop = self.section.loop
        if loop is not None and loop not in self.node.dims:
            self._fail(
                f"it is inside the loop over '{loop}' and writes the same place each time",
                repair="store after the loop",
            )

    def _fail(self, what: str, *, why: str = "", repair: str = "") -> None:
        where = f"kernel {self.block.name}, %{self.position} = {self.node.op}"
        raise ValidationError(what, where=where, why=why, repair=repair)
