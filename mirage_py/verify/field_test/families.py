"""The field test for many families of one program.

Families over a split program share the comparison of the two programs, which costs more than the
test of a family: it is done once for each split program.
"""

from __future__ import annotations

from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.field_test.field_test import FieldEvidence, field_test
from mirage_py.verify.field_test.programs import Comparison, compare_programs

# Elements of each output that are compared at the real sizes.
_SAMPLES = 2


class FamilyTests:
    """Tests families of ``program``, each with ``trials`` trials."""

    def __init__(self, program: Program, *, trials: int, seed: int) -> None:
        self._program = program
        self._trials = trials
        self._seed = seed
        self._known: dict[str, Comparison] = {}

    def run(self, family: UGraph) -> FieldEvidence:
        """The evidence for one family. Raises UnsupportedError as ``field_test`` does."""
        between = None
        if family.program.dims != self._program.dims:
            between = self._between(family.program)
        return field_test(
            self._program, family, trials=self._trials, seed=self._seed, between=between
        )

    def _between(self, other: Program) -> Comparison:
        if other.digest not in self._known:
            self._known[other.digest] = compare_programs(
                self._program, other, trials=self._trials, samples=_SAMPLES, seed=self._seed
            )
        return self._known[other.digest]
