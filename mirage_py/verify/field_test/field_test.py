"""The field test, the first tier: program and µGraph over finite fields on random inputs.

Source: Mirage (OSDI 2025), section on probabilistic equivalence verification; see
docs/explanation/verification.md for what it guarantees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, prod

from mirage_py.errors import UnsupportedError, ValidationError, VerificationError
from mirage_py.reasons import Code, Reason
from mirage_py.ugraph.checks.selected_infinity import infinity_fault
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.checks.whole_numbers import require_whole_numbers, ugraph_loss
from mirage_py.ugraph.field import FIELDS, DivisionByZero, Field, FieldArray, FieldOps
from mirage_py.ugraph.field.reading import Reading
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Dim, Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.evaluate.difference import Mismatch, first_difference
from mirage_py.verify.evaluate.trial import defined, keyed_operators, random_inputs, redrawn
from mirage_py.verify.evaluate.work import MAX_TRIAL_WORK, peak_elements, program_work
from mirage_py.verify.field_test.error_bound import error_bound
from mirage_py.verify.field_test.meanings import FunctionUse, function_use
from mirage_py.verify.field_test.programs import Comparison, compare_programs, interface_mismatch
from mirage_py.verify.intervals.real_test import MIN_DRAWS, real_test
from mirage_py.verify.shifts.shift_free import remove_free_shifts, without_infinities
from mirage_py.verify.shifts.shift_laws import evaluate_shifted
from mirage_py.verify.sizes.affine import affine, is_mixed_radix
from mirage_py.verify.sizes.conditions import Conditions
from mirage_py.verify.sizes.shrink import (
    fixed_dims,
    predicates_of,
    shrink,
    shrink_ugraph,
    small_places,
)
from mirage_py.verify.sizes.small_sizes import FINE_AXES, instantiate_small, small_extents
from mirage_py.verify.sizes.tied_dims import tied_dims

_DRAWS_FOR_BOUND = 12
# Numbers of a value in all draws of the real test, beyond which it has other sizes: as intervals
# and residues, with what is made of them on the way, they take a hundred times as many bytes.
_MANY_NUMBERS = 1 << 21
# Numbers of all inputs of a program whose values are kept for the next µGraph.
_MOST_KEPT = 1 << 20
_DIFFERENT = Reason(Code.DIFFERENT)
# Inputs and outputs by name.
_Values = tuple[Mapping[str, FieldArray], Mapping[str, FieldArray]]


@dataclass(frozen=True, slots=True)
class FieldEvidence:
    """``error_bound`` is the probability that a wrong µGraph passes these trials, where one is
    proven; ``bound_reason`` says how, or why there is none.

    ``small_extents`` has the sizes of each trial. ``keyed`` names the operators that the field
    knows only as random functions or by a random order: sound, but blind to their laws. ``samples``
    counts the windows that were compared at the real sizes (see sampled_test), ``structured`` the
    elements that were compared over the real numbers (see real_test). ``functions`` says
    of equal ones what stood for each function, and which paths carry exponentials.
    """

    equal: bool
    trials: int
    primes: tuple[int, ...]
    error_bound: float | None
    bound_reason: Reason
    small_extents: tuple[Mapping[str, int], ...]
    seed: int
    keyed: tuple[str, ...] = ()
    mismatch: Mismatch | None = None
    samples: int = 0
    structured: int = 0
    functions: FunctionUse | None = None

    def require(self) -> FieldEvidence:
        """This evidence, or VerificationError if the two differ."""
        if not self.equal:
            raise VerificationError(
                "the µGraph does not compute the program",
                where=str(self.mismatch),
                why=f"they differ on random inputs modulo {' and '.join(map(str, self.primes))}",
                repair=f"the seed {self.seed} reproduces it",
            )
        return self


def field_test(
    program: Program,
    ugraph: UGraph,
    *,
    trials: int = 4,
    seed: int,
    between: Comparison | None = None,
) -> FieldEvidence:
    """Compare at small sizes, all outputs, with fresh randomness in every trial.

    ``ugraph`` may be a family or an instance; it is cut into small tiles either way, with tails.
    Trials alternate between the two prime pairs and every pair of trials has its own sizes. If the
    µGraph was made for a program with other dimensions, the two programs are compared first;
    ``between`` is what that gave, where it is known.

    Raises UnsupportedError if the program cannot be evaluated in the field, casts to integers what
    is none, or kernels have dimensions of their own, so that no other sizes are known to belong
    together.
    """
    given, ugraph = ugraph, ugraph.in_blocks
    _check_own_dims(ugraph)
    require_whole_numbers(program)
    primes = tuple(p for f in FIELDS[: max(1, min(trials, len(FIELDS)))] for p in (f.p, f.q))
    keyed = keyed_operators(program)

    def differs(how: str, after: int = 0) -> FieldEvidence:
        sizes, mismatch = (dict(program.sizes),), Mismatch("", (), how)
        return FieldEvidence(False, after, primes, None, _DIFFERENT, sizes, seed, keyed, mismatch)

    fault = _interface_fault(program, ugraph) or ugraph_loss(ugraph)
    if fault:
        return differs(fault)
    if program.dims != ugraph.program.dims:
        between = between or compare_programs(program, ugraph.program, trials=trials, seed=seed)
        if not between.equal:
            return differs(between.reason or str(between.difference), between.trials)
        program = ugraph.program
    evaluable = without_infinities(program, seed=seed)
    fault = infinity_fault(ugraph) if any(n.attr == -inf for n in evaluable.nodes) else ""
    if fault:
        return differs(fault)
    used: list[Mapping[str, int]] = []
    structured = 0
    sizes = _SmallSizes(evaluable, ugraph)
    for trial in range(trials):
        field = FIELDS[trial % len(FIELDS)]
        small = sizes.drawn(seed + trial // len(FIELDS))
        used.append(dict(small[0].sizes))
        # At the real sizes first: small tensors are as large as what is read of them.
        mismatch_here = None if trial else broken_rule(given)
        # Of a pair that a trial has passed it is known that it keeps the rules.
        compared = _Comparison(*small, is_valid=trial % len(FIELDS) > 0)
        mismatch_here = mismatch_here or redrawn(small[0], field, seed + trial, compared)
        if trial == trials - 1 and mismatch_here is None:
            if MIN_DRAWS * peak_elements(small[0]) > _MANY_NUMBERS:
                # Which dimension is which the trials have shown, and what is a number: here sizes
                # may repeat, and be any numbers.
                small = sizes.at(sizes.weighed(seed, in_pairs=True)[1])
                used.append(dict(small[0].sizes))
            real = real_test(*small, seed=seed)
            mismatch_here, structured = real.mismatch, real.compared
        if mismatch_here is not None:
            return FieldEvidence(
                False, trial + 1, primes, None, _DIFFERENT, tuple(used), seed, keyed,
                mismatch_here,
            )  # fmt: skip
    # Without its free shifts, so that one µGraph has one bound however its program is spelled.
    bare = remove_free_shifts(program, seed=seed)[0]
    bound = error_bound(*_smallest(bare, ugraph), trials=trials, seed=seed)
    return FieldEvidence(
        True, trials, primes, bound.probability, bound.reason, tuple(used), seed, keyed,
        structured=structured, functions=function_use(evaluable, ugraph),
    )  # fmt: skip


def _check_own_dims(ugraph: UGraph) -> None:
    """Plans of parts in sequence have dimensions that the program only lists."""
    program = ugraph.program
    used = {d: None for n in program.nodes for d in n.dims}
    used |= dict.fromkeys(d for o in program.outputs for d in o.dims)
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    held = dict.fromkeys(d for b in blocks for n in b.nodes for d in n.dims)
    own = [d for d in held if d not in used]
    if own:
        raise UnsupportedError(
            f"dimensions of the kernels alone: {', '.join(own)}",
            where=program.name,
            why="the program does not say how their sizes follow from those of its own",
            repair="test each part against its own program",
        )


def broken_rule(ugraph: UGraph) -> Mismatch | None:
    """The rule of the IR that a µGraph breaks, if it does."""
    try:
        validate_ugraph(ugraph)
    except ValidationError as error:
        return Mismatch("", (), str(error))
    return None


def _interface_fault(program: Program, ugraph: UGraph) -> str:
    """How inputs and outputs of the µGraph are not those of the program, in words."""
    mine, its = ([o.tensor.name for o in p.outputs] for p in (program, ugraph.program))
    if sorted(mine) != sorted(its):
        return f"the outputs are {', '.join(its)}, not {', '.join(mine)}"
    return interface_mismatch(program, ugraph.program)


def _smallest(program: Program, ugraph: UGraph) -> tuple[Program, UGraph]:
    """The sizes, of a few draws, at which there is least to evaluate: the bound is best there.

    Draws are the same for every seed, and tiles for every order of the axes: the bound is one of
    program and µGraph, not of how they are run.
    """
    sizes = _SmallSizes(program, ugraph)
    draws = [sizes.weighed(n) for n in range(_DRAWS_FOR_BOUND)]
    _, least = min(draws, key=lambda draw: draw[0])
    return sizes.at(least, fine_axes=0)


def _too_much(program: Program, work: float, *, divided: bool) -> UnsupportedError:
    """``divided``: indices divide dimensions."""
    if divided:
        why = "indices divide its large dimensions, so that they cannot be made small"
        repair = "write the division as two dimensions (h, d) instead of one (n // 64, n % 64)"
    else:
        why = f"each of its {len(program.dims)} dimensions needs a small size of its own"
        repair = "make one dimension of those that always occur together"
    what = f"the field test would take {work:.1e} operations"
    return UnsupportedError(what, where=program.name, why=why, repair=repair)


def _work(program: Program, extents: Mapping[str, int]) -> float:
    """Of the program at other sizes: it does not depend on what indices become."""
    return program_work(replace(program, dims=tuple(Dim(d, n) for d, n in extents.items())))


class _SmallSizes:
    """The small sizes of a program and a µGraph, the same for both. A dimension that either of the
    two divides keeps its size.
    """

    def __init__(self, program: Program, ugraph: UGraph) -> None:
        self._program = program
        self._ugraph = ugraph
        own = fixed_dims(ugraph.program, ugraph.kernels, but_digits=True)
        self._fixed = tuple(dict.fromkeys((*fixed_dims(program, but_digits=True), *own)))
        self._tied = tied_dims(ugraph.program, ugraph.kernels)
        self._avoid = _constants(ugraph)
        self._masks = predicates_of(program) + predicates_of(ugraph.program, ugraph.kernels)
        self._drawn: dict[int, tuple[Program, UGraph]] = {}

    def drawn(self, seed: int) -> tuple[Program, UGraph]:
        """Both at the sizes that a seed draws."""
        if seed not in self._drawn:
            self._drawn[seed] = self.at(self.weighed(seed)[1])
        return self._drawn[seed]

    def weighed(self, seed: int, *, in_pairs: bool = False) -> tuple[float, Mapping[str, int]]:
        """The work at the sizes that a seed draws, and these."""
        tied, avoid = self._tied, () if in_pairs else self._avoid
        extents = small_extents(
            self._program, seed, self._fixed, avoid=avoid, tied=tied, in_pairs=in_pairs
        )
        work = _work(self._program, extents)
        if work > MAX_TRIAL_WORK:
            raise _too_much(self._program, work, divided=bool(self._fixed or tied.fixed))
        return work, extents

    def at(
        self, extents: Mapping[str, int], *, fine_axes: int = FINE_AXES
    ) -> tuple[Program, UGraph]:
        """Both at these sizes."""
        program, ugraph = self._program, self._ugraph
        conditions = Conditions(self._masks, program.sizes, extents)
        places = small_places(program, ugraph.kernels, extents, others=(ugraph.program,))
        small = shrink(program, extents, conditions=conditions, places=places)
        ugraph = shrink_ugraph(ugraph, extents, conditions=conditions, places=places)
        small, ugraph = _with_common_inputs(small, ugraph)
        return small, instantiate_small(ugraph, fine_axes=fine_axes)


def _constants(ugraph: UGraph) -> tuple[float, ...]:
    """Numbers in kernels that may stand for a size, or for a product of sizes."""
    found: dict[float, None] = {}
    for kernel in ugraph.kernels:
        for node in kernel.nodes if isinstance(kernel, BlockGraph) else ():
            if isinstance(node.attr, float):
                found[abs(node.attr)] = None
            exprs = node.attr.index if isinstance(node.attr, Access) else (node.attr,)
            for expr in exprs:
                # A mixed-radix number has other factors at other sizes.
                if isinstance(expr, IndexExpr) and not is_mixed_radix(expr, ugraph.program.sizes):
                    form = affine(expr)
                    found.update({float(abs(f)): None for _, f in form.terms} if form else {})
    return tuple(found)


def _with_common_inputs(program: Program, ugraph: UGraph) -> tuple[Program, UGraph]:
    """Shapes follow from what is read, and the two may read different parts of an input."""
    mine = {t.name: t for t in program.inputs}
    common = {
        t.name: Tensor(t.name, tuple(map(max, t.shape, mine[t.name].shape)), t.dtype)
        for t in ugraph.program.inputs
    }
    inside = replace(ugraph.program, inputs=tuple(common[t.name] for t in ugraph.program.inputs))
    outside = replace(program, inputs=tuple(common[t.name] for t in program.inputs))
    return outside, replace(ugraph, program=inside)


class _Comparison:
    """One trial: the attempt that is repeated until a draw divides by no zero."""

    def __init__(self, program: Program, ugraph: UGraph, *, is_valid: bool) -> None:
        self._program = program
        self._ugraph = ugraph
        self._is_valid = is_valid
        self._divided = False

    def __call__(self, ops: FieldOps) -> Mismatch | None:
        """Where the two differ first, if they do."""
        meaning = FieldMeaning(ops)
        inputs, expected = self._program_values(ops)
        try:
            if not self._is_valid:
                validate_ugraph(self._ugraph)
                self._is_valid = True
            found = evaluate_shifted(self._ugraph, inputs, meaning)
        except ValidationError as error:
            return Mismatch("", (), str(error))
        except DivisionByZero:
            # Once is chance; twice, where the program has a value, is a wrong divisor.
            if self._divided:
                return Mismatch("", (), "the µGraph divides by zero where the program does not")
            self._divided = True
            raise
        for output in self._program.outputs:
            name = output.tensor.name
            place = first_difference(expected[name], found[name], ops)
            if place is not None:
                return Mismatch(name, place)
        return None

    def _program_values(self, ops: FieldOps) -> _Values:
        program = self._program
        if not ops.fills and sum(prod(t.shape) for t in program.inputs) <= _MOST_KEPT:
            return _known_values(program, ops.field, ops.seed, ops.reading)
        inputs = random_inputs(program, ops)
        return inputs, defined(
            ops,
            lambda: evaluate_program(program, inputs, FieldMeaning(ops)),
            lambda values: list(values.values()),
        )


# Families of one program are tested one after the other, most of them at the same small sizes.
@lru_cache(maxsize=2 * len(FIELDS))
def _known_values(program: Program, field: Field, seed: int, reading: Reading) -> _Values:
    ops = FieldOps(field, seed, reading)
    inputs = random_inputs(program, ops)
    return inputs, evaluate_program(program, inputs, FieldMeaning(ops))
