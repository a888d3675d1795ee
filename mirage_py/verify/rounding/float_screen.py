"""The float screen: drops families that are less accurate than their program, before code is
emitted.

The laws are true of numbers and say nothing of rounding. sum(x^2) - n m^2 is a sum of squares of
differences and loses all of its digits where the mean m is far from zero; exp(a) / exp(b) is exp(a
- b) and overflows at 89. So every family is evaluated in float32 at small sizes, on structured
inputs, next to its program in float32 and in float64. It is dropped if it is not finite where the
program is, or if its error is a multiple of the program's own. The program as it is written passes:
it is what errors are compared with.

If a program has comparisons, both are also evaluated with results rounded up or down at random. A
tie whose sides are computed from one number stays a tie in the program; in a family that computes
that number twice, rounding decides. A tie of numbers that the program itself computes separately is
decided by rounding there as well, and either answer is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import MirageError
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import BOOL, DType
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph
from mirage_py.ugraph.operators import LEAF, operator
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block
from mirage_py.verify.evaluate.element_types import round_to, underflow_step
from mirage_py.verify.evaluate.work import program_work
from mirage_py.verify.intervals.structured_inputs import STYLES, structured_inputs
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning, common_half
from mirage_py.verify.rounding.rounding_inputs import rounding_inputs
from mirage_py.verify.shifts.safe_exp import add_safe_shifts
from mirage_py.verify.sizes.conditions import Conditions
from mirage_py.verify.sizes.shrink import (
    fixed_dims,
    predicates_of,
    shrink,
    shrink_ugraph,
    small_places,
)
from mirage_py.verify.sizes.small_sizes import small_extents
from mirage_py.verify.sizes.tied_dims import tied_dims

# What an error may be: so many times the program's own, and so many roundings of the largest
# element of an output.
_PROGRAM_ERRORS = 8.0
_ROUNDINGS = 8.0
# A program that its indices keep large is not screened.
_MOST_WORK = 1e6
_ITERATIONS = 2
_SEED = 0
# How often each set of inputs is evaluated where results are rounded at random.
_ROUNDED_ANEW = 8
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# In the first draws all inputs have one style, in the others each has its own.
_DRAWS_OF_TIES = len(STYLES) + 4


@dataclass(frozen=True, slots=True)
class _Reference:
    """One output: what it is in float64, where it is compared (all sets behind one another along
    the last axis), and for each set by how much a family may miss it.
    """

    tensor: Tensor
    expected: FloatArray
    compared: NDArray[np.bool_]
    allowed: FloatArray

    def fault(self, got: FloatArray, names: Sequence[str]) -> str:
        """What is wrong with what a family gives, empty if nothing is."""
        output = self.tensor.name
        lost = (self.compared & ~np.isfinite(got)).reshape(-1, len(names)).any(axis=0)
        if lost.any():
            return (
                f"{output} is not finite where the program is: {names[int(lost.argmax())]} inputs"
            )
        error = _largest(got - self.expected, self.compared)
        far = error > self.allowed
        if not far.any():
            return ""
        worst = int(np.argmax(error / self.allowed))
        return f"{output} is less accurate than the program: {names[worst]} inputs"


@dataclass(frozen=True, slots=True)
class _Case:
    """A program at small sizes: the sets of inputs side by side, and what it gives on them in one
    arithmetic.
    """

    names: tuple[str, ...]
    arrays: Mapping[str, FloatArray]
    meaning: Callable[[], KernelMeaning]
    references: tuple[_Reference, ...]

    def fault(self, ugraph: UGraph) -> str:
        """What is wrong with a family at these sizes, empty if nothing is."""
        got = evaluate_ugraph(ugraph, self.arrays, self.meaning())
        with np.errstate(all="ignore"):
            faults = (r.fault(got[r.tensor.name], self.names) for r in self.references)
            return next((f for f in faults if f), "")


class FloatScreen:
    """Screens the families of one program, which may be over programs with split dimensions."""

    def __init__(self) -> None:
        self._cases = lru_cache(maxsize=64)(self._new_cases)

    def fault(self, family: UGraph) -> str:
        """Why a family is worse than its program, empty if it is not.

        A program that cannot be evaluated at small sizes is not screened, and what breaks a rule is
        for the field test to refuse.
        """
        try:
            program, small = at_extents(family, _extents(family))
            between = {t.name for t in small.intermediates}
            exact = (_with_exact_stores(kernel, between) for kernel in small.kernels)
            small = replace(small, kernels=tuple(exact))
            if program_work(program) > _MOST_WORK:
                return ""
            return next((f for case in self._cases(program) if (f := case.fault(small))), "")
        except MirageError:
            return ""

    def _new_cases(self, program: Program) -> tuple[_Case, ...]:
        names, arrays = _inputs(program)
        half = common_half(program)
        nearest = _case(program, names, arrays, lambda: KernelMeaning(np.float32, len(names), half))
        if not _compares_rounded(program):
            return (nearest,)
        again = {n: np.concatenate([x] * _ROUNDED_ANEW, axis=-1) for n, x in arrays.items()}
        meaning = partial(RandomRounding, len(names) * _ROUNDED_ANEW, half, _SEED)
        return nearest, _case(program, names * _ROUNDED_ANEW, again, meaning, _ROUNDED_ANEW)


def _compares_rounded(program: Program) -> bool:
    """Whether a comparison depends on rounding: not if inputs are compared as they are, as masks
    are.
    """
    exact: list[bool] = []
    for node in program.nodes:
        if node.op in _COMPARISONS and not all(exact[a] for a in node.args):
            return True
        exact.append(operator(node.op).kind == LEAF or node.op in _COMPARISONS)
    return False


def _case(
    program: Program,
    names: tuple[str, ...],
    arrays: Mapping[str, FloatArray],
    meaning: Callable[[], KernelMeaning],
    copies: int = 1,
) -> _Case:
    safe = add_safe_shifts(program)
    expected = evaluate_program(safe, arrays, KernelMeaning(np.float64, len(names)))
    own = evaluate_program(safe, arrays, meaning())
    with np.errstate(all="ignore"):
        references = tuple(
            _reference(o.tensor, expected[o.tensor.name], own[o.tensor.name], copies)
            for o in program.outputs
        )
    return _Case(names, arrays, meaning, references)


def _inputs(program: Program) -> tuple[tuple[str, ...], dict[str, FloatArray]]:
    """The sets' names, and every input with all of its sets side by side."""
    drawn = list(rounding_inputs(program, _SEED))
    ties = structured_inputs(program, _DRAWS_OF_TIES, _SEED)
    arrays: dict[str, FloatArray] = {}
    for tensor in program.inputs:
        exact = ties[tensor.name].mid
        tied = exact != 0 if tensor.dtype == BOOL else round_to(exact, tensor.dtype)
        ours = np.stack([s[tensor.name] for _, s in drawn], axis=-1)
        arrays[tensor.name] = np.concatenate([ours, tied], axis=-1)
    names = [name for name, _ in drawn] + [f"tied {n}" for n in range(_DRAWS_OF_TIES)]
    return tuple(names), arrays


