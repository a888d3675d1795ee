"""A block graph of one kernel as a list of operators, and as a µGraph that can be tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from completeness.kinds import Kind

from mirage_py.ugraph.dims import node_dims
from mirage_py.ugraph.node import Access, Attr, Node
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import BlockGraph, GridAxis, Section, UGraph


@dataclass(frozen=True, slots=True)
class Step:
    """A leaf, or an operator on earlier steps. An accumulator's attribute is its loop."""

    op: str
    args: tuple[int, ...]
    attr: Attr
    kind: Kind

    @property
    def runs_in(self) -> str | None:
        """The dimension of the loop that computes it."""
        if self.op.startswith("accum_"):
            assert isinstance(self.attr, tuple)
            return str(self.attr[0])
        return self.kind.looped


@dataclass(frozen=True)
class Graph:
    """``outputs`` has the step of each output, in the program's order."""

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """In a loop: the first loop, counted from 1, that can run it; else the loops before it."""
        found: list[int] = []
        for step in self.steps:
            looped = step.kind.looped is not None
            later = [found[a] + (looped and not self.steps[a].kind.looped) for a in step.args]
            found.append(max(later, default=int(looped)))
        return tuple(found)

    @cached_property
    def loops(self) -> tuple[tuple[int, str], ...]:
        """Stage and dimension of each loop, in the order they run."""
        return tuple(sorted(dict.fromkeys(self._loop_of(n) for n in self._leaving())))

    @cached_property
    def operators(self) -> int:
        """How many steps are no leaves."""
        return sum(bool(step.args) for step in self.steps)

    def body(self, loop: tuple[int, str]) -> tuple[int, ...]:
        """The steps that a loop runs: all that what leaves it is computed from."""
        members = {n for n in self._leaving() if self._loop_of(n) == loop}
        for n in range(len(self.steps) - 1, -1, -1):
            if n in members:
                args = self.steps[n].args
                members.update(a for a in args if self.steps[a].kind.looped is not None)
        return tuple(sorted(members))

    def straight(self, stage: int) -> tuple[int, ...]:
        """The steps after the loops of a stage and before those of the next."""
        return tuple(
            n
            for n, step in enumerate(self.steps)
            if step.runs_in is None and self.stages[n] == stage
        )

    def executions(self) -> Iterator[tuple[str | None, int]]:
        """Each step as often as it is computed, with the dimension of the loop around it."""
        for n, step in enumerate(self.steps):
            if step.runs_in is None:
                yield None, n
        for loop in self.loops:
            yield from ((loop[1], n) for n in self.body(loop))

    def __str__(self) -> str:
        return ", ".join(self.formula(o) for o in self.outputs)

    def formula(self, number: int) -> str:
        """A step written out."""
        step = self.steps[number]
        if not step.args:
            return str(step.attr)
        over = "" if step.attr is None else f"[{', '.join(map(str, step.attr))}]"
        return f"{step.op}{over}({', '.join(self.formula(a) for a in step.args)})"

    def _leaving(self) -> Sequence[int]:
        """What leaves a loop: accumulators, and outputs that are stored tile by tile."""
        carried = [n for n, s in enumerate(self.steps) if s.op.startswith("accum_")]
        return [*carried, *(o for o in self.outputs if self.steps[o].kind.looped is not None)]

    def _loop_of(self, number: int) -> tuple[int, str]:
        return self.stages[number], str(self.steps[number].runs_in)


def ugraph_of(program: Program, graph: Graph) -> UGraph:
    """The family of one kernel. Every dimension that nothing reduces and all outputs have is a
    grid axis.
    """
    reduced = {d for n in program.nodes if n.op in ("sum", "max", "matmul") for d in n.reduced}
    stored = [[d for e in o.index for d in e.dims()] for o in program.outputs]
    free = [d for d in program.dim_names if d not in reduced]
    grid = tuple(GridAxis(d) for d in free if all(d in dims for dims in stored))
    nodes, sections = _Placing(program, graph).run()
    return UGraph(program, (BlockGraph("block", grid, nodes, sections),))


class _Placing:
    def __init__(self, program: Program, graph: Graph) -> None:
        self.program = program
        self.graph = graph
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
        for output, n in zip(self.program.outputs, self.graph.outputs, strict=True):
            inside = self.graph.steps[n].kind.looped is not None
            mine = loop == (self.graph.stages[n], self.graph.steps[n].kind.looped)
            if (inside and mine) or (not inside and stores):
                place = here[n] if n in here else self.lasting[n]
                self._node("store", (place,), Access(output.tensor.name, output.index))
        return Section(tuple(range(first, len(self.nodes))), None if loop is None else loop[1])

    def _node(self, op: str, args: tuple[int, ...], attr: Attr) -> int:
        node = Node(op, args, attr)
        operands = [self.nodes[a].dims for a in args]
        self.nodes.append(replace(node, dims=node_dims(node, operands, self.program.dim_names)))
        return len(self.nodes) - 1
