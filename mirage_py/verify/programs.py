"""Whether two programs compute the same, over finite fields.

Inputs are matched by name, outputs by name or else by position; names of dimensions do not matter.
Both are evaluated at small sizes, whole, and at the real sizes, at some elements of each output.
The real sizes decide: a constant that stands for a size (a sum divided by 4096) is right at them
only.

Source: Mirage (OSDI 2025), section on probabilistic equivalence verification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.index import IndexExpr
from mirage_py.ugraph.interpret import evaluate_at, evaluate_program
from mirage_py.ugraph.meaning import FieldMeaning
from mirage_py.ugraph.program import Output, Program, Tensor
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.difference import first_difference
from mirage_py.verify.joint_sizes import joint_small_sizes
from mirage_py.verify.lazy_inputs import LazyMeaning, lazy_inputs
from mirage_py.verify.real_test import real_comparison
from mirage_py.verify.shrink import shrink
from mirage_py.verify.trial import random_inputs, redrawn
from mirage_py.verify.whole_numbers import require_whole_numbers
from mirage_py.verify.work import MAX_TRIAL_WORK, program_work

# An index that is no plain dimension is inverted by looking at all of its values.
_MAX_POINTS = 2**20
# Real-size samples that must agree when small sizes do not: by default there are fewer.
_DECIDING_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two programs differ first: the element of the left program's output.

    ``said`` is how, where the values themselves do not say it.
    """

    output: str
    element: tuple[int, ...]
    trial: int
    sizes: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``reason`` says why the programs are not equal, or in what sense they are."""

    equal: bool
    trials: int
    samples: int
    primes: tuple[int, ...]
    reason: str = ""
    difference: Difference | None = None


def compare_programs(
    left: Program, right: Program, *, trials: int = 4, samples: int = 4, seed: int = 0
) -> Comparison:
    """Compare two programs; ``samples`` counts elements of each output at real sizes.

    Raises UnsupportedError where a program has no meaning in a field, or casts to integers what is
    none.
    """
    primes = tuple(p for f in FIELDS[: max(1, min(trials, len(FIELDS)))] for p in (f.p, f.q))
    left, right = lower_masks(left), lower_masks(right)
    for program in (left, right):
        require_whole_numbers(program)
    mismatch = interface_mismatch(left, right)
    if mismatch:
        return Comparison(False, 0, 0, primes, mismatch)
    pair = _Pair(left, right)
    done, small = pair.first_small_difference(trials, seed)
    if done and small is None:
        # Numbers, not sizes: no constant is an excuse for these.
        wrong = pair.real_difference(seed)
        if wrong is not None:
            return Comparison(False, done, 0, primes, wrong.said, wrong)
    taken, full = pair.first_sampled_difference(_DECIDING_SAMPLES if small else samples, seed)
    if not done and not taken:
        raise UnsupportedError(
            "the programs are too large to compare",
            where=left.name,
            why="their sizes cannot shrink, and at full size they do not fit",
            repair="compare them at smaller sizes",
        )
    if full is not None:
        return Comparison(False, done, taken, primes, difference=full)
    if small is None:
        return Comparison(True, done, taken, primes)
    if taken:
        reason = "equal at these sizes, but not at others: a constant stands for a size"
        return Comparison(True, 0, taken, primes, reason)
    return Comparison(False, done, 0, primes, difference=small)


def interface_mismatch(left: Program, right: Program) -> str:
    """How inputs or outputs differ, in words; empty when they agree."""
    ours, theirs = ({t.name: t for t in p.inputs} for p in (left, right))
    for name in ours:
        if name not in theirs:
            return f"input {name} is missing in the second, which has {', '.join(theirs)}"
    for name in theirs:
        if name not in ours:
            return f"input {name} is missing in the first, which has {', '.join(ours)}"
    if len(left.outputs) != len(right.outputs):
        return f"{len(left.outputs)} outputs in the first, {len(right.outputs)} in the second"
    pairs = [("input", ours[name], theirs[name]) for name in ours]
    pairs += [("output", a.tensor, b.tensor) for a, b in _paired(left, right)]
    for kind, one, other in pairs:
        if _type(one) != _type(other):
            return f"{kind} {one.name} is {_type(one)} in the first, {_type(other)} in the second"
    return ""


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _paired(left: Program, right: Program) -> list[tuple[Output, Output]]:
    """Outputs by name where the names are the same, by position otherwise."""
    by_name = {o.tensor.name: o for o in right.outputs}
    if all(o.tensor.name in by_name for o in left.outputs):
        return [(o, by_name[o.tensor.name]) for o in left.outputs]
    return list(zip(left.outputs, right.outputs, strict=True))


class _Pair:
    """Two programs with equal interfaces."""

    def __init__(self, left: Program, right: Program) -> None:
        self._left = left
        self._right = right
        self._outputs = _paired(left, right)
        self._names = [(a.tensor.name, b.tensor.name) for a, b in self._outputs]

    def real_difference(self, seed: int) -> Difference | None:
        """Where they differ over the real numbers, on structured inputs at small sizes."""
        small = self._small(seed)
        found = real_comparison(*small, self._names, seed=seed).mismatch
        if found is None:
            return None
        return Difference(found.output, found.index, 0, _sizes_text(small[0]), found.reason)

    def _small(self, seed: int) -> tuple[Program, Program]:
        sizes = joint_small_sizes(self._left, self._right, self._names, seed)
        small = shrink(self._left, sizes.left), shrink(self._right, sizes.right)
        # The real sizes are the only common ones where these give tensors of other shapes.
        return (self._left, self._right) if interface_mismatch(*small) else small

    def first_small_difference(self, trials: int, seed: int) -> tuple[int, Difference | None]:
        """Evaluate both whole, at sizes drawn anew for every trial: trials done, and the first."""
        names = self._names
        for trial in range(trials):
            small = self._small(seed + trial)
            if max(map(program_work, small)) > MAX_TRIAL_WORK:
                return trial, None
            found = _whole_difference(*small, names, trial, seed)
            if found is not None:
                return trial + 1, found
        return trials, None

    def first_sampled_difference(self, count: int, seed: int) -> tuple[int, Difference | None]:
        """How many elements of each output were compared, and the first that differs."""
        taken = 0
        for number in range(count):
            draw = np.random.default_rng([seed, number])
            for one, other in self._outputs:
                element = tuple(int(draw.integers(extent)) for extent in one.tensor.shape)
                points = _point(self._left, one, element), _point(self._right, other, element)
                if points[0] is None or points[1] is None:
                    continue
                parts = replace(self._left, outputs=(one,)), replace(self._right, outputs=(other,))
                if _sample_work(parts[0], points[0]) > MAX_TRIAL_WORK:
                    continue
                taken += 1
                if not _agree_at(parts, points[0], points[1], number, seed):
                    sizes = _sizes_text(self._left)
                    return taken, Difference(one.tensor.name, element, number, sizes)
        return taken, None


def _sample_work(program: Program, point: Mapping[str, int]) -> float:
    return program_work(program, dict.fromkeys(point, 1))


def _sizes_text(program: Program) -> str:
    return ", ".join(f"{d.name} = {d.size}" for d in program.dims)


def _whole_difference(
    left: Program, right: Program, names: Sequence[tuple[str, str]], trial: int, seed: int
) -> Difference | None:
    def both(ops: FieldOps) -> Difference | None:
        inputs = random_inputs(left, ops)
        meaning = FieldMeaning(ops)
        ours = evaluate_program(left, inputs, meaning)
        theirs = evaluate_program(right, inputs, meaning)
        for one, other in names:
            element = first_difference(ours[one], theirs[other], ops)
            if element is not None:
                return Difference(one, element, trial, _sizes_text(left))
        return None

    return redrawn(left, FIELDS[trial % len(FIELDS)], seed + trial, both)


def _agree_at(
    parts: tuple[Program, Program],
    left_point: Mapping[str, int],
    right_point: Mapping[str, int],
    trial: int,
    seed: int,
) -> bool:
    """Whether both have the same value at one element of their only output."""

    def both(ops: FieldOps) -> bool:
        # One element reads a small part of the inputs.
        inputs, meaning = lazy_inputs(parts[0]), LazyMeaning(ops)
        values = []
        for program, point in zip(parts, (left_point, right_point), strict=True):
            spans = {d: (at, at + 1) for d, at in point.items()}
            (sample,) = evaluate_at(program, inputs, meaning, spans).values()
            values.append(sample.values.reshape((1,)))
        return ops.equal(*values)

    return redrawn(parts[0], FIELDS[trial % len(FIELDS)], seed + trial, both)


def _point(program: Program, output: Output, element: tuple[int, ...]) -> dict[str, int] | None:
    """The point of the output's dimensions that is written to an element; None if hard to find."""
    point: dict[str, int] = {}
    for expr, wanted in zip(output.index, element, strict=True):
        found = _solved(expr, wanted, program.sizes)
        if found is None or any(point.get(d, at) != at for d, at in found.items()):
            return None
        point.update(found)
    return point


def _solved(expr: IndexExpr, wanted: int, sizes: Mapping[str, int]) -> dict[str, int] | None:
    """A point of its dimensions at which an index expression has a value."""
    dims = expr.dims()
    shape = [sizes[d] for d in dims]
    if np.prod(shape, dtype=np.int64) > _MAX_POINTS:
        return None
    grids = np.indices(shape, sparse=True)
    values = np.broadcast_to(expr.evaluate(dict(zip(dims, grids, strict=True))), shape)
    places = np.argwhere(values == wanted)
    return None if len(places) != 1 else dict(zip(dims, map(int, places[0]), strict=True))