def _reference(tensor: Tensor, expected: FloatArray, own: FloatArray, copies: int) -> _Reference:
    """Where an output is compared. Sets come in ``copies``, one behind another: the program's error
    on one is the largest of all.
    """
    in_range = np.isfinite(own) & (np.abs(expected) <= tensor.dtype.max_finite)
    by_copy = in_range.reshape(*in_range.shape[:-1], copies, -1).all(axis=-2)
    compared = np.concatenate([by_copy] * copies, axis=-1)
    error = _largest(own - expected, compared).reshape(copies, -1).max(axis=0)
    scale = _largest(expected, compared)
    roundings = _ROUNDINGS * tensor.dtype.unit_roundoff if tensor.dtype.is_float else 0.0
    allowed = _PROGRAM_ERRORS * np.tile(error, copies) + roundings * scale
    return _Reference(tensor, expected, compared, allowed + underflow_step(tensor.dtype))


def _largest(values: FloatArray, where: NDArray[np.bool_]) -> FloatArray:
    """Of each set the largest magnitude."""
    sizes = np.where(where, np.abs(values), 0.0)
    return np.asarray(sizes.reshape(-1, sizes.shape[-1]).max(axis=0))


def _extents(family: UGraph) -> dict[str, int]:
    program = family.program
    tied = tied_dims(program, family.kernels)
    fixed = fixed_dims(program, family.kernels, but_digits=True)
    return small_extents(program, _SEED, fixed, tied=tied)


