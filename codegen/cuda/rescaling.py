"""Rescaled sums: the factors by which running maxima change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirage_py.codegen.cuda.emission import Emission, Key
from mirage_py.codegen.cuda.layout import Layout
from mirage_py.codegen.cuda.value import Value
from mirage_py.ugraph.dtypes import F32

# Gives a node's value in a layout.
Need = Callable[[Key, Layout], Value]


class Rescaling:
    """Writes factors, and multiplies sums by them."""

    def __init__(self, emission: Emission, need: Need) -> None:
        self.out = emission
        self.facts = emission.facts
        self.need = need

    def factors(self, number: int) -> list[tuple[str, int, int]]:
        """The factors of a rescaled sum: running maxima and their degrees."""
        node = self.facts.block.nodes[number]
        pairs = zip(node.args[1:], node.powers, strict=True)
        return [("scale", peak, int(degree)) for peak, degree in pairs]

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
        with out.unrolled("r", state.words) as r:
            factors = " * ".join(s.read_by(state.layout, r) for s in scales)
            out.line(f"{state.word(r)} *= {factors};")

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
