"""A value in registers: its C name, its layout, and how its elements are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.text.operator_text import atom
from mirage_py.ugraph.ir.dtypes import BOOL, I8, I32, I64, DType

_REGISTERS = {BOOL: "bool", I32: "int", I64: "long long"}


@dataclass(frozen=True, slots=True)
class Value:
    """``is_packed``: pairs of halves in an ``unsigned`` each, the even register in its lower half,
    or four integers of a byte, the first in the lowest one; otherwise one float for each register
    (for halves, one that is a half), one bool, or one integer of 32 or 64 bits.
    """

    name: str
    layout: Layout
    dtype: DType
    is_packed: bool = False

    @property
    def words(self) -> int:
        """Variables that it takes."""
        return self.layout.register_count // self.per_word

    @property
    def per_word(self) -> int:
        """Elements in each variable."""
        return 1 if not self.is_packed else 2 if self.dtype.is_half else 4

    @property
    def c_type(self) -> str:
        """The type of its variables."""
        if self.is_packed:
            return "unsigned"
        return register_type(self.dtype)

    def declaration(self, initial: str = "") -> str:
        """Its declaration; ``initial`` is the value that all begin with."""
        if self.words == 1:
            return f"{self.c_type} {self.name}{f' = {initial}' if initial else ''};"
        # A vector access may fill several words at once.
        aligned = "alignas(16) " if self.words >= 2 else ""
        return f"{aligned}{self.c_type} {self.name}[{self.words}]{' = {}' if initial else ''};"

    def word(self, index: str) -> str:
        """The variable at ``index``."""
        return self.name if self.words == 1 else f"{self.name}[{index}]"

    def at(self, register: str) -> str:
        """The element in a register, as a float, bool or integer."""
        if not self.is_packed:
            return self.word(register)
        if self.per_word > 2:
            kind = "signed char" if self.dtype == I8 else "unsigned char"
            grouped = atom(register)
            return f"(int)({kind})({self.word(f'{grouped} >> 2')} >> (({grouped} & 3) << 3))"
        half = self.dtype.name
        if register.isdigit():
            which = "high" if int(register) & 1 else "low"
            return f"{which}_{half}({self.word(str(int(register) >> 1))})"
        grouped = atom(register)
        word = self.word(f"{grouped} >> 1")
        return f"({grouped} & 1 ? high_{half}({word}) : low_{half}({word}))"

    def read_by(self, reader: Layout, variable: str) -> str:
        """The element that register ``variable`` of a layout over more dimensions needs."""
        return self.at(self.place_for(reader, variable))

    def place_for(self, reader: Layout, variable: str) -> str:
        """The register that register ``variable`` of a layout over more dimensions needs."""
        if not self.layout.registers:
            return "0"
        if variable.isdigit():
            return str(self._constant_place(reader, int(variable)))
        if self.layout.registers == reader.registers:
            return variable
        return _bare(reader.register_in(self.layout, variable))

    def _constant_place(self, reader: Layout, register: int) -> int:
        place = {bit: n for n, bit in enumerate(self.layout.registers)}
        return sum(
            (register >> n & 1) << place[bit]
            for n, bit in enumerate(reader.registers)
            if bit in place
        )

    def renamed(self, name: str) -> Value:
        """The same under another name."""
        return replace(self, name=name)


def register_type(dtype: DType) -> str:
    """The C type of one element in a register: integers of 32 and 64 bits stay what they are."""
    return _REGISTERS.get(dtype, "float")


def _bare(text: str) -> str:
    """Without the parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
