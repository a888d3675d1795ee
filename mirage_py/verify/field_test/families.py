"""The field test for many families of one program.

Families over a split program share the comparison of the two programs, which costs more than the
test of a family: it is done once for each split program.
"""

from __future__ import annotations

from mirage_py.errors import VerificationError
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.field_test.field_test import FieldEvidence, broken_rule, field_test
from mirage_py.verify.field_test.programs import Comparison, compare_programs
from mirage_py.verify.sizes.flat_axes import with_flat_axes

# Elements of each output that are compared at the real sizes.
_SAMPLES = 2


class FamilyTests:
    """Tests families of ``program``, each with ``trials`` trials.

    Without ``real_sizes`` a split program that agrees with ``program`` at small sizes is not
    compared at the real ones, which takes seconds for each of a large program: that is left to
    ``require_program``, for the program of what is chosen in the end.
    """

    def __init__(
        self, program: Program, *, trials: int, seed: int, real_sizes: bool = True
    ) -> None:
        self._program = program
        self._trials = trials
        self._seed = seed
        self._real_sizes = real_sizes
        self._known: dict[tuple[str, str], Comparison] = {}

    def run(self, family: UGraph) -> FieldEvidence:
        """The evidence for one family. Raises UnsupportedError as ``field_test`` does."""
        # An index beyond its axis may lie within a longer one: what is refused is not changed.
        program = self._program
        if broken_rule(family) is None:
            program, family = with_flat_axes(program, family)
        between = None
        if family.program.dims != program.dims:
            between = self._between(program, family.program)
        return field_test(program, family, trials=self._trials, seed=self._seed, between=between)

    def require_program(self, other: Program) -> None:
        """Raises VerificationError where the program of a family is not the one that is tested."""
        if other.dims == self._program.dims:
            return
        program, alone = with_flat_axes(self._program, UGraph(other, ()))
        found = self._between(program, alone.program)
        if not found.equal:
            raise VerificationError(
                "the µGraph's program is not the program",
                where=str(found.difference or ""),
                why=found.reason or "they differ over a finite field on random inputs",
                repair="look at sizes of split dimensions, and constants that stand for sizes",
            )

    def _between(self, program: Program, other: Program) -> Comparison:
        key = program.digest, other.digest
        if key not in self._known:
            self._known[key] = compare_programs(
                program,
                other,
                trials=self._trials,
                samples=_SAMPLES,
                seed=self._seed,
                real_sizes=self._real_sizes,
            )
        return self._known[key]
