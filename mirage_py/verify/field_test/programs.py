"""Equivalence test of two programs over finite fields.

Inputs are matched by name, outputs by name or else by position; names of dimensions do not matter.
Both are evaluated at small sizes, completely, and at the real sizes: at random elements of each
output, and in every piece that their conditions divide it into (see ``pieces``). The real sizes
decide, if they are tested in full: a constant that stands for a size (a sum divided by 4096) is
right at them only.

Source: Mirage (OSDI 2025), section on probabilistic equivalence verification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.checks.whole_numbers import require_whole_numbers
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.evaluate.difference import first_difference
from mirage_py.verify.evaluate.trial import defined, random_inputs, redrawn
from mirage_py.verify.evaluate.work import MAX_TRIAL_WORK, program_work
from mirage_py.verify.field_test.differences import by_difference
from mirage_py.verify.intervals.real_test import may_have_draws, real_comparison
from mirage_py.verify.pieces.elements import OutputPair
from mirage_py.verify.pieces.piece_test import PieceTest, piece_test
from mirage_py.verify.sizes.flat_axes import with_flat_axes
from mirage_py.verify.sizes.joint_sizes import joint_small_sizes
from mirage_py.verify.sizes.shrink import shrink, small_places

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
    """``reason`` says why the programs are not equal, or in what sense they are.

    ``pieces`` counts the pieces of the outputs at the real sizes in which elements were compared,
    and ``skipped`` says what was not tested there: where it is not empty the programs are not
    verified in full.
    """

    equal: bool
    trials: int
    samples: int
    primes: tuple[int, ...]
    reason: str = ""
    difference: Difference | None = None
    pieces: int = 0
    skipped: tuple[str, ...] = ()


def compare_programs(
    left: Program,
    right: Program,
    *,
    trials: int = 4,
    samples: int = 4,
    seed: int = 0,
    over_reals: bool = True,
    real_sizes: bool = True,
) -> Comparison:
    """Compare two programs; ``samples`` counts elements of each output at real sizes. Without
    ``over_reals`` they are not compared over the real numbers, which whoever asks does otherwise;
    without ``real_sizes`` not at those, where they agree at small ones.

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
    pair = _Pair(left, right, over_reals=over_reals)
    found = _compared(pair, trials, samples, seed, primes, real_sizes=real_sizes)
    if found.difference is None or found.difference.said:
        return found
    one, other = by_difference(left), by_difference(right)
    if one is left or other is right:
        return found
    again = _compared(
        _Pair(one, other, written=pair, over_reals=over_reals),
        trials,
        samples,
        seed,
        primes,
        real_sizes=real_sizes,
    )
    return again if again.equal else found


def _compared(
    pair: _Pair,
    trials: int,
    samples: int,
    seed: int,
    primes: tuple[int, ...],
    *,
    real_sizes: bool,
) -> Comparison:
    left, right = pair.left, pair.right
    done, small = pair.first_small_difference(trials, seed)
    # Numbers, not sizes: no constant is an excuse for these.
    wrong = pair.real_difference(seed, small=small is None) if done and pair.over_reals else None
    if wrong is not None:
        return Comparison(False, done, 0, primes, wrong.said, wrong)
    if done and small is None and not real_sizes:
        return Comparison(True, done, 0, primes)
    tested = pair.piece_test(seed)
    full = None
    taken, skipped = 0, tested.skipped
    if tested.difference is not None:
        full = Difference(*tested.difference, _sizes_text(left))
    else:
        count = _DECIDING_SAMPLES if small else samples
        taken, full, left_out = pair.first_sampled_difference(
            count, seed, deciding=small is not None
        )
        skipped += left_out
    if not (done or taken or full):
        raise pair.fault or UnsupportedError(
            "the programs are too large to compare",
            where=left.name,
            why="their sizes cannot shrink, and at full size they do not fit",
            repair="compare them at smaller sizes",
        )
    reason = ""
    if full is None and small is not None:
        if not taken or skipped or not (_has_constants(left) or _has_constants(right)):
            full = small
        else:
            reason = "equal at these sizes, but not at others: a constant stands for a size"
    return Comparison(
        full is None, 0 if reason else done, taken, primes, reason, full, tested.pieces, skipped
    )


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


def _has_constants(program: Program) -> bool:
    """Whether anything but 0 and 1 could stand for a size: a number, or part of an index."""
    numbers = [n.attr for n in program.nodes if n.op == "const"]
    indexed = any(n.op in ("mask", "index", "size") for n in program.nodes)
    read = [e for n in program.nodes if n.op == "load" for e in n.access.index]
    written = [e for o in program.outputs for e in o.index]
    is_plain = all(e.is_dim for e in (*read, *written))
    return indexed or not is_plain or any(c not in (0.0, 1.0, -1.0) for c in numbers)


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _paired(left: Program, right: Program) -> list[tuple[Output, Output]]:
    """Outputs by name where the names are the same, by position otherwise."""
    by_name = {o.tensor.name: o for o in right.outputs}
    if all(o.tensor.name in by_name for o in left.outputs):
        return [(o, by_name[o.tensor.name]) for o in left.outputs]
    return list(zip(left.outputs, right.outputs, strict=True))


