"""The C text of a thread's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from mirage_py.codegen.cuda.text.c_text import C_TYPES, float_text, index_text
from mirage_py.codegen.cuda.text.expressions import elementwise
from mirage_py.codegen.cuda.windows.linear import Comparison, Condition, Linear
from mirage_py.codegen.cuda.windows.order import INLINE, Schedule, Step
from mirage_py.codegen.cuda.windows.vectors import Vector
from mirage_py.codegen.cuda.writer.copies import VECTORS
from mirage_py.codegen.text.operator_text import atom
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.program import Tensor

_SYMBOLS = {"ge": ">=", "lt": "<", "eq": "==", "ne": "!="}
# A vector of one element of two bytes.
_SINGLE = {2: "unsigned short", 4: "unsigned"}


class WindowText:
    """Lines of a kernel's body; names of positions are those of their dimensions."""

    def __init__(
        self,
        found: Schedule,
        tensors: Mapping[str, Tensor],
        names: Mapping[str, str],
        taken: Sequence[str],
        *,
        is_wide: bool,
    ) -> None:
        self.found, self.scalars = found, found.graph.scalars
        self.tensors, self.names = tensors, names
        self.kind = "long long" if is_wide else "int"
        self.taken = dict.fromkeys(taken)
        self.pointers: dict[tuple[str, tuple[tuple[IndexExpr, int], ...]], str] = {}
        self.texts: dict[int, str] = {}
        self.conditions: dict[Condition, str] = {}
        self.lines: list[str] = []

    def run(self) -> list[str]:
        """The lines of all steps."""
        for step in self.found.steps:
            if step.vector is not None:
                (self._store if step.is_store else self._load)(step.vector)
            elif step.part >= 0:
                self._fold(step)
            else:
                self._compute(step.scalar)
        return self.lines

    def fresh(self, name: str) -> str:
        """A name that nothing else has."""
        found = next(n for k in count() if (n := f"{name}{k or ''}") not in self.taken)
        self.taken[found] = None
        return found

    # -- memory ----------------------------------------------------------------------------------

    def _pointer(self, vector: Vector, *, is_store: bool) -> str:
        key = vector.tensor, vector.terms
        if key not in self.pointers:
            name = self.fresh(f"{vector.tensor}_at")
            kind = C_TYPES[self.tensors[vector.tensor].dtype.name]
            const = "" if is_store else "const "
            terms = self._terms(vector.terms, wide=self.kind != "int")
            at = f"{vector.tensor} + ({terms})" if terms else vector.tensor
            self.lines.append(f"{const}{kind}* {name} = {at};")
            self.pointers[key] = name
        name, first = self.pointers[key], vector.first
        return name if not first else f"{name} {'+' if first > 0 else '-'} {abs(first)}"

    def _terms(self, terms: Sequence[tuple[IndexExpr, int]], *, wide: bool = False) -> str:
        parts = []
        for term, factor in terms:
            text = atom(index_text(term, self.names))
            text = f"({self.kind}){text}" if wide else text
            parts.append(text if factor == 1 else f"{text} * {factor}")
        return " + ".join(parts)

    def _load(self, vector: Vector) -> None:
        tensor = self.tensors[vector.tensor]
        place = self._pointer(vector, is_store=False)
        name = self.fresh(f"{vector.tensor}_{len(self.pointers)}x")
        width_bytes = vector.width * tensor.dtype.bytes
        inside = self._condition(vector.guard)
        if width_bytes <= 4 and not (tensor.dtype.is_half and vector.width == 2):
            kind = "unsigned" if tensor.dtype.is_half else "float"
            source = _SINGLE[2] if tensor.dtype.is_half else "float"
            read = f"*reinterpret_cast<const {source}*>({place})"
            text = f"{inside} ? {read} : 0" if inside else read
            self.lines.append(f"const {kind} {name} = {text};")
        else:
            words = width_bytes // 4
            kind, item = VECTORS[width_bytes], "unsigned" if tensor.dtype.is_half else "float"
            zero = " = {}" if inside else ""
            self.lines.append(f"alignas(16) {item} {name}[{words}]{zero};")
            read = (
                f"*reinterpret_cast<{kind}*>({name}) = *reinterpret_cast<const {kind}*>({place});"
            )
            self.lines.append(f"if ({inside}) {read}" if inside else read)
        for n, member in enumerate(vector.members):
            if member is None:
                continue
            if not tensor.dtype.is_half:
                self.texts[member] = f"{name}[{n}]" if vector.width > 1 else name
                continue
            word = f"{name}[{n // 2}]" if vector.width > 1 else name
            half = "high" if n % 2 else "low"
            self._named(member, f"{half}_{tensor.dtype.name}({word})")

    def _store(self, vector: Vector) -> None:
        tensor = self.tensors[vector.tensor]
        place = self._pointer(vector, is_store=True)
        values = [self._text(m) for m in vector.members if m is not None]
        inside = self._condition(vector.guard)
        head = f"if ({inside}) " if inside else ""
        if vector.width == 1:
            (value,) = values
            if tensor.dtype.is_half:
                kind, value = _SINGLE[2], f"(unsigned short)pack_{tensor.dtype.name}({value}, 0.0f)"
            else:
                kind = "float"
            self.lines.append(f"{head}*reinterpret_cast<{kind}*>({place}) = {value};")
            return
        name = self.fresh(f"{vector.tensor}_x")
        item = "float"
        if tensor.dtype.is_half:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [f"pack_{tensor.dtype.name}({low}, {high})" for low, high in pairs]
            item = "unsigned"
        kind = VECTORS[vector.width * tensor.dtype.bytes]
        self.lines.append(
            f"alignas(16) const {item} {name}[{len(values)}] = {{{', '.join(values)}}};"
        )
        value = f"*reinterpret_cast<const {kind}*>({name})"
        self.lines.append(f"{head}*reinterpret_cast<{kind}*>({place}) = {value};")

    # -- numbers ---------------------------------------------------------------------------------

    def _named(self, number: int, text: str) -> None:
        """A number by a name of its own, where it is read more than once."""
        if self.found.uses[number] < 2:
            self.texts[number] = text
            return
        name = self.fresh(f"v{number}")
        kind = "bool" if self.scalars[number].dtype == BOOL else "float"
        self.lines.append(f"const {kind} {name} = {text};")
        self.texts[number] = name

    def _compute(self, number: int) -> None:
        self._named(number, self._expression(number))

    def _fold(self, step: Step) -> None:
        scalar = self.scalars[step.scalar]
        factors: list[str] = []
        if step.part in self.found.joined:
            factors = [self._text(a) for a in self.scalars[step.part].args]
        part = " * ".join(map(atom, factors)) or self._text(step.part)
        if step.first:
            name = self.fresh(f"{scalar.op}{step.scalar}")
            self.lines.append(f"float {name} = {part};")
            self.texts[step.scalar] = name
            return
        name = self.texts[step.scalar]
        if scalar.op == "max":
            self.lines.append(f"{name} = max_nan({name}, {part});")
        elif factors:
            self.lines.append(f"{name} = fmaf({', '.join(factors)}, {name});")
        else:
            self.lines.append(f"{name} += {part};")

    def _expression(self, number: int) -> str:
        scalar = self.scalars[number]
        operands = [atom(self._text(a)) for a in scalar.args]
        types = [self.scalars[a].dtype for a in scalar.args]
        if scalar.op == "cast":
            text = operands[0]
            if scalar.dtype == BOOL:
                return text if types[0] == BOOL else f"{text} != 0.0f"
            if types[0] == BOOL:
                text = f"({text} ? 1.0f : 0.0f)"
        else:
            text = elementwise(scalar.op, operands)
        if scalar.dtype.is_half:
            return f"low_{scalar.dtype.name}(pack_{scalar.dtype.name}({text}, 0.0f))"
        return text

    def _text(self, number: int) -> str:
        scalar = self.scalars[number]
        if number not in self.texts and scalar.op in INLINE:
            self.texts[number] = self._leaf(number)
        return self.texts[number]

    def _leaf(self, number: int) -> str:
        attr = self.scalars[number].attr
        if isinstance(attr, float):
            text = float_text(attr)
            return f"({text})" if text.startswith("-") else text
        if isinstance(attr, Linear):
            return f"(float)({self._sum(attr)})"
        assert isinstance(attr, tuple)
        return self._condition(attr) or "true"

    def _sum(self, form: Linear) -> str:
        terms = self._terms(form.terms)
        if not form.constant:
            return terms or "0"
        sign = "+" if form.constant > 0 else "-"
        return f"{terms} {sign} {abs(form.constant)}" if terms else str(form.constant)

    def _condition(self, condition: Condition) -> str:
        """The text of a condition, by a name of its own; empty where it always holds."""
        if not condition:
            return ""
        if condition not in self.conditions:
            name = self.fresh("inside")
            text = " && ".join(self._comparison(part) for part in condition)
            self.lines.append(f"const bool {name} = {text};")
            self.conditions[condition] = name
        return self.conditions[condition]

    def _comparison(self, part: Comparison) -> str:
        if part.op == "never":
            return "false"
        if part.op == "or":
            texts = [" && ".join(map(self._comparison, c)) for c in part.choices]
            return f"({' || '.join(f'({t})' for t in texts)})"
        return f"{self._terms(part.terms)} {_SYMBOLS[part.op]} {part.bound}"
