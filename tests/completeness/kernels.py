"""The kernels of a graph, and the µGraph that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from completeness.graphs import Graph, Step
from completeness.kinds import HAND

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dims import node_dims
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph


@dataclass(frozen=True)
class Kernel:
    """``graph`` has what is computed, ``stores`` where each of its outputs goes."""

    graph: Graph
    stores: tuple[Access, ...]


def kernels_of(program: Program, graph: Graph) -> tuple[Kernel, ...]:
    """A value between kernels is stored by the first and a leaf of the second."""
    handed = [n for n, s in enumerate(graph.steps) if s.op == HAND]
    homes = {n: _home(number, graph.steps[n]) for number, n in enumerate(handed)}
    found: list[Kernel] = []
    for kernel in dict.fromkeys(s.kind.kernel for s in graph.steps if s.args):
        roots = [(graph.steps[n].args[0], homes[n]) for n in handed if kernel == 0]
        for n, output in zip(graph.outputs, program.outputs, strict=True):
            if graph.steps[n].kind.kernel == kernel:
                roots.append((n, Access(output.tensor.name, output.index)))
        found.append(_kernel(graph, roots, homes))
    return tuple(sorted(found, key=lambda k: k.graph.steps[-1].kind.kernel))


def _home(number: int, step: Step) -> Access:
    return Access(f"mid{number}", tuple(ix.dim(d) for d in step.kind.dims))


def _kernel(graph: Graph, roots: Sequence[tuple[int, Access]], homes: dict[int, Access]) -> Kernel:
    kept: dict[int, None] = {}
    todo = [n for n, _ in roots]
    while todo:
        n = todo.pop()
        kept[n] = None
        todo.extend(graph.steps[n].args if n not in homes else ())
    place = {n: position for position, n in enumerate(sorted(kept))}
    steps = tuple(
        replace(graph.steps[n], op="load", args=(), attr=homes[n])
        if n in homes
        else replace(graph.steps[n], args=tuple(place[a] for a in graph.steps[n].args))
        for n in place
    )
    return Kernel(Graph(steps, tuple(place[n] for n, _ in roots)), tuple(s for _, s in roots))


def intermediates(program: Program, kernels: Sequence[Kernel]) -> tuple[Tensor, ...]:
    """The tensors that one kernel stores for the next."""
    stores = [store for kernel in kernels for store in kernel.stores]
    return tuple(
        Tensor(store.tensor, tuple(program.sizes[d] for d in store.dims()), F32)
        for store in stores
        if store.tensor not in program.tensors
    )


def ugraph_of(program: Program, graph: Graph) -> UGraph:
    """The family. Every dimension that a kernel does not reduce and all of its stores have is a
    grid axis.
    """
    kernels = kernels_of(program, graph)
    blocks = tuple(_block(program, kernel, f"kernel{n}") for n, kernel in enumerate(kernels))
    return UGraph(program, blocks, intermediates(program, kernels))


def _block(program: Program, kernel: Kernel, name: str) -> BlockGraph:
    taken = [d for s in kernel.graph.steps if isinstance(s.attr, tuple) for d in s.attr]
    taken += [s.kind.looped for s in kernel.graph.steps if s.kind.looped]
    stored = [store.dims() for store in kernel.stores]
    free = [d for d in program.dim_names if d not in taken]
    grid = tuple(GridAxis(d) for d in free if all(d in dims for dims in stored))
    nodes, sections = _Placing(program, kernel).run()
    return BlockGraph(name, grid, nodes, sections)


class _Placing:
    def __init__(self, program: Program, kernel: Kernel) -> None:
        self.program = program
        self.graph = kernel.graph
        self.stores = kernel.stores
        self.nodes: list[Node] = []
        self.lasting: dict[int, int] = {}

    def run(self) -> tuple[tuple[Node, ...], tuple[Section, ...]]:
        graph = self.graph
        sections: list[Section] = []
        last = max(graph.stages, default=0)
        for stage in range(last + 1):
            loops = [loop for loop in graph.loops if loop[0] == stage]
            sections += [self._section(graph.body(loop), loop) for loop in loops]
            sections.append(self._section(graph.straight(stage), None, stage == last))
        return tuple(self.nodes), tuple(s for s in sections if s.nodes)

    def _section(
        self, steps: Sequence[int], loop: tuple[int, str] | None, stores: bool = False
    ) -> Section:
        first = len(self.nodes)
        here: dict[int, int] = {}
        for n in steps:
            step = self.graph.steps[n]
            attr = None if step.op.startswith("accum_") else step.attr
            args = tuple(here[a] if a in here else self.lasting[a] for a in step.args)
            here[n] = self._node(step.op, args, attr)
            if step.kind.looped is None:
                self.lasting[n] = here[n]
        for store, n in zip(self.stores, self.graph.outputs, strict=True):
            inside = self.graph.steps[n].kind.looped is not None
            mine = loop == (self.graph.stages[n], self.graph.steps[n].kind.looped)
            if (inside and mine) or (not inside and stores):
                place = here[n] if n in here else self.lasting[n]
                self._node("store", (place,), store)
        return Section(tuple(range(first, len(self.nodes))), None if loop is None else loop[1])

    def _node(self, op: str, args: tuple[int, ...], attr: Attr) -> int:
        node = Node(op, args, attr)
        operands = [self.nodes[a].dims for a in args]
        self.nodes.append(replace(node, dims=node_dims(node, operands, self.program.dim_names)))
        return len(self.nodes) - 1
