"""The field test at the real sizes: some blocks of the µGraph against that part of the program.

The small sizes show that the algebra is right; this shows that the instance is: its tiles, its
tails, its offsets, the constants that stand for sizes. The blocks are the first, the last and
random ones, and those with points of the pieces that conditions divide the outputs into (see
``pieces``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mirage_py.errors import UnsupportedError, ValidationError, VerificationError
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.evaluate.difference import Mismatch, first_difference
from mirage_py.verify.evaluate.lazy_inputs import LazyMeaning, lazy_inputs
from mirage_py.verify.evaluate.trial import ORDERED, defined, redrawn
from mirage_py.verify.pieces.block_pieces import BlockPiece, block_pieces
from mirage_py.verify.samples.block_samples import (
    LAID_OUT,
    Sample,
    holding,
    numbered,
    sample_of,
    too_large,
    work_of,
)
from mirage_py.verify.samples.sampled_blocks import run_blocks
from mirage_py.verify.shifts.shift_free import without_infinities
from mirage_py.verify.shifts.shift_laws import Shifted, ShiftLaws, needs_shift_laws

# Element operations for the samples of one kernel; some ten seconds.
MAX_SAMPLE_WORK = 3e8
# Of each block that is there for a piece; an order of the field hides differences.
_TRIALS = 2
_ORDERED_TRIALS = 4
_NAMED = 3


@dataclass(frozen=True, slots=True)
class SampleEvidence:
    """``samples`` windows with ``elements`` elements of the outputs were compared, and beside them
    windows in ``pieces`` pieces.

    ``skipped`` says why others were not; empty if all were.
    """

    equal: bool
    samples: int
    elements: int
    skipped: str = ""
    mismatch: Mismatch | None = None
    pieces: int = 0

    def require(self) -> SampleEvidence:
        """This evidence, or VerificationError if the two differ."""
        if not self.equal:
            raise VerificationError(
                "the µGraph does not compute the program at its real sizes",
                where=str(self.mismatch),
                why="they differ over a finite field on random inputs",
                repair="look at tails of tiles, offsets, and constants that stand for sizes",
            )
        return self


def sampled_test(
    program: Program,
    ugraph: UGraph,
    *,
    samples: int = 3,
    seed: int,
    max_work: float = MAX_SAMPLE_WORK,
) -> SampleEvidence:
    """Compare ``samples`` blocks of every kernel that writes outputs: first, last, then random
    ones.

    ``ugraph`` is an instance. The first block of each kernel is skipped where it would take more
    than ``max_work`` element operations, the others where all together would, and the evidence says
    so.
    """
    if program.dims != ugraph.program.dims:
        program = ugraph.program
    program, ugraph = without_infinities(program, seed=seed), ugraph.in_blocks
    draw = np.random.default_rng([seed, samples])
    blocks = _Blocks(program, ugraph, seed)
    skipped: dict[str, None] = {}
    done = pieces = 0
    spent = 0.0
    for target in range(len(ugraph.kernels)):
        for number in range(samples):
            sample = sample_of(program, ugraph, target, numbered(number, draw))
            if sample is None:
                break
            left = max_work - spent if number else max_work
            fault = too_large(ugraph, sample, left) or blocks.compare(sample, number)
            spent += work_of(ugraph, sample)
            if fault:
                skipped[fault] = None
                break
            done += 1
            if blocks.mismatch is not None:
                return SampleEvidence(
                    False, done, blocks.elements, "; ".join(skipped), blocks.mismatch
                )
    found, unknown = block_pieces(program, ugraph, seed=seed)
    skipped |= dict.fromkeys(unknown)
    missed: dict[str, None] = {}
    for piece in found:
        fault = blocks.compare_piece(piece, max_work, draw)
        if blocks.mismatch is not None:
            return SampleEvidence(
                False, done, blocks.elements, "; ".join(skipped), blocks.mismatch, pieces
            )
        pieces += not fault
        if fault:
            missed[f"{piece.name}: {fault}"] = None
    skipped |= dict.fromkeys(list(missed)[:_NAMED])
    if len(missed) > _NAMED:
        skipped[f"{len(missed) - _NAMED} more pieces"] = None
    return SampleEvidence(True, done, blocks.elements, "; ".join(skipped), None, pieces)


class _Blocks:
    """Compares samples, and keeps what was found."""

    def __init__(self, program: Program, ugraph: UGraph, seed: int) -> None:
        self._program = program
        self._ugraph = ugraph
        self._seed = seed
        ordered = any(n.op in ORDERED for n in program.nodes)
        self._trials = _ORDERED_TRIALS if ordered else _TRIALS
        self._spent = 0.0
        self._seen: dict[str, None] = {}
        self.elements = 0
        self.mismatch: Mismatch | None = None

    def compare(self, sample: Sample, number: int) -> str:
        """One trial; why it could not be made, if so."""
        field = FIELDS[number % len(FIELDS)]
        comparison = _Comparison(self._ugraph, sample)
        try:
            count, self.mismatch = redrawn(self._program, field, self._seed + number, comparison)
        except MemoryError:
            return LAID_OUT
        except UnsupportedError as error:
            return error.what
        self.elements += count
        return ""

    def compare_piece(self, piece: BlockPiece, max_work: float, draw: np.random.Generator) -> str:
        """The blocks that hold the points of a piece; why none of them was compared, if so."""
        fault, compared = "", False
        for target, kernel in enumerate(self._ugraph.kernels):
            written = (
                [kernel.result]
                if not isinstance(kernel, BlockGraph)
                else [n.access.tensor for _, n in kernel.stores()]
            )
            for point in piece.points if piece.output in written else ():
                sample = sample_of(self._program, self._ugraph, target, holding(point, draw))
                if sample is None:
                    continue
                known = repr((target, {d: sample.points[d] for d in point if d in sample.points}))
                if known in self._seen:
                    compared = True
                    continue
                fault = too_large(self._ugraph, sample, max_work - self._spent)
                if fault:
                    continue
                self._spent += self._trials * work_of(self._ugraph, sample)
                for trial in range(self._trials):
                    fault = self.compare(sample, trial)
                    if fault or self.mismatch is not None:
                        break
                if self.mismatch is not None:
                    return ""
                if not fault:
                    compared = True
                    self._seen[known] = None
        return "" if compared else fault


class _Comparison:
    """One sample: the attempt that is repeated until a draw divides by no zero."""

    def __init__(self, ugraph: UGraph, sample: Sample) -> None:
        self._ugraph = ugraph
        self._sample = sample
        self._divided = False

    def __call__(self, ops: FieldOps) -> tuple[int, Mismatch | None]:
        """How many elements were compared, and the first that differs."""
        meaning = LazyMeaning(ops)
        inputs = lazy_inputs(self._ugraph.program)
        expected = defined(
            ops,
            lambda: evaluate_at(self._sample.program, inputs, meaning, self._sample.points),
            lambda samples: [s.values for s in samples.values()],
        )
        try:
            found = self._outputs(inputs, meaning)
        except ValidationError as error:
            return 0, Mismatch("", (), str(error))
        except DivisionByZero:
            # Once is chance; twice, where the program has a value, is a wrong divisor.
            if self._divided:
                return 0, Mismatch("", (), "the µGraph divides by zero where the program does not")
            self._divided = True
            raise
        count = 0
        for name, want in expected.items():
            count += want.values.size
            place = first_difference(want.values, found[name][want.elements], ops)
            if place is not None:
                return count, Mismatch(name, tuple(int(e[place]) for e in want.elements))
        return count, None

    def _outputs(
        self, inputs: Mapping[str, FieldArray], meaning: FieldMeaning
    ) -> Mapping[str, FieldArray]:
        needs = self._sample.needs
        if not needs_shift_laws(self._ugraph.program):
            return run_blocks(self._ugraph, needs, inputs, meaning)
        laws = ShiftLaws(meaning)
        found = run_blocks(self._ugraph, needs, {n: Shifted(x) for n, x in inputs.items()}, laws)
        return {
            o.tensor.name: laws.plain(found[o.tensor.name]) for o in self._sample.program.outputs
        }