def at_extents(family: UGraph, extents: Mapping[str, int]) -> tuple[Program, UGraph]:
    """The program of a family and the family at these sizes, a grid one block."""
    program = family.program
    conditions = Conditions(predicates_of(program, family.kernels), program.sizes, extents)
    places = small_places(program, family.kernels, extents)
    small = shrink_ugraph(family, extents, conditions=conditions, places=places)
    # Kernels may read more of an input than the program does.
    ours = shrink(program, extents, conditions=conditions, places=places)
    ours = replace(ours, inputs=small.program.inputs)
    kernels = tuple(_filled(k, ours.sizes) for k in small.kernels)
    return ours, replace(small, program=ours, kernels=kernels)


def _with_exact_stores(kernel: Kernel, between: Collection[str]) -> Kernel:
    """The kernel without casts of what it stores ``between`` kernels, whatever else reads these:
    types of intermediates are no part of a formula, and the type screen judges what is lost.
    """
    if not isinstance(kernel, BlockGraph):
        return kernel
    stores = [n for _, n in kernel.stores() if n.access.tensor in between]
    stored = {a for n in stores for a in n.args if kernel.nodes[a].op == "cast"}

    def rule(new: NewNodes, number: int) -> int:
        (argument, *_) = kernel.nodes[number].args or (number,)
        return new.place[argument] if number in stored else new.copy(number)

    return rebuild_block(kernel, rule) if stored else kernel


def _filled(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """The kernel with whole tiles on its grid, and loops of two iterations.

    Along a grid nothing is reduced, so how it is cut changes no value; a loop adds up in its order.
    """
    if not isinstance(kernel, BlockGraph):
        return kernel
    sections = tuple(
        replace(s, tile=-(-sizes[s.loop] // _ITERATIONS)) if s.loop is not None else s
        for s in kernel.sections
    )
    grid = tuple(replace(a, tile=sizes[a.dim]) for a in kernel.grid)
    return replace(kernel, grid=grid, sections=sections)


class RandomRounding(KernelMeaning):
    """What is exact stays so; any other result is one of its two neighbours, a new choice each time
    that it is computed. One value that is read twice is the same twice, one that is computed twice
    is not: kernels may add up in different orders, and compilers fuse a product into a sum here and
    not there.

    Source: J. Vignes, A stochastic arithmetic for reliable scientific computation, Mathematics and
    Computers in Simulation 35 (1993).
    """

    def __init__(self, sets: int, operands: DType | None, seed: int) -> None:
        super().__init__(np.float32, sets, operands)
        self._double = KernelMeaning(np.float64, sets, operands)
        self._draw = np.random.default_rng(seed)

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        single = super().apply(op, attr, args)
        if op == "cast" or single.dtype == np.bool_:
            return single
        return self._either(single, self._double.apply(op, attr, args))

    def power(self, x: FloatArray, exponent: float) -> FloatArray:
        return self._either(super().power(x, exponent), self._double.power(x, exponent))

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._either(super().sum(x, axes), self._double.sum(x, axes))

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._either(super().contract(a, b, axes), self._double.contract(a, b, axes))

    def rescale(self, old: FloatArray, new: FloatArray, degree: int) -> FloatArray:
        single = super().rescale(old, new, degree)
        return self._either(single, self._double.rescale(old, new, degree))

    def _either(self, single: FloatArray, exact: FloatArray) -> FloatArray:
        """A neighbour of ``exact``; or ``single``, where a sum lost digits on the way to it."""
        with np.errstate(all="ignore"):
            nearest = np.asarray(exact, np.float32)
            towards = np.where(exact > nearest, np.float32(np.inf), np.float32(-np.inf))
            other = np.where(nearest == exact, single, np.nextafter(nearest, towards))
            chosen = np.isfinite(nearest) & (self._draw.random(nearest.shape) < 0.5)
        return np.asarray(np.where(chosen, other, nearest), np.float32)
