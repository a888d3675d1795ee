"""PTX text as data: instructions, labels, parameters and constant tables of an entry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mirage_py.errors import InputError


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces."""

    items: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """Operands in brackets: a base with a byte offset, and the coordinates of a tensor copy."""

    base: object
    offset: int = 0
    coordinates: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement. ``parts`` is its opcode cut at the dots; ``guard`` the predicate in front."""

    parts: tuple[str, ...]
    operands: tuple[object, ...]
    line: int
    guard: str = ""
    negated: bool = False

    @property
    def opcode(self) -> str:
        """As it is written."""
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable of the module: ``space`` is ``shared``, ``global`` or ``const``; ``data`` what it
    is initialised with, None for shared memory; ``size`` 0 is dynamic shared memory.
    """

    name: str
    space: str
    size: int
    align: int
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel. ``labels`` name the instruction that follows them."""

    name: str
    parameters: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    symbols: tuple[Symbol, ...]


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)(.*?)\{", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+[^,]*?([\w$]+)(?:\[\d+\])?\s*(?:,|$)")
_SYMBOL = re.compile(
    r"\.(shared|global|const)\s+(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?\.([bfsu])(\d+)\s+"
    r"([\w$]+)\s*(?:\[(\d*)\])?\s*(?:=\s*\{?([^;}]*)\}?)?\s*;"
)
_LABEL = re.compile(r"\s*([\w$]+)\s*:(?!:)")
_LINES_OF_THEIR_OWN = (".loc", ".file", ".section")


def parse(text: str, name: str = "") -> Entry:
    """The entry called ``name``, or the only one. Raises InputError where there is none."""
    text = _COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
    for found in _ENTRY.finditer(text):
        if name in ("", found[1]):
            body, _ = _block(text, found.end())
            first = text.count("\n", 0, found.end()) + 1
            symbols = tuple(_symbols(text))
            instructions, labels = _Body(first).read(body)
            parameters = tuple(_PARAMETER.findall(found[2]))
            return Entry(found[1], parameters, tuple(instructions), labels, symbols)
    raise InputError(f"there is no entry '{name}' in this PTX", repair="give PTX of a kernel")


def _block(text: str, start: int) -> tuple[str, int]:
    """What lies up to the brace that closes the one before ``start``."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return text[start:at], at
    raise InputError("a brace of this PTX is not closed", repair="give whole PTX")


def _symbols(text: str) -> Iterator[Symbol]:
    for space, align, kind, bits, name, count, values in _SYMBOL.findall(text):
        del kind
        width = int(bits) // 8
        size = width * (int(count) if count else 0 if "[" in text else 1)
        if not count and not re.search(rf"\b{re.escape(name)}\s*\[", text):
            size = width
        data = None
        if space != "shared":
            numbers = [int(v, 0) for v in re.split(r"[,\s]+", values.strip()) if v]
            mask = (1 << 8 * width) - 1
            data = b"".join((n & mask).to_bytes(width, "little") for n in numbers)
            data = data.ljust(size, b"\0")
        yield Symbol(name, space, size, int(align or width), data)


@dataclass(slots=True)
class _Body:
    """Reads statements; names that a scope in braces declares are its own."""

    line: int
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    scopes: list[dict[str, str]] = field(default_factory=list)
    opened: int = 0

    def read(self, text: str) -> tuple[list[Instruction], dict[str, int]]:
        at = 0
        while at < len(text):
            if text[at].isspace() or text[at] == ";":
                self.line += text[at] == "\n"
                at += 1
            elif text[at] == "{":
                inner, end = _block(text, at + 1)
                self.opened += 1
                self.scopes.append(_declared(inner, self.opened))
                self.read(inner)
                self.scopes.pop()
                at = end + 1
            elif text.startswith(_LINES_OF_THEIR_OWN, at):
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            elif label := _LABEL.match(text, at):
                self.labels[self._own(label[1])] = len(self.instructions)
                at = label.end()
            else:
                end = text.find(";", at)
                end = len(text) if end < 0 else end
                self._statement(text[at:end])
                self.line += text.count("\n", at, end)
                at = end + 1
        return self.instructions, self.labels

    def _own(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def _statement(self, text: str) -> None:
        text = " ".join(text.split())
        if text.startswith(".") or not text:
            return
        guard, negated = "", False
        if text.startswith("@"):
            word, _, text = text[1:].partition(" ")
            negated, guard = word.startswith("!"), self._own(word.lstrip("!"))
        opcode, _, rest = text.partition(" ")
        operands = tuple(self._operand(o) for o in _cut(rest))
        made = Instruction(tuple(opcode.split(".")), operands, self.line, guard, negated)
        self.instructions.append(made)

    def _operand(self, text: str) -> object:
        text = text.strip()
        if text.startswith("{"):
            return Vector(tuple(self._operand(o) for o in _cut(text[1:-1])))
        if text.startswith("["):
            inner = _cut(text[1:-1])
            base, _, offset = inner[0].replace(" ", "").partition("+")
            if not offset and "-" in base[1:]:
                base, _, offset = base.partition("-")
                offset = f"-{offset}"
            more = tuple(self._operand(o) for o in inner[1:])
            number = int(offset, 0) if offset else 0
            return Address(self._operand(base), number, more)
        if re.match(r"-?\d", text):
            if re.match(r"0[fFdD][0-9a-fA-F]", text) and not text.startswith("0x"):
                return None  # a number that is no integer
            try:
                return int(text.rstrip("U"), 0)
            except ValueError:
                return None
        return "|".join(self._own(part) for part in text.split("|"))


def _declared(text: str, number: int) -> dict[str, str]:
    """Registers and labels of a scope, with the names that they have nowhere else."""
    found: list[str] = []
    for names in re.findall(r"\.reg\s+\.\w+\s+([^;]*);", text):
        found += [n.strip() for n in names.split(",") if "<" not in n]
    found += re.findall(r"(?:^|[;\s{}])([A-Za-z_]\w*)\s*:(?!:)", text)
    return {name: f"{name}#{number}" for name in found}


def _cut(text: str) -> Sequence[str]:
    """Operands between commas that lie in no brackets."""
    parts, depth, last = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "{[(") - (char in "}])")
        if char == "," and not depth:
            parts.append(text[last:at].strip())
            last = at + 1
    rest = text[last:].strip()
    return [*parts, rest] if rest else parts
