"""Slices of the results for the blocks of a cluster: a block graph cut before its cluster
reductions.

Each block computes everything before the cut. After it, each block owns a slice of the results: the
partial results of all blocks for that slice arrive in its shared memory, and the remaining nodes
run there with the cluster's dimensions unsplit, as a kernel of their own would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from mirage_py.codegen.cuda.analysis.cluster_plan import ClusterPlan, ClusterTiling
from mirage_py.codegen.lowering.base_two_shifts import BaseTwoShifts, is_shift
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.contiguity import ALIGNMENT_BYTES, run_length
from mirage_py.codegen.tiling.tiles import MIN_DOT_EXTENT, Tiling, next_power_of_two
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import REDUCING, STORES, Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section
from mirage_py.ugraph.operators import ELEMENTWISE, operator

_LEAVES = ("load", "const", "size", "mask", "index")
_UNREAD = ("const", "size", "mask", "index")
# How much worse a slice is whose rows are stored in less than 16 bytes each.
_CRUMBS = 1.5


class Slices:
    """The rewriting of one block graph."""

    def __init__(
        self,
        program: Program,
        typed: TypedBlock,
        tensors: Mapping[str, Tensor],
        tiling: Tiling,
        reductions: Sequence[int],
    ) -> None:
        self.program = program
        self.typed = typed
        self.block = typed.block
        self.nodes = typed.block.nodes
        self.given = tensors
        self.tiling = tiling
        self.parts = dict(tiling.cluster_axes)
        self.last = self._after_cut(reductions)
        self.made: dict[str, Tensor] = {}

    def run(self) -> ClusterPlan:
        sent = [a for a in self._operands() if any(d in self.parts for d in self.nodes[a].dims)]
        for a in sent:
            if not self.typed.dtypes[a].is_float:
                raise self._refusal(a, "only floats go from block to block")
        slices = self._slices(sent)
        first = self._first()
        sections, nodes, dtypes, sources = self._rewritten(sent, first)
        block = replace(self.block, nodes=nodes, sections=sections)
        tiling = self._sliced(block, slices)
        return ClusterPlan(
            TypedBlock(block, dtypes),
            tiling,
            self.made,
            sources,
            in_base_two(TypedBlock(block, dtypes), sources),
            tuple(slices.items()),
            first,
            prod(self.parts.values()),
        )

    def _refusal(self, number: int, why: str) -> ScheduleError:
        return ScheduleError(
            f"%{number} {self.nodes[number].op} over a cluster", where=self.block.name, why=why
        )

    # -- what lies after the cut ----------------------------------------------------------------

    def is_possible(self) -> bool:
        """Whether what lies after the cut has nothing to do with a block's own positions along the
        cluster's dimensions, and with loops.
        """
        after = sorted(self.last)
        if any(self.block.sections[self.block.section_of[n]].loop is not None for n in after):
            return False
        stores = (self.nodes[n] for n in after if self.nodes[n].op in STORES)
        return not any(d in self.parts for node in stores for d in node.dims) and all(
            self.tiling.padded(d, 0) == 1 for d in self.parts
        )

    def _after_cut(self, reductions: Sequence[int]) -> frozenset[int]:
        """Reductions over the cluster, all that depends on them, and what only these read."""
        last = set(reductions)
        for n, node in enumerate(self.nodes):
            if any(a in last for a in node.args):
                last.add(n)
        users: list[list[int]] = [[] for _ in self.nodes]
        for n, node in enumerate(self.nodes):
            for a in node.args:
                users[a].append(n)
        for n in reversed(range(len(self.nodes))):
            straight = self.block.sections[self.block.section_of[n]].loop is None
            is_free = straight and bool(users[n]) and self._is_free(n)
            if is_free and all(u in last for u in users[n]):
                last.add(n)
        return frozenset(last)

    def _is_free(self, number: int) -> bool:
        """Whether it follows from loads and numbers by what is elementwise."""
        node = self.nodes[number]
        if node.op in _LEAVES:
            return True
        elementwise = operator(node.op).kind == ELEMENTWISE
        return elementwise and all(self._is_free(a) for a in node.args)

    def _operands(self) -> list[int]:
        """What nodes after the cut read from before it, and have to be given."""
        read = (a for n in sorted(self.last) for a in self.nodes[n].args if a not in self.last)
        return [a for a in dict.fromkeys(read) if not self._is_copied(a) and not self._is_unread(a)]

    def _is_unread(self, number: int) -> bool:
        return self.nodes[number].op in _UNREAD

    def _is_copied(self, number: int) -> bool:
        """Loads are loaded again, with the extents of the slice."""
        node = self.nodes[number]
        return node.op == "load" or (node.op == "cast" and self._is_copied(node.args[0]))

    # -- slices ----------------------------------------------------------------------------------

    def _slices(self, sent: Sequence[int]) -> dict[str, int]:
        """Into how many slices each dimension is cut, so that blocks get the least."""
        found: dict[str, int] = {}
        best = float("inf")
        for slices in self._possible(sent):
            cost = self._received(sent, slices)
            if cost < best and self._keeps_products(slices):
                found, best = slices, cost
        return {d: count for d, count in found.items() if count > 1}

    def _possible(self, sent: Sequence[int]) -> Iterator[dict[str, int]]:
        blocks = prod(self.parts.values())
        stores = [self.nodes[n] for n in sorted(self.last) if self.nodes[n].op in STORES]
        fixed = {d for a in self._operands() if a not in sent for d in self.nodes[a].dims}
        fixed |= {
            d for n in self.last if self.nodes[n].op in REDUCING for d in self.nodes[n].reduced
        }
        dims = [
            d for d in self.program.dim_names
            if d not in fixed and d not in self.parts and self._extent(d) > 1
            and any(d in self.nodes[a].dims for a in sent) and all(d in s.dims for s in stores)
        ]  # fmt: skip
        counts = [[1 << n for n in range(self._extent(d).bit_length())] for d in dims]
        for chosen in product(*counts):
            if prod(chosen) <= blocks:
                yield dict(zip(dims, chosen, strict=True))

    def _extent(self, dim: str) -> int:
        """Points of a tile after the last loop, along one not of the cluster."""
        return max(self.tiling.padded(dim, self.block.section_of[n]) for n in self.last)

    def _received(self, sent: Sequence[int], slices: Mapping[str, int]) -> float:
        """Elements that a block is sent, those of padding not counted."""
        total = 0.0
        for a in sent:
            dims = (d for d in self.nodes[a].dims if d not in self.parts)
            total += prod(
                min(self._extent(d) // slices.get(d, 1), self.program.sizes[d]) for d in dims
            )
        first = self._first()
        cut = slices.get(first, 1)
        is_crumbs = cut > 1 and self._extent(first) // cut * 2 < ALIGNMENT_BYTES
        return total * (_CRUMBS if is_crumbs else 1.0)

    def _keeps_products(self, slices: Mapping[str, int]) -> bool:
        """Whether tensor cores multiply what they multiply without slices."""
        number = len(self.block.sections)
        sections = (*self.block.sections, Section(()))
        sliced = self._sliced(replace(self.block, sections=sections), slices)
        products = (n for n in sorted(self.last) if self.nodes[n].op == "matmul")
        return all(self._is_dot(sliced, n, number) == self.tiling.is_dot(n) for n in products)

    def _is_dot(self, sliced: ClusterTiling, number: int, section: int) -> bool:
        node = self.nodes[number]
        left, right = (self.nodes[a].dims for a in node.args)
        sides = (
            [d for d in left if d not in right],
            [d for d in right if d not in left],
            node.reduced,
        )
        shared = (d for d in left if d in right and d not in node.reduced)
        if any(sliced.padded(d, section) > 1 for d in shared):
            return False
        return all(sliced.elements(tuple(s), section) >= MIN_DOT_EXTENT for s in sides)

    def _sliced(self, block: BlockGraph, slices: Mapping[str, int]) -> ClusterTiling:
        after = {d: (self._extent(d) // n, self._extent(d)) for d, n in slices.items()}
        for dim in self.parts:
            whole = next_power_of_two(self.program.sizes[dim])
            after[dim] = whole, whole
        return ClusterTiling(self.program, block, (), (len(block.sections) - 1,), after)

    def _first(self) -> str:
        """The dimension along which the results are stored in the longest vectors."""
        runs: dict[str, int] = {}
        for n in sorted(self.last):
            node = self.nodes[n]
            if node.op not in STORES:
                continue
            tensor = self.given[node.access.tensor]
            for d in node.dims:
                run = run_length(node.access, tensor, d, ALIGNMENT_BYTES)
                runs[d] = max(runs.get(d, 0), run)
        return max(runs, key=lambda d: (runs[d], self.program.dim_names.index(d)), default="")

    # -- the block graph with the cut ------------------------------------------------------------

    def _rewritten(
        self, sent: Sequence[int], first: str
    ) -> tuple[tuple[Section, ...], tuple[Node, ...], tuple[DType, ...], dict[int, int]]:
        nodes: list[Node] = []
        dtypes: list[DType] = []
        place: dict[int, int] = {}

        def add(node: Node, dtype: DType) -> int:
            nodes.append(node)
            dtypes.append(dtype)
            return len(nodes) - 1

        def copy(number: int) -> int:
            node = self.nodes[number]
            args = tuple(place[a] for a in node.args)
            return add(replace(node, args=args), self.typed.dtypes[number])

        sections = []
        for section in self.block.sections:
            begin = len(nodes)
            for n in section.nodes:
                if n not in self.last:
                    place[n] = copy(n)
            sections.append(replace(section, nodes=tuple(range(begin, len(nodes)))))
        begin = len(nodes)
        sources = {}
        for number, a in enumerate(sent):
            node = self.nodes[a]
            tensor, access = self._tensor(number, node, first)
            load = add(Node("load", (), access, node.dims), F32)
            sources[load] = place[a]
            self.made[tensor.name] = tensor
            place[a] = load
            if self.typed.dtypes[a] != F32:
                cast = Node("cast", (load,), self.typed.dtypes[a], node.dims)
                place[a] = add(cast, self.typed.dtypes[a])
        for a in self._copied():
            place[a] = copy(a)
        for n in sorted(self.last):
            place[n] = copy(n)
        sections.append(Section(tuple(range(begin, len(nodes)))))
        return tuple(sections), tuple(nodes), tuple(dtypes), sources

    def _copied(self) -> list[int]:
        """Loads before the cut that nodes after it read, with their casts."""
        found: set[int] = set()
        pending = [a for n in self.last for a in self.nodes[n].args if a not in self.last]
        while pending:
            a = pending.pop()
            if a not in found and self._is_copied(a):
                found.add(a)
                pending += self.nodes[a].args
        return sorted(found)

    def _tensor(self, number: int, node: Node, first: str) -> tuple[Tensor, Access]:
        name = f"received{number}"
        while name in self.given:
            name += "_"
        dims = [d for d in node.dims if d in self.parts]
        dims += [d for d in node.dims if d not in self.parts and d != first]
        dims += [first] if first in node.dims else []
        shape = tuple(self.program.sizes[d] for d in dims)
        return Tensor(name, shape, F32), Access(name, tuple(ix.dim(d) for d in dims))


def in_base_two(typed: TypedBlock, sources: Mapping[int, int]) -> frozenset[str]:
    """Which of the tensors of what arrives hold shifts in base 2: the senders have them so, and
    the readers take them so.
    """
    block = typed.block
    loads = {block.nodes[n].access.tensor: (n, s) for n, s in sources.items()}
    chosen: Collection[str] = {t for t, (_, s) in loads.items() if is_shift(block.nodes[s])}
    while chosen:
        found = BaseTwoShifts(block, typed.dtypes, chosen)
        kept = {t for t in chosen if found.agrees(t) and loads[t][1] in found.shifts}
        if kept == chosen:
            break
        chosen = kept
    return frozenset(chosen)
