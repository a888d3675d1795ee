"""Rescaled sums: the factors by which changes of running maxima multiply them.

With the launch option ``rescaling lazy`` a running maximum that only shifts exponents is kept until
a value exceeds it by more than 2^8, and sums are multiplied only where a maximum of the warp has
moved: hardly ever after the first tiles. The kernels of FlashAttention-4 (2025) do the same.
Exponentials are then at most 2^8, which halves hold as precisely as 1. With ``optimistic`` the
maximum is not even computed before a thread's sum of exponentials is large (``optimistic.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Layout
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission, Key
from mirage_py.ugraph.ir.dtypes import BOOL, F32
from mirage_py.ugraph.ir.launch_choices import OverlapMode, RescalingMode

# Types that hold less than this notice 2^8.
_WIDE = 1e30

# How far positions may be above a lazy maximum, as exponents of 2 and of e.
_SLACK_BASE_TWO, _SLACK = 8.0, 5.5
# Sums of a thread from which on it is cheaper to ask whether they change.
_WORDS_WORTH_A_VOTE = 8
ONE = Layout((), (None,) * LANE_BITS, ())

# How far above its positions an optimistic maximum is put, in the same two units. Where it is 2^8
# above, what a float16 has left for small parts does not pass the float gate (causal attention).
_HEADROOM_BASE_TWO, _HEADROOM = 4.0, 2.75

# Gives a node's value in a layout.
Need = Callable[[Key, Layout], Value]


class Rescaling:
    """Writes factors, and multiplies sums by them."""

    def __init__(self, emission: Emission, need: Need) -> None:
        self.out = emission
        self.facts = emission.facts
        self.need = need
        # Running maxima that are found only where they have to be.
        self.guessed: set[int] = set()

    def factors(self, number: int) -> list[tuple[str, int, int]]:
        """The factors of a rescaled sum: running maxima and their degrees."""
        node = self.facts.block.nodes[number]
        pairs = zip(node.args[1:], node.degrees, strict=True)
        return [("scale", peak, degree) for peak, degree in pairs]

    def degrees(self, peak: int) -> list[int]:
        """The degrees in which sums are rescaled by a running maximum."""
        found: dict[int, None] = {}
        for user in self.facts.users[peak]:
            if self.facts.block.nodes[user].op == "accum_rescaled":
                found.update((d, None) for _, p, d in self.factors(user) if p == peak)
        return list(found)

    def rescale(self, number: int, only: Sequence[int] | None = None) -> None:
        """Multiply a rescaled sum by what its running maxima have changed by; of these, by ``only``
        some.
        """
        out = self.out
        (state, *_) = out.held(number)
        scales = [
            self.need(key, state.layout.of_dims(self.facts.live(key[1])))
            for key in self.factors(number)
            if only is None or key[1] in only
        ]
        if not scales:
            return
        condition = self._change(number, state, scales) if only is None else ""
        with out.only(condition), out.unrolled("r", state.words) as r:
            factors = " * ".join(s.read_by(state.layout, r) for s in scales)
            out.line(f"{state.word(r)} *= {factors};")

    def _change(self, number: int, state: Value, scales: Sequence[Value]) -> str:
        """C condition that a factor of the warp is not 1; empty where that is not known, or costs
        more than it saves.
        """
        names: dict[str, None] = {}
        for _, peak, _ in self.factors(number):
            if peak in self.guessed and self.out.held(("rises", peak, 0)):
                return self.out.held(("rises", peak, 0))[0].name
        if state.words < _WORDS_WORTH_A_VOTE:
            return ""
        for (_, peak, _), scale in zip(self.factors(number), scales, strict=True):
            rises, (value, *_) = self.out.held(("rises", peak, 0)), self.out.held(peak)
            if not rises or scale.layout != value.layout:
                return ""
            names[rises[0].name] = None
        return f"__any_sync(0xffffffffu, {' || '.join(names)})"

    # -- lazy maxima -----------------------------------------------------------------------------

    def is_lazy(self, peak: int) -> bool:
        """Whether a running maximum may stay behind what it is the maximum of."""
        return self.out.options.rescaling is RescalingMode.LAZY and self._may_be_low(peak)

    def is_optimistic(self, peak: int) -> bool:
        """Whether exponentials may be taken before their running maximum is known. Not where sums
        are rescaled an iteration later (``overlap across``): by then factors are gone.
        """
        options = self.out.options
        is_asked = options.rescaling is RescalingMode.OPTIMISTIC
        is_asked &= options.overlap is not OverlapMode.ACROSS
        return is_asked and self._may_be_low(peak)

    def _may_be_low(self, peak: int) -> bool:
        is_shift = self.facts.block.nodes[peak].attr == "shift"
        return is_shift and self.degrees(peak) == [1] and has_room(self.facts, peak)

    def declare_rise(self, peak: int) -> None:
        """A variable that says whether a lazy maximum moves in this iteration."""
        held = self.out.held(("rises", peak, 0))
        if held:
            self.out.line(f"{held[0].name} = false;")
            return
        value = Value(self.out.fresh(f"{self.out.names[peak]}_rises"), ONE, BOOL)
        self.out.line(value.declaration("false"))
        self.out.hold(("rises", peak, 0), value)

    def raise_lazily(self, peak: int, word: str, top: str) -> None:
        """The running maximum ``word`` and a position ``top`` that may be far above it."""
        slack = _SLACK_BASE_TWO if peak in self.facts.shifts.shifts else _SLACK
        name = f"{self.out.names[peak]}_top"
        self.out.line(f"const float {name} = {top};")
        with self.out.indented(f"if ({name} > {word} + {slack}f)"):
            self.out.line(f"{word} = {name};")
            self.out.line(f"{self.out.held(('rises', peak, 0))[0].name} = true;")

    def raised(self, peak: int, top: str) -> str:
        """What a running maximum becomes at least, for a position ``top``."""
        if peak not in self.guessed:
            return top
        room = _HEADROOM_BASE_TWO if peak in self.facts.shifts.shifts else _HEADROOM
        return f"{top} + {room}f"

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


def has_room(facts: BlockAnalysis, peak: int) -> bool:
    """Whether no narrow type holds anything else of its exponentials than these, as they are or
    masked, and what has been divided by their sum.

    With a maximum that lags behind, exponentials are at most 2^8, not 1. Float32 and bfloat16 have
    room for that. Float16 holds the exponentials too, but not always their product with another
    number, nor a sum of them before it is divided.
    """
    nodes, dtypes = facts.block.nodes, facts.dtypes
    # In which power the factor is in a value, and which values are exponentials.
    powers: dict[int, int] = {}
    plain: set[int] = set()
    for number, node in enumerate(nodes):
        have = [powers.get(a, 0) for a in node.args]
        if node.op == "exp" and peak in nodes[node.args[0]].args:
            is_shifted = nodes[node.args[0]].args[0] != peak
            powers[number] = 1 if is_shifted else -1  # exp(peak - y) takes the factor out again
            if is_shifted:
                plain.add(number)
            continue
        if not any(have):
            continue
        if node.op in ("mul", "matmul"):
            powers[number] = sum(have)
        elif node.op == "div":
            powers[number] = have[0] - have[1]
        elif node.op == "reciprocal_no_nan":
            powers[number] = -have[0]
        else:
            powers[number] = max(have)
        masked = node.op in ("mul", "where") and any(dtypes[a] == BOOL for a in node.args)
        if (masked or node.op == "cast") and plain.intersection(node.args):
            plain.add(number)
        is_narrow = dtypes[number].is_float and dtypes[number].max_finite < _WIDE
        if is_narrow and powers[number] > 0 and number not in plain:
            return False
    return True
