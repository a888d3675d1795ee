"""The treatment of each function in the field test, and the paths that leave the LAX fragment.

The theorem for exponentials (Mirage, OSDI 2025) is about sums, products, quotients and at most one
exponential on each path from an input to an output (LAX programs). The field test is not restricted
to these; this module says where a program leaves them, and what is evaluated there instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.evaluate.trial import (
    EXPONENTIAL,
    KEYED,
    ORDERED,
    has_q_part,
    is_constant_power,
)

_EQUALITY = ("eq", "ne")
_POWERS = ("sqrt", "rsqrt")


@dataclass(frozen=True, slots=True)
class Nested:
    """``outer`` is applied to what carries the exponentials ``inner``.

    It keeps the law exp(a) exp(b) = exp(a + b) if it is ``lawful``: if its argument is known modulo
    q, as the value of a random function is. Else it is a random function of its argument, of which
    exp(-a) = 1 / exp(a) and exp(0) = 1 alone are known.
    """

    outer: str
    inner: tuple[str, ...]
    lawful: bool


@dataclass(frozen=True, slots=True)
class Paths:
    """``outputs``: exponentials on that path to an output that has the most of them."""

    outputs: tuple[tuple[str, int], ...] = ()
    nested: tuple[Nested, ...] = ()

    @property
    def most(self) -> int:
        """Exponentials on a path to any output."""
        return max((count for _, count in self.outputs), default=0)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {"outputs": dict(self.outputs), "nested": [asdict(n) for n in self.nested]}


@dataclass(frozen=True, slots=True)
class FunctionUse:
    """Operators of the program and then of the µGraph, by what stands for them in the field.

    ``exponential``  exp, and what is defined through it
    ``powers``       by fixed exponents: they respect products
    ``ordered``      by a random total order
    ``equality``     true for equal values, and at random for some others
    ``random``       keyed random functions: equal arguments, equal values, no other law
    ``shifts``       maxima of the µGraph that only shift exponents: random values

    ``ugraph`` is None where there is only a program.
    """

    exponential: tuple[str, ...]
    powers: tuple[str, ...]
    ordered: tuple[str, ...]
    equality: tuple[str, ...]
    random: tuple[str, ...]
    shifts: int
    program: Paths
    ugraph: Paths | None

    @property
    def is_lax(self) -> bool:
        """Whether it is within the theorem's programs, at most one exponential on each path."""
        others = self.powers + self.ordered + self.equality + self.random
        most = max(paths.most for paths in (self.program, self.ugraph) if paths is not None)
        return not others and most <= 1

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "exponential": list(self.exponential),
            "powers": list(self.powers),
            "ordered": list(self.ordered),
            "equality": list(self.equality),
            "random": list(self.random),
            "shifts": self.shifts,
            "lax": self.is_lax,
            "program": self.program.document(),
            "ugraph": self.ugraph.document() if self.ugraph else None,
        }


def treatment(node: Node, nodes: Sequence[Node]) -> str:
    """The list of a FunctionUse that a node's operator belongs to; empty for exact arithmetic."""
    if node.op in _POWERS or is_constant_power(node, nodes):
        return "powers"
    if node.op in EXPONENTIAL or node.op == "accum_rescaled":
        return "exponential"
    if node.op in KEYED:
        return "random"
    if node.op in _EQUALITY:
        return "equality"
    is_order = node.op in ORDERED or (node.op == "accum_max" and node.attr is None)
    return "ordered" if is_order else ""


