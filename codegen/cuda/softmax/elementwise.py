"""Thread graphs: elementwise nodes of one layout, fused into one loop over registers.

Intermediate values are scalars of the loop; what is read later goes to registers. Sums and maxima
along a thread's own registers, and accumulators, end a chain inside the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.codegen.cuda.analysis.codes import CodeOrder, Codes, codes_of, is_power
from mirage_py.codegen.cuda.exchange.partial_results import combined
from mirage_py.codegen.cuda.layout.code_operands import as_stored
from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition
from mirage_py.codegen.cuda.plan.promotion import Promotion
from mirage_py.codegen.cuda.softmax.rescaling import Need, Rescaling
from mirage_py.codegen.cuda.text.c_text import float_text
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.text.value import Value, register_type
from mirage_py.codegen.cuda.writer.emission import Emission, Key
from mirage_py.codegen.cuda.writer.scalar_text import ScalarEmitter
from mirage_py.codegen.lowering.base_two_shifts import is_shift
from mirage_py.codegen.text.operator_text import atom
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.dtypes import BF16, F32
from mirage_py.ugraph.ir.node import REDUCING

# Codes, their order, the bytes in registers, and what they are multiplied by there.
_Coded = tuple[Codes, CodeOrder, Value, Value | None]


class ThreadGraphs:
    """Writes groups of nodes as loops."""

    def __init__(self, emission: Emission, need: Need) -> None:
        self.out = emission
        self.facts = emission.facts
        self.need = need
        self.text = ScalarEmitter(emission)
        self.rescaling = Rescaling(emission, need)
        # Products of halves of the group that is being written, and their operands.
        self._pairs: dict[int, tuple[Value, ...]] = {}
        # Registers that take what the group adds to accumulators, instead of these.
        self._sums: Mapping[int, Value] = {}
        # Nodes whose values go, as floats that are not rounded yet, to registers that others have.
        self.given: dict[int, Value] = {}

    def loop_layout(self, number: int) -> Layout:
        """Over which registers the text of a node goes."""
        layouts = self.out.layouts
        return layouts.loops.get(number, layouts.own[number])

    # -- a group ---------------------------------------------------------------------------------

    def write(
        self,
        group: Sequence[int],
        kept: Sequence[int],
        given: Mapping[int, Value] | None = None,
        sums: Mapping[int, Value] | None = None,
    ) -> dict[int, Value]:
        """The nodes of a group, all over the same registers; ``kept`` are those that are read
        after it. What reductions give is in parts yet. ``given``: registers for what is kept that
        are declared already; ``sums``: those that take what is added to accumulators.
        """
        out = self.out
        self._sums = sums or {}
        self.text.begin(self.loop_layout(group[0]))
        for number in group:
            self._prepare(number, group)
        made = dict(given or {}) or self.declared(group, kept)
        self.text.arrays = {n: v for n, v in made.items() if not self._reduces(n)}
        self._pairs = {n: t for n in self.text.arrays if (t := self._pair_product(n, group))}
        halves = [v for n, v in self.text.arrays.items() if v.is_packed and n not in self._pairs]
        are_packed = halves or self._pairs
        if len(halves) == len(self.text.arrays) > 0 and self._write_codes(group):
            return made
        count = self.text.layout.register_count
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
                        self.text.register = j
                    else:
                        out.line(f"const int r = 2 * {i} + {j};")
                        self.text.register = "r"
                    self._lines(group, made)
                for value in halves:
                    pair = f"{value.name}_pair"
                    packed = f"pack_{value.dtype.name}({pair}[0], {pair}[1])"
                    out.line(f"{value.word(i)} = {packed};")
        else:
            with out.unrolled("r", count) as r:
                self.text.register = r
                self._lines(group, made)
        return made

    def begin(self, group: Sequence[int], given: Mapping[Key, Value]) -> None:
        """What a group reads is brought into its layout, but for what is ``given``."""
        self._sums = {}
        self.text.begin(self.loop_layout(group[0]))
        self.text.outside.update(given)
        for number in group:
            self._prepare(number, group)

    def write_slice(self, promotion: Promotion, number: int) -> None:
        """The group of a promotion, which was begun, over the registers of a slice."""
        count = promotion.layout.register_count
        first = number * count
        with self.out.unrolled("i" if first else "r", count) as r:
            if first:
                self.out.line(f"const int r = {first} + {r};")
            self.text.register = "r"
            self._lines(promotion.group, {})

    def _write_codes(self, group: Sequence[int]) -> bool:
        """A group that only makes halves that are codes of bytes in registers, four bytes at a
        time.
        """
        if any(self._is_state(n) or self._reduces(n) for n in group):
            return False
        found = {n: self._codes(n) for n in self.text.arrays}
        for number, coded in found.items():
            if coded is None:
                return False
            self._write_code(self.text.arrays[number], coded, self._read_by(number))
        return True

    def _codes(self, number: int) -> _Coded | None:
        """What the codes of a value are made of; None where they are none."""
        found, layout = codes_of(self.facts, number), self.text.layout
        order = None if found is None else found.order(layout.registers)
        if found is None or order is None:
            return None
        plan = self._read_by(number)
        is_left_out = plan is not None and 0 <= plan.factor == found.factor
        factor = None if is_left_out else self._factor(found, self.text.arrays[number])
        if found.factor >= 0 and factor is None and not is_left_out:
            return None
        stored = as_stored(self.facts, found.load, layout)
        held = self.need(found.load, stored)
        if not held.is_packed or held.layout != stored:
            return None
        return found, order, held, factor

    def _read_by(self, number: int) -> MmaPartition | None:
        """The matmul that a value is an operand of."""
        mmas = self.out.layouts.mmas.values()
        return next((m for m in mmas if number in map(self.facts.root, (m.left, m.right))), None)

    def _write_code(self, made: Value, coded: _Coded, plan: MmaPartition | None) -> None:
        out, (found, order, held, factor) = self.out, coded
        has_excess = plan is not None and plan.excess > 0.0
        way = "codes"
        if has_excess:
            way = "excess" if order is CodeOrder.BYTE else "excess_apart"
        per_word, name = made.words // held.words, f"{way}_{found.kind}_{made.dtype.name}"
        subtracts = found.kind == "u4" and not has_excess
        zero = f", {found.zero_word(made.dtype)}" if subtracts else ""
        with out.unrolled("i", held.words) as i:
            place = made.word(f"{per_word} * {i}" if i != "0" else "0")
            out.line(f"{name}(&{place}, {held.word(i)}{zero});")
            if found.high_first:
                out.line(f"high_codes_first(&{place});")
            if factor is not None:
                first = "0" if i == "0" else f"({i} << {found.word_bits})"
                by = factor.read_by(self.text.layout, first)
                out.line(f"scale_{made.dtype.name}<{per_word}>(&{place}, {by});")

    def _factor(self, codes: Codes, made: Value) -> Value | None:
        """What codes are multiplied by, in registers: a number for all of four bytes."""
        facts, layout = self.facts, self.text.layout
        inside = {dim for dim, _ in layout.registers[: codes.word_bits]}
        factor = self.text.outside.get(codes.factor)
        if factor is None:
            return None
        is_exact = made.dtype == BF16 and is_power(facts, codes.factor)
        if facts.dtypes[codes.factor] != made.dtype and not is_exact:
            return None
        return None if inside & set(facts.live(codes.factor)) else factor

    def declared(self, group: Sequence[int], kept: Sequence[int]) -> dict[int, Value]:
        """Registers for the values that a group makes and others read."""
        self.text.layout = self.loop_layout(group[0])
        return {n: self._declared(n) for n in group if n in kept and not self._is_state(n)}

    def _prepare(self, number: int, group: Sequence[int]) -> None:
        """Bring what the group reads from others into its layout."""
        for argument in self.facts.inputs(number):
            if argument not in group and argument not in self.text.outside:
                self.text.outside[argument] = self._in_layout(argument, argument)
        if self.facts.block.nodes[number].op == "accum_rescaled" and number not in self._sums:
            self.rescaling.rescale(number)

    def _in_layout(self, key: Key, number: int) -> Value:
        return self.need(key, self.text.layout.of_dims(self.facts.live(number)))

    def _is_state(self, number: int) -> bool:
        return self.facts.block.nodes[number].op.startswith("accum")

    def _reduces(self, number: int) -> bool:
        return self.facts.block.nodes[number].op in REDUCING

    def _declared(self, number: int) -> Value:
        """The registers of a value that the group makes."""
        out, facts = self.out, self.facts
        if number in self.given:
            return self.given[number]
        dtype = facts.dtypes[number]
        node = facts.block.nodes[number]
        if self._reduces(number):
            layout = self.text.layout.summed_in_threads(node.reduced)
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
        if any(a in group or a not in self.text.outside for a in node.args):
            return ()
        values = tuple(self.text.outside[a] for a in node.args)
        first = self.text.layout.registers[:1]
        are_pairs = all(v.is_packed and v.layout.registers[:1] == first for v in values)
        return values if are_pairs and self.text.arrays[number].is_packed else ()

    def _write_pair(self, number: int, values: Sequence[Value], i: str) -> None:
        """A product of halves, two at a time: rounded as the product of floats would be."""
        register = "0" if i == "0" else f"({i} << 1)"
        words = []
        for value in values:
            if value.layout.registers == self.text.layout.registers:
                words.append(value.word(i))
                continue
            place = value.place_for(self.text.layout, register)
            words.append(value.word(place if place.isdigit() else f"({place}) >> 1"))
        made = self.text.arrays[number]
        self.out.line(f"{made.word(i)} = mul_{made.dtype.name}x2({', '.join(words)});")

    # -- one node --------------------------------------------------------------------------------

    def _lines(self, group: Sequence[int], made: dict[int, Value]) -> None:
        self.text.scalars = {}
        for number in group:
            if number in self._pairs:
                self.text.scalars[number] = self.text.arrays[number].read_by(
                    self.text.layout, self.text.register
                )
            elif self._is_state(number):
                self._update(number)
            elif self._reduces(number):
                self._reduce(number, made[number])
            else:
                text = self.text.expression(number)
                self._assign(number, self.text.zero_outside(number, text, self._summed(number)))

    def _summed(self, number: int) -> tuple[str, ...]:
        """Dimensions over which products on tensor cores sum what they read of a value."""
        facts, products = self.facts, self.out.layouts.mmas
        readers = (p for p in products if number in map(facts.root, facts.block.nodes[p].args))
        return tuple(dict.fromkeys(d for p in readers for d in facts.block.nodes[p].reduced))

    def _assign(self, number: int, text: str) -> None:
        facts = self.facts
        dtype = facts.dtypes[number]
        is_read = any(self._reads(u, number) for u in range(len(facts.block.nodes)))
        value = self.text.arrays.get(number)
        plan = None if value is None else self._read_by(number)
        if plan is not None and (plan.excess or plan.factor >= 0):
            raise ScheduleError(
                f"%{number} is made of codes one by one",
                where=facts.block.name,
                why="sums take off what codes made four bytes at a time are too much",
                repair="leave out the launch option codes",
            )
        name = f"{self.out.names[number]}"
        if value is not None and value.is_packed:
            self.out.line(f"{name}_pair[j] = {text};")
            self.text.scalars[number] = f"{name}_pair[j]"
        elif value is not None:
            word = value.word(value.place_for(self.text.layout, self.text.register))
            kind = "" if value.layout.registers else f"const {value.c_type} "
            rounded = text if number in self.given else self.text.rounded(number, text)
            self.out.line(f"{kind}{word} = {rounded};")
            self.text.scalars[number] = word
        elif is_read:
            kind = register_type(dtype)
            self.out.line(f"const {kind} {name} = {self.text.rounded(number, text)};")
            self.text.scalars[number] = name

    def _reads(self, user: int, number: int) -> bool:
        return number in self.facts.block.nodes[user].args

    def _update(self, number: int) -> None:
        """An accumulator takes what this register has."""
        facts, out = self.facts, self.out
        node = facts.block.nodes[number]
        (state, *_) = out.held(number)
        state = self._sums.get(number, state)
        word = state.word(state.place_for(self.text.layout, self.text.register))
        if node.op == "accum_max":
            self._new_peak(number, word)
            return
        if number in facts.deferred_by:
            total = facts.block.nodes[facts.deferred_by[number]]
            text = self.text.masked(total.args[0], total.reduced, "0.0f")
        else:
            text = self.text.operand(node.args[0])
        out.line(f"{word} += {atom(text) if ' ? ' in text else text};")

    def _new_peak(self, number: int, word: str) -> None:
        facts, out = self.facts, self.out
        node = facts.block.nodes[number]
        top = self.text.operand(node.args[0])
        in_base_two = number in facts.shifts.shifts
        if in_base_two:
            top = facts.shifts.scaled(node.args[0], atom(top))
        larger = "fmaxf" if node.attr == "shift" else "max_nan"
        degrees = self.rescaling.degrees(number)
        if not degrees:
            out.line(f"{word} = {larger}({word}, {top});")
            return
        old = f"{out.names[number]}_old"
        out.line(f"const float {old} = {word};")
        if self.rescaling.is_lazy(number):
            self.rescaling.raise_lazily(number, word, top)
        else:
            out.line(f"{word} = {larger}({word}, {self.rescaling.raised(number, top)});")
        power = "exp2_fast" if in_base_two else "exp_fast"
        for degree in degrees:
            scale = self._outside_scale(number, degree)
            place = scale.word(scale.place_for(self.text.layout, self.text.register))
            difference = f"{old} - {word}"
            if degree != 1:
                difference = f"({difference}) * {float(degree)}f"
            out.line(f"{place} = {power}({difference});")

    def _outside_scale(self, number: int, degree: int) -> Value:
        (scale, *_) = self.out.held(("scale", number, degree))
        return scale

    def _reduce(self, number: int, value: Value) -> None:
        node = self.facts.block.nodes[number]
        word = value.word(value.place_for(self.text.layout, self.text.register))
        if node.op == "matmul":
            factors = [atom(self.text.masked(a, node.reduced, "0.0f")) for a in node.args]
            self.out.line(f"{word} += {' * '.join(factors)};")
            return
        op = self.reduction(number)
        neutral = "0.0f" if op == "sum" else float_text(float("-inf"))
        text = self.text.masked(node.args[0], node.reduced, neutral)
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
