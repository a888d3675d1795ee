"""Thread graphs: what is elementwise in one layout, as one loop over registers.

Inner values are scalars of the loop; what others read later goes to registers. Sums and maxima
along a thread's own registers, and accumulators, end the chain inside the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirage_py.codegen.cuda.c_text import atom, float_text, index_text, predicate_text
from mirage_py.codegen.cuda.emission import Emission, Key
from mirage_py.codegen.cuda.exchange import combined
from mirage_py.codegen.cuda.expressions import elementwise
from mirage_py.codegen.cuda.layout import Layout
from mirage_py.codegen.cuda.value import Value
from mirage_py.codegen.padding import Padding
from mirage_py.codegen.triton.shifts import is_shift
from mirage_py.ugraph.dtypes import BOOL, F32
from mirage_py.ugraph.index import IndexExpr, Predicate

# Gives a node's value in a layout.
Need = Callable[[Key, Layout], Value]


class ThreadGraphs:
    """Writes groups of nodes as loops."""

    def __init__(self, emission: Emission, need: Need) -> None:
        self.out = emission
        self.facts = emission.facts
        self.need = need
        self.padding = Padding(self.facts.tiling, self.facts.block)
        # Of the group that is being written: scalars, and arrays that others read.
        self._layout = Layout((), (None,) * 5, ())
        self._register = "r"
        self._scalars: dict[int, str] = {}
        self._arrays: dict[int, Value] = {}
        self._outside: dict[Key, Value] = {}
        self._pairs: dict[int, tuple[Value, ...]] = {}

    def loop_layout(self, number: int) -> Layout:
        """Over which registers the text of a node goes."""
        layouts = self.out.layouts
        return layouts.loops.get(number, layouts.own[number])

    # -- a group ---------------------------------------------------------------------------------

    def write(self, group: Sequence[int], kept: Sequence[int]) -> dict[int, Value]:
        """The nodes of a group, all over the same registers; ``kept`` are those that are read
        behind it. What reductions give is in parts yet.
        """
        out = self.out
        self._layout = self.loop_layout(group[0])
        self._scalars = {}
        self._outside = {}
        self._arrays = {}
        for number in group:
            self._prepare(number, group)
        made = {n: self._declared(n) for n in group if n in kept and not self._is_state(n)}
        self._arrays = {n: v for n, v in made.items() if not self._reduces(n)}
        self._pairs = {n: t for n in self._arrays if (t := self._pair_product(n, group))}
        halves = [v for n, v in self._arrays.items() if v.is_packed and n not in self._pairs]
        are_packed = halves or self._pairs
        count = self._layout.register_count
        if are_packed:
            with out.unrolled("i", count // 2) as i:
                for number, texts in self._pairs.items():
                    self._write_pair(number, texts, i)
                if len(self._pairs) == len(group):
                    return made
                for value in halves:
                    out.line(f"float {value.name}_pair[2];")
                with out.unrolled("j", 2) as j:
                    if i == "0":
                        self._register = j
                    else:
                        out.line(f"const int r = 2 * {i} + {j};")
                        self._register = "r"
                    self._lines(group, made)
                for value in halves:
                    pair = f"{value.name}_pair"
                    packed = f"pack_{value.dtype.name}({pair}[0], {pair}[1])"
                    out.line(f"{value.word(i)} = {packed};")
        else:
            with out.unrolled("r", count) as r:
                self._register = r
                self._lines(group, made)
        return made

    def _prepare(self, number: int, group: Sequence[int]) -> None:
        """Bring what the group reads from others into its layout."""
        for argument in self.facts.inputs(number):
            if argument not in group and argument not in self._outside:
                self._outside[argument] = self._in_layout(argument, argument)
        if self.facts.block.nodes[number].op == "accum_rescaled":
            self.rescale(number)

    def rescale(self, number: int, only: Sequence[int] | None = None) -> None:
        """Multiply a rescaled sum by what its running maxima have changed by; of these, by ``only``
        some.
        """
        out = self.out
        (state, *_) = out.held(number)
        scales = [
            self.need(key, state.layout.of_dims(self.facts.live(key[1])))
            for key in self.rescaling(number)
            if only is None or key[1] in only
        ]
        if not scales:
            return
        with out.unrolled("r", state.words) as r:
            factors = " * ".join(s.read_by(state.layout, r) for s in scales)
            out.line(f"{state.word(r)} *= {factors};")

    def _in_layout(self, key: Key, number: int) -> Value:
        return self.need(key, self._layout.of_dims(self.facts.live(number)))

    def rescaling(self, number: int) -> list[tuple[str, int, int]]:
        """The factors of a rescaled sum: running maxima and their degrees."""
        node = self.facts.block.nodes[number]
        pairs = zip(node.args[1:], node.powers, strict=True)
        return [("scale", peak, int(degree)) for peak, degree in pairs]

    def _is_state(self, number: int) -> bool:
        return self.facts.block.nodes[number].op.startswith("accum")

    def _reduces(self, number: int) -> bool:
        return self.facts.block.nodes[number].op in ("sum", "max", "matmul")

    def _declared(self, number: int) -> Value:
        """The registers of a value that the group makes."""
        out, facts = self.out, self.facts
        dtype = facts.dtypes[number]
        node = facts.block.nodes[number]
        if self._reduces(number):
            layout = self._layout.summed_in_threads(node.reduced)
            value = Value(out.names[number], layout, F32)
            first = "0.0f" if node.op != "max" else float_text(float("-inf"))
            if first == "0.0f" or value.words == 1:
                out.line(value.declaration(first))
            else:
                out.line(value.declaration())
                with out.unrolled("r", value.words) as r:
                    out.line(f"{value.word(r)} = {first};")
            return value
        layout = out.layouts.own[number]
        packed = dtype.is_half and bool(layout.registers)
        value = Value(out.names[number], layout, dtype, packed)
        if layout.registers:
            out.line(value.declaration())
        return value

    def _pair_product(self, number: int, group: Sequence[int]) -> tuple[Value, ...]:
        """The operands of a product of halves that are multiplied two at a time; none if they
        cannot be.
        """
        facts = self.facts
        node = facts.block.nodes[number]
        if node.op != "mul" or not facts.dtypes[number].is_half or number in facts.shifts.factors:
            return ()
        if any(a in group or a not in self._outside for a in node.args):
            return ()
        values = tuple(self._outside[a] for a in node.args)
        first = self._layout.registers[:1]
        are_pairs = all(v.is_packed and v.layout.registers[:1] == first for v in values)
        return values if are_pairs and self._arrays[number].is_packed else ()

    def _write_pair(self, number: int, values: Sequence[Value], i: str) -> None:
        """A product of halves, two at a time: rounded as the product of floats would be."""
        register = "0" if i == "0" else f"({i} << 1)"
        words = []
        for value in values:
            if value.layout.registers == self._layout.registers:
                words.append(value.word(i))
                continue
            place = value.place_for(self._layout, register)
            words.append(value.word(place if place.isdigit() else f"({place}) >> 1"))
        made = self._arrays[number]
        self.out.line(f"{made.word(i)} = mul_{made.dtype.name}x2({', '.join(words)});")

    # -- one node --------------------------------------------------------------------------------

    def _lines(self, group: Sequence[int], made: dict[int, Value]) -> None:
        self._scalars = {}
        for number in group:
            if number in self._pairs:
                self._scalars[number] = self._arrays[number].read_by(self._layout, self._register)
            elif self._is_state(number):
                self._update(number)
            elif self._reduces(number):
                self._reduce(number, made[number])
            else:
                self._assign(number, self.expression(number))

    def _assign(self, number: int, text: str) -> None:
        facts = self.facts
        dtype = facts.dtypes[number]
        is_read = any(self._reads(u, number) for u in range(len(facts.block.nodes)))
        value = self._arrays.get(number)
        name = f"{self.out.names[number]}"
        if value is not None and value.is_packed:
            self.out.line(f"{name}_pair[j] = {text};")
            self._scalars[number] = f"{name}_pair[j]"
        elif value is not None:
            word = value.word(value.place_for(self._layout, self._register))
            kind = "" if value.layout.registers else f"const {value.c_type} "
            self.out.line(f"{kind}{word} = {self._rounded(number, text)};")
            self._scalars[number] = word
        elif is_read:
            kind = "bool" if dtype == BOOL else "float"
            self.out.line(f"const {kind} {name} = {self._rounded(number, text)};")
            self._scalars[number] = name

    def _reads(self, user: int, number: int) -> bool:
        return number in self.facts.block.nodes[user].args

    def _rounded(self, number: int, text: str) -> str:
        dtype = self.facts.dtypes[number]
        if not dtype.is_half:
            return text
        return f"low_{dtype.name}(pack_{dtype.name}({text}, 0.0f))"

    def _update(self, number: int) -> None:
        """An accumulator takes what this register has."""
        facts, out = self.facts, self.out
        node = facts.block.nodes[number]
        (state, *_) = out.held(number)
        word = state.word(state.place_for(self._layout, self._register))
        if node.op == "accum_max":
            self._new_peak(number, word)
            return
        if number in facts.deferred_by:
            total = facts.block.nodes[facts.deferred_by[number]]
            text = self.masked(total.args[0], total.reduced, "0.0f")
        else:
            text = self.operand(node.args[0])
        out.line(f"{word} += {atom(text) if ' ? ' in text else text};")

    def _new_peak(self, number: int, word: str) -> None:
        facts, out = self.facts, self.out
        node = facts.block.nodes[number]
        top = self.operand(node.args[0])
        in_base_two = number in facts.shifts.shifts
        if in_base_two:
            top = facts.shifts.scaled(node.args[0], atom(top))
        larger = "fmaxf" if node.attr == "shift" else "max_nan"
        degrees = self.degrees(number)
        if not degrees:
            out.line(f"{word} = {larger}({word}, {top});")
            return
        old = f"{out.names[number]}_old"
        out.line(f"const float {old} = {word};")
        out.line(f"{word} = {larger}({word}, {top});")
        power = "exp2_fast" if in_base_two else "exp_fast"
        for degree in degrees:
            scale = self._outside_scale(number, degree)
            place = scale.word(scale.place_for(self._layout, self._register))
            difference = f"{old} - {word}"
            if degree != 1:
                difference = f"({difference}) * {float(degree)}f"
            out.line(f"{place} = {power}({difference});")

    def shift_again(self, peak: int, value: Value, whole: Value) -> None:
        """The factors from a running maximum of one warp to that of all."""
        out = self.out
        power = "exp2_fast" if peak in self.facts.shifts.shifts else "exp_fast"
        for degree in self.degrees(peak):
            scale = Value(out.fresh(f"{out.names[peak]}_last"), value.layout, F32)
            out.line(scale.declaration())
            with out.unrolled("r", scale.words) as r:
                difference = f"{value.word(r)} - {whole.read_by(value.layout, r)}"
                if degree != 1:
                    difference = f"({difference}) * {float(degree)}f"
                out.line(f"{scale.word(r)} = {power}({difference});")
            out.hold(("scale", peak, degree), scale)

    def _outside_scale(self, number: int, degree: int) -> Value:
        (scale, *_) = self.out.held(("scale", number, degree))
        return scale

    def degrees(self, peak: int) -> list[int]:
        """The degrees in which sums are rescaled by a running maximum."""
        found: dict[int, None] = {}
        for user in self.facts.users[peak]:
            if self.facts.block.nodes[user].op == "accum_rescaled":
                found.update((d, None) for _, p, d in self.rescaling(user) if p == peak)
        return list(found)

    def _reduce(self, number: int, value: Value) -> None:
        node = self.facts.block.nodes[number]
        word = value.word(value.place_for(self._layout, self._register))
        if node.op == "matmul":
            factors = [atom(self.masked(a, node.reduced, "0.0f")) for a in node.args]
            self.out.line(f"{word} += {' * '.join(factors)};")
            return
        op = self.reduction(number)
        neutral = "0.0f" if op == "sum" else float_text(float("-inf"))
        text = self.masked(node.args[0], node.reduced, neutral)
        if op == "sum":
            self.out.line(f"{word} += {atom(text) if ' ? ' in text else text};")
        else:
            self.out.line(f"{word} = {combined(op, word, text)};")

    def reduction(self, number: int) -> str:
        """sum, max, or max_nan, which is PyTorch's maximum: NaN where one is."""
        node = self.facts.block.nodes[number]
        if node.op != "max":
            return "sum"
        return "max" if self._only_shifts(number) else "max_nan"

    def _only_shifts(self, number: int) -> bool:
        """Whether a maximum, or a multiple of it, only shifts exponents: a NaN comes through the
        exponential anyway.
        """
        nodes = self.facts.block.nodes
        for user in self.facts.users[number]:
            node = nodes[user]
            is_multiple = node.op == "mul" and nodes[node.args[1]].op == "const"
            if not is_shift(node) and not (is_multiple and self._only_shifts(user)):
                return False
        return True

    # -- expressions -----------------------------------------------------------------------------

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
        inside = self.out.in_range(tails, section, {self._register: self._layout})
        return f"({inside} ? {atom(text)} : {neutral})" if inside else text

    def literal(self, number: int) -> str:
        """The text of a number."""
        node = self.facts.block.nodes[number]
        value = node.attr if node.op == "const" else float(self.facts.program.sizes[str(node.attr)])
        assert isinstance(value, float)
        return float_text(value)

    def operand(self, number: int) -> str:
        """The text of a value at the register that is being written."""
        facts = self.facts
        if facts.is_literal(number):
            return self.literal(number)
        if number in self._scalars:
            return self._scalars[number]
        if facts.is_position(number):
            return self._position_value(number)
        root = facts.root(number)
        if root in self._scalars:
            # A half that has been rounded in this group.
            text = self._scalars[root]
            if root in self._arrays and self._arrays[root].is_packed:
                text = self._rounded(root, text)
            return text
        text = self._outside[root].read_by(self._layout, self._register)
        if number != root and self._reads_often(number):
            name = self._scalar_name(number)
            self.out.line(f"const float {name} = {text};")
            self._scalars[number] = name
            return name
        return text

    def _scalar_name(self, number: int) -> str:
        """A name for what several groups compute: without a loop they share a scope."""
        if self._register == "0":
            return self.out.value_name(number)
        return self.out.names[number]

    def _reads_often(self, number: int) -> bool:
        return len(self.facts.users[number]) > 1 or any(
            self.facts.block.nodes[u].op == "square" for u in self.facts.users[number]
        )

    def _position_value(self, number: int) -> str:
        out, facts = self.out, self.facts
        node = facts.block.nodes[number]
        names = out.positions({self._register: self._layout})
        if node.op == "mask":
            assert isinstance(node.attr, Predicate)
            text = predicate_text(node.attr, names)
            if len(facts.users[number]) > 1:
                name = self._scalar_name(number)
                out.line(f"const bool {name} = {text};")
                self._scalars[number] = text = name
            return text
        assert isinstance(node.attr, IndexExpr)
        return f"(float)({index_text(node.attr, names)})"

    def expression(self, number: int) -> str:
        """The text of an elementwise node."""
        facts = self.facts
        node = facts.block.nodes[number]
        shifts = facts.shifts
        if number in shifts.exponents:
            source, shift = shifts.exponents[number]
            argument = shifts.exponent(source, lambda n: atom(self.operand(n)))
            return f"exp2_fast({argument} - {self.operand(shift)})"
        if node.op == "shift":
            if number in shifts.shifts:
                return shifts.scaled(node.args[0], atom(self.operand(node.args[0])))
            return self.operand(node.args[0])
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
        text = self.operand(source)
        to, have = self.facts.dtypes[number], self.facts.dtypes[source]
        if to == BOOL:
            return text if have == BOOL else f"{atom(text)} != 0.0f"
        return f"{atom(text)} ? 1.0f : 0.0f" if have == BOOL else text
