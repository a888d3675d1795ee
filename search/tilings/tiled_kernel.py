"""The work of a block graph with tiles: bytes and operations, whatever its launch options.

Ranking asks for the same tiles under many numbers of warps and stages, so all that does not depend
on these is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from mirage_py.codegen.cuda.layout.code_operands import CODES_SIDE_BY_SIDE
from mirage_py.codegen.tiling.contiguity import merged_step, steps_along
from mirage_py.codegen.tiling.deferral import deferred_sums
from mirage_py.codegen.tiling.descriptors import described_tiles
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import is_uneven, mean_iterations
from mirage_py.search.tilings.block_body import BlockBody
from mirage_py.search.tilings.residency import SECTOR_BYTES
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.operators import EFFECT, ELEMENTWISE, operator

# Partial results are exchanged between blocks in float32.
_PARTIAL_BYTES = 4
# An atomic addition reads and writes in the cache, element by element.
_ATOMIC_TRAFFIC = 4.0


# Instructions that make a half of a code, two at a time.
_CODE_OPS = 1.5

# What makes whole numbers of the two codes of a byte, and scales of them.
_OF_WHOLE_CODES = {"load", "bit_and", "shift_right", "mask", "where", "sub", "mul", "cast"}

# Ways to compute float32 that are exact enough, the best first where the model sees no difference.
_EXACT = (None, Precision.TF32X3)
_ROUNDED = (Precision.TF32, *_EXACT)


@dataclass(frozen=True, slots=True)
class Dot:
    """A matmul of tiles: multiplications in one tile, the extents of its sides in the natural
    order of axes, the nodes of its operands and their type. Of an operand of codes, which single
    warps multiply, ``codes_bytes``, which side it is, and how many warps may share out the inner
    positions: several where the sums go straight to an accumulator.
    """

    multiplications: int
    sides: tuple[int, int]
    operands: tuple[int, int]
    dtype: DType
    codes_bytes: int = 0
    codes_side: int = 0
    codes_shares: int = 1
    across: tuple[bool, bool] = (False, False)

    def rows(self, is_reversed: bool) -> int:
        """Rows under an order of axes, natural or reversed."""
        return self.sides[is_reversed]


@dataclass(frozen=True, slots=True)
class SectionWork:
    """The work of one iteration of a section in one block.

    ``cache_bytes`` go to and from the cache; ``vector_ops`` run on CUDA cores, and ``reduced`` are
    the multiplications of matmuls among them. ``barriers`` are always passed, one more for each of
    ``sums`` that does not wait for the loop's end. ``loads`` has the bytes of each tile that is
    read, of which ``kept_bytes`` stay in shared memory for matmuls of later sections; ``computed``
    elements go through it to a matmul, and ``exchanged_bytes`` of partial results to other blocks
    of the cluster. In registers are ``accumulators`` (nodes) during the whole loop and ``largest``
    elements at a time, fewer where the matmul ``is_promoted``, in slices of its tile.
    """

    is_loop: bool
    iterations: float
    dots: tuple[Dot, ...]
    cache_bytes: float
    vector_ops: float
    reduced: int
    barriers: int
    sums: tuple[int, ...]
    loads: tuple[int, ...]
    kept_bytes: int
    computed: int
    exchanged_bytes: int
    accumulators: tuple[int, ...]
    largest: int
    is_promoted: bool = False


class TiledKernel:
    """One tiling of a kernel. Those of one kernel may share its ``body``."""

    def __init__(
        self, tiling: Tiling, body: BlockBody | None = None, backend: str = "triton"
    ) -> None:
        self.tiling = tiling
        self.backend = backend
        self.block = tiling.block
        self.scope = tiling.program
        self.body = body or BlockBody(tiling.program, tiling.block)
        self._deferred: dict[int, Mapping[int, int]] = {}
        section_of = self.block.section_of
        self.elements = tuple(
            tiling.elements(n.dims, s) for n, s in zip(self.block.nodes, section_of, strict=True)
        )

    @cached_property
    def dots(self) -> Mapping[int, Dot]:
        """Matmuls of tiles by position."""
        types = self.body.dot_types
        found = {}
        for number, dtype in types.items():
            if not self.tiling.is_dot(number):
                continue
            sides, operands = self._sides(number)
            across = self._is_across(operands[0], number), self._is_across(operands[1], number)
            dot = Dot(self._multiplications(number), sides, operands, dtype, across=across)
            if chain := self.codes.get(number):
                size, side = self.elements[chain[0]], dot.operands.index(chain[-1])
                shares = self._codes_inside(number, chain[0]) // CODES_SIDE_BY_SIDE
                shares = shares if number in self.body.accumulated else 1
                dot = replace(dot, codes_bytes=size, codes_side=side, codes_shares=shares)
            found[number] = dot
        return found

    @cached_property
    def codes(self) -> Mapping[int, tuple[int, ...]]:
        """Matmuls whose operand threads of a CUDA kernel make of codes in registers, and the nodes
        of this operand: those with enough codes side by side along the inner positions.
        """
        if self.backend != "cuda":
            return {}
        least = CODES_SIDE_BY_SIDE
        return {n: c for n, c in self.body.codes.items() if self._codes_inside(n, c[0]) >= least}

    @cached_property
    def code_forms(self) -> tuple[bool, ...]:
        """Whether codes may have an excess, the choice with the fewest instructions first: of four
        bits those may that are whole numbers.
        """
        chains = [c for n, c in self.codes.items() if n in self.dots]
        for chain in chains:
            ops = {self.block.nodes[n].op for n in chain}
            if "bit_and" not in ops or not ops <= _OF_WHOLE_CODES:
                return (False,)
        return (True, False) if chains else (False,)

    def _codes_inside(self, number: int, load: int) -> int:
        """Codes of a row that lie side by side along a matmul's inner positions."""
        reduced = self.block.nodes[number].reduced
        inner = tuple(d for d in self.body.run_dims[load] if d in reduced)
        return self.tiling.elements(inner, self.block.section_of[number])

    @cached_property
    def precisions(self) -> tuple[Precision | None, ...]:
        """How its matmuls may be computed; None is the usual way, exact for float32."""
        if all(dot.dtype != F32 for dot in self.dots.values()):
            return (None,)
        return _ROUNDED if self.scope.fp32_precision.rounds_matmuls else _EXACT

    @cached_property
    def sections(self) -> tuple[SectionWork, ...]:
        """The work of each section."""
        return self._works(frozenset())

    @cached_property
    def fed_sections(self) -> tuple[SectionWork, ...]:
        """The same without row reductions in the producer warps (``sums producer``)."""
        aside = self.body.aside
        return self._works(aside) if aside else self.sections

    @cached_property
    def is_uneven(self) -> bool:
        """Whether masks leave blocks unequal work."""
        return is_uneven(self.tiling)

    @cached_property
    def has_tma_tiles(self) -> bool:
        """Whether TMA can copy a tile of some tensor."""
        options = LaunchConfig(descriptors=True)
        return bool(described_tiles(self.block, self.tiling, self.scope.tensors, options))

    @cached_property
    def takes_rounded_tiles(self) -> bool:
        """Whether both operands of each matmul are tiles that TMA can load and matmuls alone read,
        with the inner positions side by side in memory: wgmma takes float32 so, which TMA rounds to
        TF32.
        """
        return self.has_even_tiles and all(
            not across and not self._is_unpacked(n, frozenset())
            for dot in self.dots.values()
            for n, across in zip(dot.operands, dot.across, strict=True)
        )

    @cached_property
    def has_even_tiles(self) -> bool:
        """Whether the operands of matmuls are tiles that TMA goes along."""
        operands = [n for dot in self.dots.values() for n in dot.operands]
        return all(self.block.nodes[n].op == "load" and self._is_even(n) for n in operands)

    @cached_property
    def reads_windows(self) -> bool:
        """Whether a matmul reads an image in windows: what it sums over moves places."""
        nodes = self.block.nodes
        for number, dot in self.dots.items():
            reduced = {*nodes[number].reduced}
            for load in (n for n in dot.operands if nodes[n].op == "load"):
                places = {
                    *self.tiling.live(nodes[load].dims, self.block.section_of[load])
                } - reduced
                moved = ({*e.dims()} for e in nodes[load].access.index)
                if any(dims & reduced and dims & places for dims in moved):
                    return True
        return False

    def _is_even(self, load: int) -> bool:
        """Whether a tile is even steps along axes, or goes from place to place of windows along one
        dimension, and not along two; at one position of the windows.
        """
        node, section = self.block.nodes[load], self.block.section_of[load]
        live, loop = self.tiling.live(node.dims, section), self.block.sections[section].loop
        moving = [e for e in node.access.index if {*e.dims()} & {*live} and not e.is_dim]
        of_windows = [e for e in moving if not self._is_merged(e, live, section)]
        if loop not in live or not of_windows:
            return not of_windows or len(live) <= 2
        tile = self.tiling.padded(loop, section)
        is_one = all(steps_along(e, loop, tile)[0] is not None for e in of_windows)
        return is_one and len(live) <= 2

    def _is_merged(self, expr: IndexExpr, live: Collection[str], section: int) -> bool:
        """Whether several dimensions of a tile lie behind one another along an axis, as groups and
        the channels of each do.
        """
        dims = [d for d in live if d in expr.dims()]
        extents = {d: self.tiling.padded(d, section) for d in dims}
        steps = {d: steps_along(expr, d, e)[0] or 0 for d, e in extents.items()}
        dims.sort(key=lambda d: steps[d])
        return len(dims) > 1 and merged_step(expr, [(d, extents[d]) for d in dims]) == 1

    def work(self, options: LaunchConfig) -> tuple[SectionWork, ...]:
        """The work of each section for the consumer warps."""
        return self.fed_sections if options.producer_sums else self.sections

    def _works(self, aside: frozenset[int]) -> tuple[SectionWork, ...]:
        operands = frozenset(a for d in self.dots for a in self.block.nodes[d].args)
        return tuple(self._section(n, operands, aside) for n in range(len(self.block.sections)))

    def deferred(self, num_warps: int) -> Mapping[int, int]:
        """Sums that wait for the end of their loop: {sum: accumulator}."""
        if not self.body.has_loop_sums:
            return {}
        if num_warps not in self._deferred:
            options = LaunchConfig(num_warps)
            self._deferred[num_warps] = deferred_sums(self.block, self.tiling, options)
        return self._deferred[num_warps]

    # -- counting --------------------------------------------------------------------------------

    def _section(self, number: int, operands: frozenset[int], aside: frozenset[int]) -> SectionWork:
        section = self.block.sections[number]
        is_loop = section.loop is not None
        cache = vector = 0.0
        barriers = kept = computed = reduced = exchanged = 0
        sums, loads, accumulators, sizes = [], [], [], [0, 0]
        made = [self.codes[d] for d in section.nodes if d in self.codes and d in self.dots]
        vector += sum(_CODE_OPS * self.elements[chain[-1]] for chain in made)
        aside = aside.union(*(chain[1:] for chain in made))
        for position in section.nodes:
            if position in aside or self._is_of_one(position):
                continue
            node, elements = self.block.nodes[position], self.elements[position]
            kind = self.body.kinds[position]
            is_operand = position in operands
            if node.op == "load":
                size = elements * self.body.element_bytes[position]
                cache += self._traffic_bytes(position, number)
                # Within a sector most iterations wait for nothing.
                loads += [] if self._is_in_sector(position, number) else [size]
                kept += size if is_operand and not is_loop else 0
                vector += 2 * elements if self._is_unpacked(position, aside) else 0
            elif kind == EFFECT:
                atomic = _ATOMIC_TRAFFIC if node.op == "store_add" else 1.0
                cache += atomic * self._traffic_bytes(position, number)
            elif position in self.dots:
                barriers += 1
            elif node.op == "matmul":
                vector += self._multiplications(position)
                reduced += self._multiplications(position)
                sums.append(position)
            elif node.op in ("sum", "max"):
                elements = self.tiling.elements(self.block.nodes[node.args[0]].dims, number)
                vector += elements
                sums.append(position)
                exchanged += self._exchanged_bytes(position)
            elif kind == ELEMENTWISE or node.op.startswith("accum"):
                added = node.op == "accum_sum" and self._is_fused(node.args[0])
                added = added or position in self.body.promoted
                vector += 0 if added else self._operations(node) * elements
            if is_operand and node.op != "load":
                # Rounded, and moved to the layout of an operand.
                vector += 2 * elements
                barriers += 1
                computed += elements
            if node.op.startswith("accum"):
                accumulators.append(position)
            elif kind != EFFECT and node.op not in ("const", "size"):
                sizes.append(self._live_elements(position, is_operand))
        sizes.sort()
        return SectionWork(
            is_loop=is_loop,
            iterations=self._iterations(number),
            dots=tuple(self.dots[n] for n in section.nodes if n in self.dots),
            cache_bytes=cache,
            vector_ops=vector,
            reduced=reduced,
            barriers=barriers,
            sums=tuple(sums),
            loads=tuple(loads),
            kept_bytes=kept,
            computed=computed,
            exchanged_bytes=exchanged,
            accumulators=tuple(accumulators),
            largest=sizes[-1] + sizes[-2],
            is_promoted=any(n in self.body.promoted for n in section.nodes if n in self.dots),
        )

    def _is_of_one(self, position: int) -> bool:
        """Whether it reduces a tile that has one element along all of that: there is no work."""
        node = self.block.nodes[position]
        if node.op not in ("sum", "max") or self.tiling.reduced_over_cluster(position):
            return False
        return self.elements[position] == self.elements[node.args[0]]

    def _exchanged_bytes(self, position: int) -> int:
        """Bytes that a block exchanges with the others of its cluster, once a reduction is done
        within it.
        """
        shared = self.tiling.reduced_over_cluster(position)
        if not shared:
            return 0
        node, section = self.block.nodes[position], self.block.section_of[position]
        return _PARTIAL_BYTES * self.tiling.elements(node.dims, section)

    def _live_elements(self, position: int, is_operand: bool) -> int:
        """Elements that a value takes in registers, besides those that it is computed from."""
        node = self.block.nodes[position]
        if node.op == "load" and is_operand:
            # It goes straight from memory to a matmul.
            return 0
        if node.op == "matmul" and position not in self.dots:
            return self._multiplications(position)
        if self._is_fused(position) or position in self.body.by_element:
            return 0
        if position in self.body.promoted and position not in self.dots:
            return 0
        if position in self.body.handed_on:
            return 0
        if self._is_in_place(position):
            return 0
        if any(position == chain[0] for chain in self.codes.values()):
            return self.elements[position] // F32.bytes
        return self.elements[position]

    def _is_in_place(self, position: int) -> bool:
        """Whether a value behind the loop of a matmul needs no registers beside those of its sums:
        ptxas finds that of the text of CUDA kernels.
        """
        section = self.block.sections[self.block.section_of[position]]
        is_behind = self.block.has_loops and section.loop is None
        return (
            self.backend == "cuda"
            and is_behind
            and bool(self.dots)
            and (position in self.body.in_place or position in self.body.reduced_at_once)
        )

    def _operations(self, node: Node) -> float:
        """What an operator takes for each element; a number divides as its inverse multiplies."""
        by_number = node.op == "div" and self.block.nodes[node.args[1]].op == "const"
        return 1.0 if by_number else operator(node.op).flops

    def _is_fused(self, position: int) -> bool:
        """Whether tensor cores add a matmul to its accumulator, its only user."""
        return position in self.dots and position in self.body.accumulated

    def _iterations(self, number: int) -> float:
        """Average over the blocks, some of which may skip tiles that are fully masked."""
        loop = self.block.sections[number].loop
        if loop is None:
            return 1.0
        masked = tuple(self.tiling.padded(d, 0) for d in self.body.mask_dims)
        key = number, self.tiling.padded(loop, number), masked
        if key not in self.body.iterations:
            self.body.iterations[key] = mean_iterations(self.tiling, number)
        return self.body.iterations[key]

    def _multiplications(self, number: int) -> int:
        """Multiplications of the matmul at ``number`` in one tile."""
        return self.tiling.elements(self.body.matmul_dims[number], self.block.section_of[number])

    def _sides(self, number: int) -> tuple[tuple[int, int], tuple[int, int]]:
        section = self.block.section_of[number]
        roles = self.tiling.roles(number)
        rows, columns = roles.left, roles.right
        left, right = self.block.nodes[number].args
        order = self.body.order
        if order.index(columns[0]) < order.index(rows[0]):
            rows, columns, left, right = columns, rows, right, left
        extents = self.tiling.elements(rows, section), self.tiling.elements(columns, section)
        return extents, (left, right)

    def _is_across(self, operand: int, number: int) -> bool:
        if self.block.nodes[operand].op != "load":
            return False
        return not {*self.body.run_dims[operand]} & {*self.block.nodes[number].reduced}

    def _is_unpacked(self, load: int, aside: frozenset[int]) -> bool:
        """Whether a user other than a matmul reads what is loaded: then it goes into registers."""
        readers = self.body.readers[load]
        return any(n not in aside and self.block.nodes[n].op != "matmul" for n in readers)

    def _is_in_sector(self, load: int, section: int) -> bool:
        """Whether several iterations read from one sector of each row, such as scales of groups:
        most of them find it in the nearest cache.
        """
        loop = self.block.sections[section].loop
        if loop is None or self.body.run_dims[load] != (loop,):
            return False
        run = self.tiling.elements((loop,), section) * self.body.element_bytes[load]
        return 2 * run <= SECTOR_BYTES

    def _traffic_bytes(self, access: int, section: int) -> float:
        """What a load or store of a tile moves between the SM and the cache, in whole sectors."""
        body = self.body
        size = body.element_bytes[access]
        moved = self.tiling.elements(body.access_dims[access], section) * size
        if self._is_in_sector(access, section):
            return moved
        run = self.tiling.elements(body.run_dims[access], section) * size
        return moved * max(1.0, min(SECTOR_BYTES, moved) / run)
