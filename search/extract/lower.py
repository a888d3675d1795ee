"""Lowering of a derivation and its loop arrangement to a block graph with open tiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from keyword import iskeyword

from mirage_py.axioms.terms.term import COMPARISONS
from mirage_py.search.closure.derivation import Derivation
from mirage_py.search.extract.loops import Arrangement
from mirage_py.ugraph.ir.dims import node_dims
from mirage_py.ugraph.ir.node import REDUCING, Access, Attr, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section


def lower(
    program: Program,
    derivation: Derivation,
    arrangement: Arrangement,
    stores: Sequence[Access | None],
    *,
    name: str = "",
    renamed: Mapping[str, Access] | None = None,
) -> BlockGraph:
    """The kernel; ``stores`` says where each output of the derivation goes, if anywhere.

    Every dimension that blocks can share out among them is a grid axis. ``renamed`` says how the
    tensors of earlier kernels are read.
    """
    lowering = _Lowering(program, derivation, arrangement, stores, renamed or {})
    return lowering.run(kernel_name(name or program.name))


def kernel_name(name: str) -> str:
    """A program is named after a file or a function, which may be called 2layers or lambda."""
    plain = re.sub(r"\W", "_", name)
    return plain if plain.isidentifier() and not iskeyword(plain) else f"kernel_{plain}"


def output_stores(program: Program) -> tuple[Access, ...]:
    """Where the program's outputs go."""
    return tuple(Access(o.tensor.name, o.index) for o in program.outputs)


class _Lowering:
    def __init__(
        self,
        program: Program,
        derivation: Derivation,
        arrangement: Arrangement,
        stores: Sequence[Access | None],
        renamed: Mapping[str, Access],
    ) -> None:
        self.program = program
        self.derivation = derivation
        self.arrangement = arrangement
        self.stores = stores
        self.renamed = renamed
        self.needed = _needed(derivation, stores)
        self.nodes: list[Node] = []
        # Where the value of a step is: for good, or in the body of the loop under way.
        self.lasting: dict[int, int] = {}
        self.passing: dict[int, int] = {}

    def run(self, name: str) -> BlockGraph:
        sections = []
        plan = self.arrangement
        for number, straight in enumerate(plan.straights):
            last = number == len(plan.loops)
            sections.append(self._section(straight, None, None if last else -1))
            if not last:
                sections.append(self._section(plan.bodies[number], plan.loops[number], number))
        kept = tuple(s for s in sections if s.nodes)
        return BlockGraph(name, self._grid(), tuple(self.nodes), kept)

    def _grid(self) -> tuple[GridAxis, ...]:
        """The dimensions of the kernel that nothing in it reduces or loops over.

        A store that lacks one is left to the first block along it.
        """
        used = [d for n in self.nodes for d in n.dims]
        taken = [d for n in self.nodes if n.op in REDUCING for d in n.reduced]
        taken += self.arrangement.loops
        return tuple(GridAxis(d) for d in self.program.dim_names if d in used and d not in taken)

    def _section(self, steps: Iterable[int], loop: str | None, stores: int | None) -> Section:
        """The steps, then the outputs whose ``stored_in`` is ``stores``."""
        first = len(self.nodes)
        self.passing = {}
        for step in steps:
            if step in self.needed:
                self._step(step)
        for output, where in enumerate(self.arrangement.stored_in):
            if where == stores:
                self._store(output)
        return Section(tuple(range(first, len(self.nodes))), loop)

    def _step(self, number: int) -> None:
        step = self.derivation.steps[number]
        args = step.args
        if step.op == "matmul":
            # As it would be written: the operand whose own dimension comes first is the left one.
            left, right = (self.derivation.steps[a].dims for a in args)
            if self._first_own(right, left) < self._first_own(left, right):
                args = (args[1], args[0])
        attr = None if step.is_accumulator else step.attr
        if isinstance(attr, Access):
            attr = self.renamed.get(attr.tensor, attr)
        node = self._selected(args) if step.op == "mul" else None
        if node is None:
            node = self._node(step.op, tuple(self._position(a) for a in args), attr)
        if step.looped is None:
            self.lasting[number] = node
        else:
            self.passing[number] = node

    def _selected(self, args: tuple[int, ...]) -> int | None:
        """A product with the result of a comparison, as the selection that kernels make of it: what
        is not chosen may have no value.
        """
        for condition, value in (args, args[::-1]):
            if self.derivation.steps[condition].op in COMPARISONS:
                zero = self._node("const", (), 0.0)
                chosen = (self._position(condition), self._position(value), zero)
                return self._node("where", chosen, None)
        return None

    def _store(self, output: int) -> None:
        target = self.stores[output]
        if target is not None:
            value = self._position(self.derivation.outputs[output])
            self._node("store", (value,), target)

    def _node(self, op: str, args: tuple[int, ...], attr: Attr) -> int:
        node = Node(op, args, attr)
        operands = [self.nodes[a].dims for a in args]
        self.nodes.append(replace(node, dims=node_dims(node, operands, self.program.dim_names)))
        return len(self.nodes) - 1

    def _position(self, step: int) -> int:
        return self.passing[step] if step in self.passing else self.lasting[step]

    def _first_own(self, dims: tuple[str, ...], other: tuple[str, ...]) -> int:
        order = self.program.dim_names
        return min(order.index(d) for d in dims if d not in other)


def _needed(derivation: Derivation, stores: Sequence[Access | None]) -> frozenset[int]:
    """The steps that some store needs: not those of an output that another kernel has stored."""
    needed = {o for o, store in zip(derivation.outputs, stores, strict=True) if store is not None}
    for number in range(len(derivation.steps) - 1, -1, -1):
        if number in needed:
            needed.update(derivation.steps[number].args)
    return frozenset(needed)
