"""The first tier again, at the real sizes: some blocks of the µGraph against the same part of the
program.

The small sizes show that the algebra is right; this shows that the instance is: its tiles, its
tails, its offsets, the constants that stand for sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mirage_py.errors import ValidationError, VerificationError
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.meaning import FieldMeaning
from mirage_py.ugraph.program import Output, Program
from mirage_py.ugraph.ugraph import BlockGraph, UGraph
from mirage_py.verify.difference import Mismatch, first_difference
from mirage_py.verify.lazy_inputs import LazyMeaning, lazy_inputs
from mirage_py.verify.sampled_blocks import Need, blocks_needed, run_blocks, sampled_work
from mirage_py.verify.sampled_library import Interval, Part
from mirage_py.verify.shift_free import without_infinities
from mirage_py.verify.shift_laws import Shifted, ShiftLaws, needs_shift_laws
from mirage_py.verify.trial import redrawn
from mirage_py.verify.work import peak_elements, program_work

# Element operations for one sample; some ten seconds.
MAX_SAMPLE_WORK = 3e8
# Elements of one array of 64-bit integers: 512 MiB.
_MAX_ELEMENTS = 1 << 26
# Elements of one tensor that numpy can still lay out; few pages of it are touched.
_MAX_LAID_OUT = 1 << 46
_LAID_OUT = "a sample lays out what kernels write as a whole, which is larger than the memory"
# Of what a library call writes, along each axis.
_WINDOW = 16


@dataclass(frozen=True, slots=True)
class SampleEvidence:
    """``samples`` windows with ``elements`` elements of the outputs were compared.

    ``skipped`` says why others were not; empty if all were.
    """

    equal: bool
    samples: int
    elements: int
    skipped: str = ""
    mismatch: Mismatch | None = None

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


@dataclass(frozen=True, slots=True)
class _Sample:
    """Blocks to run, the outputs that they complete, and where."""

    needs: Mapping[int, Need]
    program: Program
    points: Mapping[str, tuple[int, int]]


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

    ``ugraph`` is an instance. What would take more than ``max_work`` element operations is skipped,
    and the evidence says so.
    """
    if program.dims != ugraph.program.dims:
        program = ugraph.program
    program = without_infinities(program, seed=seed)
    draw = np.random.default_rng([seed, samples])
    done = elements = 0
    skipped = ""
    for target in range(len(ugraph.kernels)):
        for number in range(samples):
            sample = _sample(program, ugraph, target, number, draw)
            if sample is None:
                break
            skipped = _too_large(ugraph, sample, max_work)
            if skipped:
                break
            field = FIELDS[number % len(FIELDS)]
            comparison = _Comparison(ugraph, sample)
            try:
                count, mismatch = redrawn(program, field, seed + number, comparison)
            except MemoryError:
                skipped = _LAID_OUT
                break
            done, elements = done + 1, elements + count
            if mismatch is not None:
                return SampleEvidence(False, done, elements, skipped, mismatch)
    return SampleEvidence(True, done, elements, skipped)


def _sample(
    program: Program, ugraph: UGraph, target: int, number: int, draw: np.random.Generator
) -> _Sample | None:
    """Blocks of one kernel; None if it writes no output."""
    kernel = ugraph.kernels[target]
    if not isinstance(kernel, BlockGraph):
        found = _library_part(program, kernel.result, number, draw)
        if found is None:
            return None
        output, part, window = found
        return _Sample(blocks_needed(ugraph, target, part), _only(program, [output]), window)
    stores = {n.access.tensor: n for _, n in kernel.stores()}
    outputs = [o for o in program.outputs if o.tensor.name in stores]
    if not outputs:
        return None
    starts: dict[str, list[int]] = {}
    points: dict[str, tuple[int, int]] = {}
    for axis in kernel.split_axes:
        size, tile = program.sizes[axis.dim], axis.tile or 1
        written = [stores[o.tensor.name] for o in outputs]
        first_only = [axis.dim in kernel.predicated_axes(n) for n in written]
        # Blocks along an axis that does not place the results have to run together.
        if not all(
            first or _places(o, n.access.index, axis.dim)
            for o, n, first in zip(outputs, written, first_only, strict=True)
        ):
            continue
        chosen = _chosen(-(-size // tile), number, draw)
        starts[axis.dim] = sorted({chosen * tile, 0} if any(first_only) else {chosen * tile})
        points[axis.dim] = (chosen * tile, min((chosen + 1) * tile, size))
    return _Sample(blocks_needed(ugraph, target, starts), _only(program, outputs), points)


def _chosen(tiles: int, number: int, draw: np.random.Generator) -> int:
    """The first tile, the last, then any."""
    return {0: 0, 1: tiles - 1}.get(number, int(draw.integers(tiles)))


def _library_part(
    program: Program, result: str, number: int, draw: np.random.Generator
) -> tuple[Output, Part, dict[str, tuple[int, int]]] | None:
    """A window of what a library call writes, and its points; None if that is no output."""
    for output in program.outputs:
        if output.tensor.name != result:
            continue
        part: list[Interval] = []
        points: dict[str, tuple[int, int]] = {}
        for expr in output.index:
            window: Interval = None
            if expr.is_dim:
                size = program.sizes[expr.name]
                start = _chosen(-(-size // _WINDOW), number, draw) * _WINDOW
                window = points[expr.name] = (start, min(start + _WINDOW, size))
            part.append(window)
        return output, tuple(part), points
    return None


def _places(output: Output, stored: tuple[object, ...], dim: str) -> bool:
    """Whether program and kernel write the output by the same indices, and these name ``dim``."""
    return output.index == stored and any(dim in e.dims() for e in output.index)


def _only(program: Program, outputs: list[Output]) -> Program:
    return replace(program, outputs=tuple(outputs))


def _too_large(ugraph: UGraph, sample: _Sample, max_work: float) -> str:
    if any(prod(tensor.shape) > _MAX_LAID_OUT for tensor in ugraph.tensors.values()):
        return _LAID_OUT
    extents = {d: stop - start for d, (start, stop) in sample.points.items()}
    work = sampled_work(ugraph, sample.needs) + program_work(sample.program, extents)
    peak = peak_elements(sample.program, extents)
    if work <= max_work and peak <= _MAX_ELEMENTS:
        return ""
    return (
        f"a sample at the real sizes takes {work:.1e} operations (at most {max_work:.1e}) and "
        f"arrays of {peak:.1e} elements (at most {_MAX_ELEMENTS:.1e})"
    )


class _Comparison:
    """One sample: the attempt that is repeated until a draw divides by no zero."""

    def __init__(self, ugraph: UGraph, sample: _Sample) -> None:
        self._ugraph = ugraph
        self._sample = sample
        self._divided = False

    def __call__(self, ops: FieldOps) -> tuple[int, Mismatch | None]:
        """How many elements were compared, and the first that differs."""
        meaning = LazyMeaning(ops)
        inputs = lazy_inputs(self._ugraph.program)
        expected = evaluate_at(self._sample.program, inputs, meaning, self._sample.points)
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
