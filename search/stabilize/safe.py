"""Selection of the families that may be ranked, in their numerically safe forms.

Stabilising a family is quick; evaluating it in float32 to see what rounding spoils is not, so that
is done for the families that somebody asks about (``SafetyScreen.passes``).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mirage_py.codegen.lowering.lowering import with_factors_as_emitted
from mirage_py.search.extract.family import Family
from mirage_py.search.stabilize.epilogue_hoisting import with_hoisted_epilogues
from mirage_py.search.stabilize.normalised_partials import with_normalised_partials
from mirage_py.search.stabilize.stabilize import Stabilized, stabilized
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.rounding.float_screen import FloatScreen

# Families that may pass from when it is late on, and when it is over, and seconds of evaluating
# them: some hundredths each, of a program that is not large. Which of them are fast is not known
# before, so they are of several structures.
_LATE, _OVER = (24, 0.5), (8, 0.2)
# The outputs of a piece of a program, by which it is known.
_Piece = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SafeFamilies:
    """``ugraphs`` overflow nowhere that the program does not and are as accurate, each once, in the
    order of what they come from; those with normalised partial results come last. ``faults`` has
    for each family that is left out why. ``origins`` has for each µGraph the family that it was
    made of, ``unsafe`` those that are left out.
    """

    ugraphs: tuple[UGraph, ...]
    faults: tuple[str, ...]
    origins: tuple[UGraph, ...]
    unsafe: tuple[UGraph, ...]


class SafetyScreen:
    """Stabilises families, and says which of them rounding does not spoil, when asked.

    Once it is ``late`` the answer is no, for all that was not evaluated by then; but for some that
    are asked about first, or when it is ``over`` a few, where that takes little time: so many of
    each piece of a program, of which none can do without the others.
    """

    def __init__(
        self, late: Callable[[], bool] = lambda: False, over: Callable[[], bool] = lambda: False
    ) -> None:
        self._late = late
        self._over = over
        self._screen = FloatScreen()
        self._given: list[tuple[UGraph, Stabilized]] = []
        # By a family's digest: itself, what it comes from, and what is evaluated in its place.
        self._stable: dict[str, tuple[UGraph, UGraph, UGraph]] = {}
        self._faults: dict[str, str] = {}
        # Evaluations that began when it was late: seconds, and how many passed, by piece.
        self._late_s: defaultdict[_Piece, float] = defaultdict(float)
        self._late_passed: Counter[_Piece] = Counter()
        self._passed: Counter[_Piece] = Counter()

    def stable(self, families: Iterable[Family]) -> tuple[UGraph, ...]:
        """The families stabilised, with epilogues hoisted, each once; those with normalised partial
        results come last. Left out is what may overflow.
        """
        given: list[tuple[UGraph, Stabilized]] = []
        for family in families:
            if self._late() and not all(s.faults for _, s in given):
                break
            given.append((family.ugraph, stabilized(family.ugraph)))
        self._given += given
        shifted = [(origin, s.ugraph) for origin, s in given if not s.faults]
        averaged = [(o, u, n) for o, u in shifted if (n := with_normalised_partials(u)) is not None]
        found: dict[str, UGraph] = {}
        for origin, source, form in (*((o, u, u) for o, u in shifted), *averaged):
            ugraph = with_hoisted_epilogues(form)
            found.setdefault(ugraph.digest, ugraph)
            self._stable.setdefault(ugraph.digest, (ugraph, origin, source))
        return tuple(found.values())

    def passes(self, ugraph: UGraph) -> bool:
        """Whether rounding does not spoil the kernels that would be emitted for it."""
        _, _, source = self._stable.get(ugraph.digest, (ugraph, ugraph, ugraph))
        if source.digest not in self._faults:
            is_late = self._over() or self._late()
            piece = tuple(o.tensor.name for o in source.program.outputs)
            if is_late and self._has_enough(piece):
                return False
            begun = time.monotonic()
            found = self._screen.fault(with_factors_as_emitted(source))
            self._faults[source.digest] = found
            self._passed[piece] += not found
            if is_late:
                self._late_s[piece] += time.monotonic() - begun
                self._late_passed[piece] += not found
        return not self._faults[source.digest]

    def _has_enough(self, piece: _Piece) -> bool:
        most, most_s = _OVER if self._over() else _LATE
        is_enough = self._late_passed[piece] >= most or self._late_s[piece] >= most_s
        return is_enough and self._passed[piece] > 0

    def found(self) -> SafeFamilies:
        """What came of the given families; those that nobody asked about are taken for safe."""
        rows = [
            (origin, s.faults[0] if s.faults else self._faults.get(s.ugraph.digest, ""))
            for origin, s in self._given
        ]
        kept = [row for row in self._stable.values() if not self._faults.get(row[2].digest)]
        return SafeFamilies(
            tuple(ugraph for ugraph, _, _ in kept),
            tuple(fault for _, fault in rows if fault),
            tuple(origin for _, origin, _ in kept),
            tuple(origin for origin, fault in rows if fault),
        )
