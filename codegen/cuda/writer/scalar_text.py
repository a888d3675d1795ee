"""Elementwise operators as C text, for one register of a loop."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.text.c_text import C_TYPES, float_text, index_text, predicate_text
from mirage_py.codegen.cuda.text.expressions import elementwise
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Layout
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission, Key
from mirage_py.codegen.text.operator_text import atom
from mirage_py.ugraph.checks.kept_integers import WIDE
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.index import IndexExpr, Predicate


class ScalarEmitter:
    """Of the loop that is being written: ``register`` counts the registers of ``layout``,
    ``scalars`` are the names of what it has computed, ``arrays`` the registers that it fills,
    ``outside`` what others have made.
    """

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self.facts = emission.facts
        self.padding = self.facts.padding
        self.layout = Layout((), (None,) * LANE_BITS, ())
        self.register = "r"
        self.scalars: dict[int, str] = {}
        self.arrays: dict[int, Value] = {}
        self.outside: dict[Key, Value] = {}

    def begin(self, layout: Layout) -> None:
        """Another loop."""
        self.layout = layout
        self.scalars, self.arrays, self.outside = {}, {}, {}

    def rounded(self, number: int, text: str) -> str:
        dtype = self.facts.dtypes[number]
        if not dtype.is_half:
            return text
        return f"low_{dtype.name}(pack_{dtype.name}({text}, 0.0f))"

    def masked(self, number: int, dims: Sequence[str], neutral: str) -> str:
        """An operand, with the padding of ``dims`` replaced where it may not be neutral."""
        facts = self.facts
        section = facts.section(number)
        tails = tuple(
            d
            for d in facts.live(number)
            if d in dims
            and facts.tiling.has_tail(d, section)
            and not (neutral == "0.0f" and self.padding.is_zero(number, d))
        )
        text = self.operand(number)
        inside = self.out.in_range(tails, section, {self.register: self.layout})
        return f"({inside} ? {atom(text)} : {neutral})" if inside else text

    def zero_outside(self, number: int, text: str, dims: Sequence[str]) -> str:
        """What a product multiplies: 0 in the padding of ``dims``, since infinity times the other
        operand's 0 is NaN.
        """
        facts, section = self.facts, self.facts.section(number)
        tails = tuple(
            d
            for d in facts.live(number)
            if d in dims
            and facts.tiling.has_tail(d, section)
            and not self.padding.is_zero(number, d)
        )
        inside = self.out.in_range(tails, section, {self.register: self.layout})
        return f"{inside} ? {atom(text)} : 0.0f" if inside else text

    def literal(self, number: int) -> str:
        """The text of a number."""
        node = self.facts.block.nodes[number]
        value = node.attr if node.op == "const" else float(self.facts.program.sizes[str(node.attr)])
        assert isinstance(value, float)
        return float_text(value)

    def constant(self, number: int) -> str | None:
        """The text of a number, also after casts; None of what is none."""
        if self.facts.is_literal(number):
            return self.literal(number)
        node = self.facts.block.nodes[number]
        inner = self.constant(node.args[0]) if node.op == "cast" else None
        if inner is None:
            return None
        return self.rounded(number, atom(self._converted(number, node.args[0], inner)))

    def operand(self, number: int) -> str:
        """The text of a value at the register that is being written."""
        facts = self.facts
        if facts.is_literal(number):
            return self.literal(number)
        if number in self.scalars:
            return self.scalars[number]
        if facts.is_position(number):
            return self._position_value(number)
        root = facts.root(number)
        if root in self.scalars:
            # A half that has been rounded in this group.
            text = self.scalars[root]
            if root in self.arrays and self.arrays[root].is_packed:
                text = self.rounded(root, text)
            return text
        text = self.outside[root].read_by(self.layout, self.register)
        if number != root and self._reads_often(number):
            name = self._name(number)
            self.out.line(f"const float {name} = {text};")
            self.scalars[number] = name
            return name
        return text

    def _name(self, number: int) -> str:
        """A name for what several groups compute: without a loop they share a scope."""
        if self.register == "0":
            return self.out.value_name(number)
        return self.out.names[number]

    def _reads_often(self, number: int) -> bool:
        return len(self.facts.users[number]) > 1 or any(
            self.facts.block.nodes[u].op == "square" for u in self.facts.users[number]
        )

    def _position_value(self, number: int) -> str:
        out, facts = self.out, self.facts
        node = facts.block.nodes[number]
        if number in out.held_masks:
            return "true"
        names = out.positions({self.register: self.layout})
        if node.op == "mask":
            assert isinstance(node.attr, Predicate)
            text = predicate_text(node.attr, names)
            if len(facts.users[number]) > 1:
                name = self._name(number)
                out.line(f"const bool {name} = {text};")
                self.scalars[number] = text = name
            return text
        assert isinstance(node.attr, IndexExpr)
        return f"(float)({index_text(node.attr, names)})"

    def expression(self, number: int) -> str:
        """The text of an elementwise node."""
        facts = self.facts
        node = facts.block.nodes[number]
        shifts = facts.shifts
        if number in shifts.exponents:
            argument = shifts.exponent(number, lambda n: atom(self.operand(n)))
            return f"exp2_fast({argument})"
        if node.op == "shift":
            text = self.operand(node.args[0])
            if number in shifts.shifts:
                text = shifts.scaled(node.args[0], atom(text))
            floor = shifts.floor(number)
            return text if floor is None else f"fmaxf({text}, {float_text(floor)})"
        if node.op == "cast":
            return self._cast(number)
        operands = [atom(shifts.natural(a, self.operand(a))) for a in node.args]
        types = [facts.dtypes[a] for a in node.args]
        if node.op == "mul" and BOOL in types:
            mask, other = (0, 1) if types[0] == BOOL else (1, 0)
            chosen = operands[other]
            if types[other] == BOOL:
                chosen = f"({chosen} ? 1.0f : 0.0f)"
            return f"{operands[mask]} ? {chosen} : 0.0f"
        return elementwise(node.op, operands)

    def _cast(self, number: int) -> str:
        (source,) = self.facts.block.nodes[number].args
        return self._converted(number, source, self.operand(source))

    def _converted(self, number: int, source: int, text: str) -> str:
        """What a cast makes of the text of its operand, but for rounding to a half."""
        to, have = self.facts.dtypes[number], self.facts.dtypes[source]
        if to == BOOL:
            return text if have == BOOL else f"{atom(text)} != 0.0f"
        if have == BOOL:
            return f"{atom(text)} ? 1.0f : 0.0f"
        if to == have:
            return text
        if to.is_float:
            return f"(float){atom(text)}" if have in WIDE else text
        if to in WIDE:
            return f"({C_TYPES[to.name]}){atom(text)}"
        # Values are floats here; narrow types hold the lowest bits of the whole number.
        return f"(float)({C_TYPES[to.name]})(int){atom(text)}"
