"""The values of a block graph as formulas, in the notation of math specs.

A value gets a name of its own (``s`` for sums, ``m`` for maxima, ``t`` for the rest) where one
formula could not say it: an accumulator, what only shifts exponents, something read twice or in a
later section, a long formula. All others are written out where they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import CONTRACT, EFFECT, LEAF, REDUCE, STATE, operator

_LONG = 72
# What binds tighter has the higher number.
_PRECEDENCE = {"add": 1, "sub": 1, "mul": 2, "div": 2, "neg": 3, "pow": 4, "square": 4}
_ATOM = 5
_CALLED = {"maximum": "max", "minimum": "min"}
# They change the type or mark a role; the number is that of the operand.
_TRANSPARENT = ("cast", "shift")


@dataclass(frozen=True, slots=True)
class Statement:
    """``target = formula`` as a line; ``node`` is the position in the block graph.

    ``name`` is that of the value, or of the tensor that a store writes.
    """

    node: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class _Formula:
    text: str
    precedence: int = _ATOM


def statements(block: BlockGraph, program: Program) -> tuple[Statement, ...]:
    """Every named value and every store, in the order of the nodes.

    ``program`` has the sizes of the dimensions and the names that are taken.
    """
    return _Writer(block, program).run()


def number_text(value: float) -> str:
    """A constant as a person writes it: 4096, 1e-06, 0.3."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


class _Writer:
    def __init__(self, block: BlockGraph, program: Program) -> None:
        self.block = block
        self.program = program
        self.readers = _readers(block.nodes)
        self.formulas: list[_Formula] = []
        self.found: list[Statement] = []
        self.counts: dict[str, int] = {}

    def run(self) -> tuple[Statement, ...]:
        for position, node in enumerate(self.block.nodes):
            self.formulas.append(self._formula(position, node))
        return tuple(self.found)

    def _formula(self, position: int, node: Node) -> _Formula:
        kind = operator(node.op).kind
        if kind == EFFECT:
            sign = "+=" if node.op == "store_add" else "="
            line = f"{node.access} {sign} {self._arg(node, 0).text}"
            self.found.append(Statement(position, node.access.tensor, line))
            return _Formula("")
        if node.op in _TRANSPARENT:
            return self._arg(node, 0)
        if kind == STATE:
            return self._state(position, node)
        written = self._written(node)
        if kind == LEAF or not (self._is_shared(position) or self._is_long(position, written)):
            return written
        return self._named(position, node, written.text)

    def _arg(self, node: Node, number: int) -> _Formula:
        return self.formulas[node.args[number]]

    def _is_shared(self, position: int) -> bool:
        """Whether it is read twice, in another section than its own, or as a shift."""
        readers = self.readers[position]
        home = self.block.section_of[position]
        return (
            len(readers) > 1
            or any(self.block.section_of[r] != home for r in readers)
            or any(n.op == "shift" and position in n.args for n in self.block.nodes)
        )

    def _is_long(self, position: int, written: _Formula) -> bool:
        """Whether it would swell a line; what a store writes has a line anyway."""
        stored = any(self.block.nodes[r].op in STORES for r in self.readers[position])
        return len(written.text) > _LONG and not stored

    # -- names -----------------------------------------------------------------------------------

    def _named(self, position: int, node: Node, text: str, sign: str = "=") -> _Formula:
        name = self._name(node)
        self.found.append(Statement(position, name, f"{self._indexed(name, node)} {sign} {text}"))
        return _Formula(name)

    def _name(self, node: Node) -> str:
        letter = "t"
        if node.op in ("sum", "matmul", "accum_sum", "accum_rescaled"):
            letter = "s"
        elif node.op in ("max", "accum_max"):
            letter = "m"
        while True:
            self.counts[letter] = self.counts.get(letter, 0) + 1
            name = f"{letter}{self.counts[letter]}"
            if name not in self.program.tensors and name not in self.program.sizes:
                return name

    def _indexed(self, name: str, node: Node) -> str:
        return f"{name}[{', '.join(node.dims)}]" if node.dims else name

    def _state(self, position: int, node: Node) -> _Formula:
        value = self._arg(node, 0).text
        if node.op == "accum_sum":
            return self._named(position, node, value, "+=")
        if node.op == "accum_max":
            name = self._name(node)
            line = f"{self._indexed(name, node)} = max({name}, {value})"
        else:
            name = self._name(node)
            moved = zip((self.formulas[a].text for a in node.args[1:]), node.degrees, strict=True)
            factors = [
                f" * exp({m} before - {m})" + (f"^{degree}" if degree != 1 else "")
                for m, degree in moved
                if degree
            ]
            line = f"{self._indexed(name, node)} = {name}{''.join(factors)} + {value}"
        self.found.append(Statement(position, name, line))
        return _Formula(name)

    # -- formulas --------------------------------------------------------------------------------

    def _written(self, node: Node) -> _Formula:
        row = operator(node.op)
        if row.kind == LEAF:
            return _Formula(self._leaf(node))
        args = [self.formulas[a] for a in node.args]
        if row.kind in (REDUCE, CONTRACT):
            inner = " * ".join(_inside(a, 2) for a in args) if len(args) > 1 else args[0].text
            name = "max" if node.op == "max" else "sum"
            return _Formula(f"{name}[{', '.join(node.reduced)}]({inner})")
        if node.op == "square":
            return _Formula(f"{_inside(args[0], _ATOM)}^2", _PRECEDENCE["square"])
        if node.op == "neg":
            return _Formula(f"-{_inside(args[0], _PRECEDENCE['neg'])}", _PRECEDENCE["neg"])
        if row.symbol and len(args) == 2:
            mine = _PRECEDENCE.get(node.op, 0)
            # a - (b - c) and a / (b / c) need their brackets, a * (b * c) does not.
            right = mine if row.commutative else mine + 1
            left = mine + 1 if node.op == "pow" else mine
            text = f"{_inside(args[0], left)} {row.symbol} {_inside(args[1], right)}"
            return _Formula(text, mine)
        inner = ", ".join(a.text for a in args)
        return _Formula(f"{_CALLED.get(node.op, node.op)}({inner})")

    def _leaf(self, node: Node) -> str:
        if node.op == "const":
            assert isinstance(node.attr, float)
            return number_text(node.attr)
        if node.op == "size":
            return str(self.program.sizes[str(node.attr)])
        if node.op == "mask":
            # 1 where the condition holds and 0 elsewhere; its own brackets are round.
            return f"[{str(node.attr).removeprefix('(').removesuffix(')')}]"
        return str(node.attr)


def _readers(nodes: Sequence[Node]) -> list[tuple[int, ...]]:
    """For each node those that read it, once for each operand, through what is transparent."""
    found: list[list[int]] = [[] for _ in nodes]
    for position in range(len(nodes) - 1, -1, -1):
        through = nodes[position].op in _TRANSPARENT
        for operand in nodes[position].args:
            found[operand] += found[position] if through else [position]
    return [tuple(readers) for readers in found]


def _inside(formula: _Formula, least: int) -> str:
    return formula.text if formula.precedence >= least else f"({formula.text})"
