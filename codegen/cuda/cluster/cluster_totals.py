"""Cluster-wide totals that every block needs: each block sends its partial result to all others and
combines what it receives.

So several blocks share a row: its maximum and sum are over all of them, and each stores its own
part of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirage_py.codegen.cuda.analysis.cluster_plan import ClusterPlan, ClusterTiling
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import Section


def with_totals(
    program: Program,
    typed: TypedBlock,
    tensors: Mapping[str, Tensor],
    tiling: Tiling,
    reductions: Sequence[int],
) -> ClusterPlan:
    """The plan of a block graph whose ``reductions``, in straight sections, go over a cluster.

    Raises ScheduleError where one goes over a part of the cluster's axes only, or where the number
    of blocks is no power of two.
    """
    axes = dict(tiling.cluster_axes)
    for n in reductions:
        node = typed.block.nodes[n]
        if any(d not in node.reduced for d in axes):
            raise ScheduleError(f"%{n} {node.op} over a part of a cluster", where=typed.block.name)
    if any(count & (count - 1) for count in axes.values()):
        raise ScheduleError(
            f"a cluster of {tiling.cluster_blocks} blocks that share totals",
            where=typed.block.name,
            repair="take a power of two",
        )
    return _Totals(program, typed, tensors, axes, reductions).run()


class _Totals:
    def __init__(
        self,
        program: Program,
        typed: TypedBlock,
        tensors: Mapping[str, Tensor],
        axes: Mapping[str, int],
        reductions: Sequence[int],
    ) -> None:
        self.program = program
        self.typed = typed
        self.block = typed.block
        self.given = tensors
        self.axes = axes
        self.reductions = reductions
        self.tiling = Tiling(program, typed.block)
        self.nodes: list[Node] = []
        self.dtypes: list[DType] = []
        self.sections: list[Section] = []
        self.exchanges: list[int] = []
        self.place: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self.sources: dict[int, int] = {}
        self.made: dict[str, Tensor] = {}

    def run(self) -> ClusterPlan:
        for section in self.block.sections:
            if any(n in self.reductions for n in section.nodes):
                self._in_steps(section)
            else:
                for n in section.nodes:
                    self._copy(n)
                self._close(section)
        block = replace(self.block, nodes=tuple(self.nodes), sections=tuple(self.sections))
        extents = {d: (count, 0) for d, count in self.axes.items()}
        tiling = ClusterTiling(self.program, block, (), tuple(self.exchanges), extents)
        blocks = self.tiling.cluster_blocks
        typed = TypedBlock(block, tuple(self.dtypes))
        return ClusterPlan(typed, tiling, self.made, self.sources, frozenset(), None, "", blocks)

    def _in_steps(self, section: Section) -> None:
        """A section with a cluster barrier for all reductions that do not wait for one another."""
        level: dict[int, int] = {}
        for n in section.nodes:
            before = max((level.get(a, 0) for a in self.block.nodes[n].args), default=0)
            level[n] = before + (n in self.reductions)
        for step in range(max(level.values()) + 1):
            now = [n for n in section.nodes if level[n] == step]
            totals = [n for n in now if n in self.reductions]
            if totals:
                for n in totals:
                    self.sent[n] = self._part(n)
                self._close(section)
                self.exchanges.append(len(self.sections))
                for n in totals:
                    self._total(n)
                self._close(section)
            for n in now:
                if n not in totals:
                    self._copy(n)
        self._close(section)

    def _close(self, section: Section) -> None:
        begin = sum(len(s.nodes) for s in self.sections)
        nodes = tuple(range(begin, len(self.nodes)))
        self.sections.append(replace(section, nodes=nodes))

    def _add(self, node: Node, dtype: DType) -> int:
        self.nodes.append(node)
        self.dtypes.append(dtype)
        return len(self.nodes) - 1

    def _copy(self, number: int) -> None:
        node = self.block.nodes[number]
        args = tuple(self.place[a] for a in node.args)
        self.place[number] = self._add(replace(node, args=args), self.typed.dtypes[number])

    def _part(self, number: int) -> int:
        """What a block has of a total."""
        node = self.block.nodes[number]
        args = tuple(self.place[a] for a in node.args)
        if all(self.tiling.padded(d, 0) == 1 for d in self.axes):
            return args[0]
        return self._add(replace(node, args=args), F32)

    def _total(self, number: int) -> None:
        """The parts of all blocks, as they arrive, and what they make together."""
        node = self.block.nodes[number]
        name = f"received{len(self.made)}"
        while name in self.given:
            name += "_"
        dims = self.program.order(frozenset((*node.dims, *self.axes)))
        shape = tuple(self.program.sizes[d] for d in dims)
        self.made[name] = Tensor(name, shape, F32)
        access = Access(name, tuple(ix.dim(d) for d in dims))
        load = self._add(Node("load", (), access, dims), F32)
        self.sources[load] = self.sent[number]
        total = Node(node.op, (load,), tuple(self.axes), node.dims)
        self.place[number] = self._add(total, self.typed.dtypes[number])