def function_use(program: Program, ugraph: UGraph | None = None) -> FunctionUse:
    """That of a program and, where there is one, of a µGraph for it."""
    reached = [(n, program.nodes) for n in _live(program.nodes, [o.node for o in program.outputs])]
    shifts = 0
    for kernel in ugraph.kernels if ugraph else ():
        if isinstance(kernel, BlockGraph):
            live = _live(kernel.nodes, [i for i, _ in kernel.stores()])
            reached += [(n, kernel.nodes) for n in live]
            shifts += sum(_is_shift(n) for n in live)
    found: dict[str, dict[str, None]] = {}
    for node, nodes in reached:
        # Of the accumulators the report says the operator that they stand for.
        name = {"accum_rescaled": "exp", "accum_max": "max"}.get(node.op, node.op)
        found.setdefault(treatment(node, nodes), {})[name] = None
    lists = {
        name: tuple(found.get(name, ()))
        for name in ("exponential", "powers", "ordered", "equality", "random")
    }
    own = _ugraph_paths(ugraph) if ugraph else None
    return FunctionUse(**lists, shifts=shifts, program=_program_paths(program), ugraph=own)


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a path brings to a value: how many exponentials, the last of them, and a q part."""

    count: int = 0
    last: tuple[str, ...] = ()
    has_q: bool = True


class _Walk:
    def __init__(self) -> None:
        self.tensors: dict[str, _Carried] = {}
        self.nested: dict[Nested, None] = {}

    def values(self, nodes: Sequence[Node]) -> list[_Carried]:
        values: list[_Carried] = []
        for node in nodes:
            values.append(self._value(node, [values[a] for a in node.args], nodes))
            if node.op in STORES:
                name = node.access.tensor
                self.tensors[name] = _joined([values[-1], self.tensors.get(name, _Carried())])
        return values

    def _value(self, node: Node, args: Sequence[_Carried], nodes: Sequence[Node]) -> _Carried:
        if node.op == "load":
            return self.tensors.get(node.access.tensor, _Carried())
        if _is_shift(node):
            return _Carried()
        if node.op == "accum_rescaled":
            # Factors exp(shift before - shift after), with random shifts, on what is accumulated.
            return _joined([args[0], _Carried(1, ("exp",), False)])
        carried = _joined(args)
        constant_power = is_constant_power(node, nodes)
        has_q = has_q_part(node, [a.has_q for a in args], constant_power=constant_power)
        if node.op not in EXPONENTIAL and (node.op != "pow" or constant_power):
            return _Carried(carried.count, carried.last, has_q)
        # a ^ b is exp(b log(a)): the random function comes first, and b has to be known modulo q.
        lawful = args[-1].has_q
        if carried.count:
            self.nested[Nested(node.op, carried.last, lawful)] = None
        return _Carried(carried.count + 1, (node.op,), has_q)


def _program_paths(program: Program) -> Paths:
    walk = _Walk()
    values = walk.values(program.nodes)
    counts = tuple((o.tensor.name, values[o.node].count) for o in program.outputs)
    return Paths(counts, tuple(walk.nested))


def _ugraph_paths(ugraph: UGraph) -> Paths:
    walk = _Walk()
    for kernel in ugraph.kernels:
        if isinstance(kernel, BlockGraph):
            walk.values(kernel.nodes)
        else:
            read = [walk.tensors.get(name, _Carried()) for name in kernel.args]
            walk.tensors[kernel.result] = _joined(read)
    names = [o.tensor.name for o in ugraph.program.outputs]
    counts = tuple((name, walk.tensors.get(name, _Carried()).count) for name in names)
    return Paths(counts, tuple(walk.nested))


def _joined(values: Sequence[_Carried]) -> _Carried:
    last = dict.fromkeys(op for v in values for op in v.last)
    count = max((v.count for v in values), default=0)
    return _Carried(count, tuple(last), all(v.has_q for v in values))


def _is_shift(node: Node) -> bool:
    return node.op == "shift" or (node.op == "accum_max" and node.attr == "shift")


def _live(nodes: Sequence[Node], ends: Sequence[int]) -> list[Node]:
    """What the ends depend on in the test, in order: of a shift only that there is one."""
    wanted = dict.fromkeys(ends)
    for position in reversed(range(len(nodes))):
        if position in wanted and not _is_shift(nodes[position]):
            wanted.update(dict.fromkeys(nodes[position].args))
    return [nodes[position] for position in sorted(wanted)]