class _Pair:
    """Two programs with equal interfaces, and the same two as they were written."""

    def __init__(
        self,
        left: Program,
        right: Program,
        *,
        written: _Pair | None = None,
        over_reals: bool = True,
    ) -> None:
        self.over_reals = over_reals
        self.left = left
        self.right = right
        self._written = written
        self._outputs = _paired(left, right)
        self._names = [(a.tensor.name, b.tensor.name) for a, b in self._outputs]
        # Why a trial at small sizes had no value.
        self.fault: UnsupportedError | None = None

    def real_difference(self, seed: int, *, small: bool) -> Difference | None:
        """Where they differ over the real numbers, on structured inputs: at ``small`` sizes, and at
        their own where these are not large. A count of truths is 5 in a row of 5 or more.
        """
        if self._written is not None:
            return self._written.real_difference(seed, small=small)
        left, right = self._flat
        if left is not self.left:
            found = self._real_difference(left, right, seed, small=small)
            if found is None:
                return None
        return self._real_difference(self.left, self.right, seed, small=small)

    def _real_difference(
        self, left: Program, right: Program, seed: int, *, small: bool
    ) -> Difference | None:
        pairs = [_shrunk(left, right, self._names, seed)] if small else []
        if all(map(may_have_draws, (left, right))):
            pairs.append((left, right))
        for one, other in pairs:
            found = real_comparison(one, other, self._names, seed=seed).mismatch
            if found is not None:
                return Difference(found.output, found.index, 0, _sizes_text(one), found.reason)
        return None

    @cached_property
    def _flat(self) -> tuple[Program, Program]:
        """Both without divisions in indices, where it is so.

        What is read round the end of an axis keeps its size: over longer ones it need not. Equal
        for all of these is equal for those whose elements go round.
        """
        left, other = with_flat_axes(self.left, UGraph(self.right, ()))
        return left, other.program

    def first_small_difference(self, trials: int, seed: int) -> tuple[int, Difference | None]:
        """Evaluate both completely, at sizes drawn anew for every trial: the number of trials, and
        the first difference.

        A trial is left out if its sizes leave a row of a mask empty, so that 0 divides by it. Where
        sizes cannot be small all trials but the first share the work that one may take.
        """
        left, right = self._flat
        if left is not self.left:
            done, found = self._first_whole_difference(left, right, trials, seed)
            if done and found is None:
                return done, None
        return self._first_whole_difference(self.left, self.right, trials, seed)

    def _first_whole_difference(
        self, left: Program, right: Program, trials: int, seed: int
    ) -> tuple[int, Difference | None]:
        done, spent = 0, 0.0
        for trial in range(trials):
            small = _shrunk(left, right, self._names, seed + trial)
            work = max(map(program_work, small))
            spent += work
            if work > MAX_TRIAL_WORK or (done and spent > MAX_TRIAL_WORK):
                break
            try:
                found = _whole_difference(*small, self._names, trial, seed)
            except UnsupportedError as error:
                self.fault = error
                continue
            done += 1
            if found is not None:
                return done, found
        return done, None

    def first_sampled_difference(
        self, count: int, seed: int, *, deciding: bool
    ) -> tuple[int, Difference | None, tuple[str, ...]]:
        """How many random elements of each output were compared, the first that differs, and what
        was left out. Those that are ``deciding`` may not avoid zeros behind a guard.
        """
        taken = 0
        skipped: dict[str, None] = {}
        for one, other in self._outputs:
            pair = OutputPair(
                (self.left, one),
                (self.right, other),
                count * MAX_TRIAL_WORK,
                filled=deciding,
            )
            for number in range(count):
                draw = np.random.default_rng([seed, number])
                element = tuple(int(draw.integers(extent)) for extent in one.tensor.shape)
                found = pair.compare([element], number, seed)
                taken += not found.left_out
                for why in found.left_out.values():
                    skipped[f"elements of {one.tensor.name}: {why}"] = None
                if found.difference is not None:
                    sizes = _sizes_text(self.left)
                    where = Difference(one.tensor.name, found.difference, number, sizes)
                    return taken, where, ()
        return taken, None, tuple(skipped)

    def piece_test(self, seed: int) -> PieceTest:
        """Both at elements of every piece that their conditions cut the outputs into."""
        return piece_test(self.left, self.right, self._outputs, seed=seed)


def _shrunk(
    left: Program, right: Program, names: Sequence[tuple[str, str]], seed: int
) -> tuple[Program, Program]:
    """Both at joint small sizes."""
    sizes = joint_small_sizes(left, right, names, seed)
    sides = (left, sizes.left), (right, sizes.right)
    # Places that the two do not agree on could let one position pass for another.
    places, others = (small_places(program, (), extents) for program, extents in sides)
    agreed = places if places == others else None
    small = tuple(shrink(program, extents, places=agreed) for program, extents in sides)
    # The real sizes are the only common ones where these give tensors of other shapes.
    return (left, right) if interface_mismatch(*small) else (small[0], small[1])


def _sizes_text(program: Program) -> str:
    return ", ".join(f"{d.name} = {d.size}" for d in program.dims)


def _whole_difference(
    left: Program, right: Program, names: Sequence[tuple[str, str]], trial: int, seed: int
) -> Difference | None:
    def both(ops: FieldOps) -> Difference | None:
        inputs = random_inputs(left, ops)
        meaning = FieldMeaning(ops)
        ours = defined(
            ops,
            lambda: evaluate_program(left, inputs, meaning),
            lambda values: list(values.values()),
        )
        theirs = evaluate_program(right, inputs, meaning)
        for one, other in names:
            element = first_difference(ours[one], theirs[other], ops)
            if element is not None:
                return Difference(one, element, trial, _sizes_text(left))
        return None

    return redrawn(left, FIELDS[trial % len(FIELDS)], seed + trial, both, other=right)
