"""The numerical check, the third tier: a kernel against float64, on random and adversarial inputs.

A result passes if every element is as close as rounding can explain, no row or head and not all of
them are off in one direction (mirage_py.verify.numerical_check.common_error), and all of them
together are no farther than twice what eager PyTorch gets. How far rounding can take a result is
computed for these very inputs (mirage_py.verify.numerical_check.rounding_error), so that a
difference of large numbers is not held to the accuracy of a plain matmul.

Values that are not finite: where the reference is not, or exceeds the output's type, the result
must not be finite either; NaN and the infinities count as equal. Where the reference is finite the
result must be. Within rounding of the type's largest value both are right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret import Sample, evaluate_at
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import F32, DType, Fp32Precision
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.rewrite.logs import logs_apart
from mirage_py.ugraph.rewrite.masks import outputs_that_select_infinity
from mirage_py.verify.evaluate.element_types import underflow_step
from mirage_py.verify.evaluate.first_stage import first_stage
from mirage_py.verify.evaluate.windows import (
    LEAST_WINDOWS,
    Points,
    affordable_windows,
    at_a_time,
    scattered,
    windows,
)
from mirage_py.verify.numerical_check.float_case import SPREAD, FloatEvidence, OutputCase
from mirage_py.verify.numerical_check.input_sets import InputSet, input_sets
from mirage_py.verify.numerical_check.periodic_input import PeriodicInput
from mirage_py.verify.numerical_check.places import Places
from mirage_py.verify.numerical_check.rounding_error import (
    Rounded,
    RoundingMeaning,
    rounded_input,
)
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

__all__ = [
    "FloatEvidence",
    "InputSet",
    "Reference",
    "cases",
    "input_sets",
    "judge",
    "reference",
    "tolerance",
    "tolerances",
    "worst_of",
]

# Element operations: three to nine seconds of one core.
MAX_REFERENCE_WORK = 1e9
_TF32_ROUNDOFF = 2.0**-11
_SUMS = ("sum", "matmul")
# Algebraically equal graphs round at other places than the program.
_REORDERING = 4.0


@dataclass(frozen=True)
class Reference(Mapping[str, FloatArray]):
    """The outputs in float64 by name; ``errors`` has the expected size of each element's error.

    Of outputs that have ``places`` both are lists, of the elements there. Where an error is
    infinite and the output NaN, nothing is known of the element either. With ``is_measured`` errors
    are estimates from those of eager PyTorch: a few right elements are beyond what they allow.
    """

    outputs: dict[str, FloatArray]
    errors: dict[str, FloatArray]
    places: dict[str, Places] = field(default_factory=dict)
    is_measured: bool = False

    def __getitem__(self, name: str) -> FloatArray:
        """A whole output, NaN where it was not evaluated."""
        there = self.places.get(name)
        return there.spread(self.outputs[name]) if there else self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def share(self) -> float:
        """Of the outputs' elements, how many were evaluated: 1 is all."""
        known = sum(v.size - int(self._unknown(n).sum()) for n, v in self.outputs.items())
        return known / max(1, sum(self._size(n) for n in self.outputs))

    @property
    def vague(self) -> float:
        """Of the elements that were evaluated, how many rounding may move by more than they are."""
        evaluated = vague = 0
        for name, expected in self.outputs.items():
            unknown = int(self._unknown(name).sum())
            evaluated += expected.size - unknown
            wide = np.greater(SPREAD * self.errors[name], np.abs(expected))
            vague += int(wide.sum())
        return vague / max(1, evaluated)

    def _unknown(self, name: str) -> NDArray[np.bool_]:
        unknown: NDArray[np.bool_] = np.isnan(self.outputs[name])
        return unknown & np.isposinf(self.errors[name]) if unknown.any() else unknown

    def _size(self, name: str) -> int:
        there = self.places.get(name)
        return there.size if there else self.outputs[name].size


def reference(
    program: Program,
    arrays: Mapping[str, FloatArray] | Mapping[str, PeriodicInput],
    *,
    max_work: float = MAX_REFERENCE_WORK,
    max_elements: float = inf,
    seed: int = 0,
    threads: int = 1,
    deadline: float | None = None,
    operands: DType | None = None,
) -> Reference:
    """The outputs in float64, exponentials shifted so that logits of 1e4 do not overflow, and taken
    out of logarithms, where they would underflow.

    Large programs are evaluated window by window of their outputs, ``threads`` at a time; what
    would take more than ``max_work`` element operations, or has more than ``max_elements``, in some
    parts only, the first and the last among them, the others as drawn with ``seed``. After
    ``deadline`` (of ``time.monotonic``) no window is begun beyond those two. Errors are those of a
    kernel whose products take computed ``operands``, by default halves.
    """
    safe = _evaluable(program)
    held_to = program.fp32_precision
    halves = operands or program.matmul_type
    meaning = RoundingMeaning(_operand_roundoff(halves, held_to), underflow_step(halves))
    inputs = {
        t.name: rounded_input(_given(arrays[t.name]), t.dtype, held_to) for t in program.inputs
    }

    stage = first_stage(safe)
    given = {} if stage is None else _reduced_values(stage, inputs, meaning, threads)
    # What is given is of all of the outputs.
    found = [{}] if given else affordable_windows(safe, max_work, max_elements, seed)
    points = scattered(safe, found, seed)
    evaluated: dict[int, dict[str, Sample[Rounded]]] = {}

    def evaluate(number: int) -> None:
        if deadline is not None and number >= LEAST_WINDOWS and time.monotonic() > deadline:
            return
        evaluated[number] = evaluate_at(safe, inputs, meaning, points[number], given)

    # NumPy lets other threads run.
    with ThreadPoolExecutor(at_a_time(safe, found[0], threads)) as pool:
        list(pool.map(evaluate, range(len(found))))
    known = Reference({}, {}, {})
    for t in (o.tensor for o in program.outputs):
        _put_together(t, [evaluated[n].pop(t.name) for n in sorted(evaluated)], known)
    return known


@lru_cache(maxsize=8)
def _evaluable(program: Program) -> Program:
    """The form in which float64 overflows nowhere; each of many sets of inputs needs the same."""
    return add_safe_shifts(logs_apart(program))


def _put_together(tensor: Tensor, parts: Sequence[Sample[Rounded]], known: Reference) -> None:
    """Add an output to what is known: all of it, or a list of the elements of these parts. Of a
    large output of which there are few, no array is made.
    """
    name, shape = tensor.name, tensor.shape
    if sum(p.values.value.size for p in parts) == tensor.elements:
        known.outputs[name], known.errors[name] = np.empty(shape), np.empty(shape)
        for part in parts:
            known.outputs[name][part.elements] = part.values.value
            known.errors[name][part.elements] = _known(part.values)
        return
    places = [Places.of(shape, p.elements).flat for p in parts]
    known.places[name] = Places(shape, np.concatenate(places))
    known.outputs[name] = np.concatenate([p.values.value.reshape(-1) for p in parts])
    errors = (np.broadcast_to(_known(p.values), p.values.value.shape) for p in parts)
    known.errors[name] = np.concatenate([e.reshape(-1) for e in errors])


def _reduced_values(
    stage: Program, inputs: Mapping[str, Rounded], meaning: RoundingMeaning, threads: int
) -> dict[int, Rounded]:
    """The outputs of a first stage, full-rank, by the numbers of their nodes."""
    shapes = {
        o.tensor.name: tuple(stage.sizes[d] if d in o.dims else 1 for d in stage.dim_names)
        for o in stage.outputs
    }
    values = {o.tensor.name: np.empty(o.tensor.shape) for o in stage.outputs}
    errors = {o.tensor.name: np.zeros(o.tensor.shape) for o in stage.outputs}
    exact = dict.fromkeys(values, True)

    def evaluate(window: Points) -> None:
        for name, sample in evaluate_at(stage, inputs, meaning, window).items():
            values[name][sample.elements] = sample.values.value
            if sample.values.error is not None:
                errors[name][sample.elements] = sample.values.error
                exact[name] = False

    found = list(windows(stage))
    with ThreadPoolExecutor(at_a_time(stage, found[0], threads)) as pool:
        list(pool.map(evaluate, found))
    return {
        int(name): Rounded(
            values[name].reshape(shape), None if exact[name] else errors[name].reshape(shape)
        )
        for name, shape in shapes.items()
    }


def _known(found: Rounded) -> FloatArray:
    """The errors of an output. One that is no number, as of a weight that may be anything and that
    a mask removes, says nothing of its value: it has no end.
    """
    if found.error is None:
        return np.zeros(())
    return np.where(np.isnan(found.error) & np.isfinite(found.value), inf, found.error)


def _given(values: FloatArray | PeriodicInput) -> FloatArray | PeriodicInput:
    return values if isinstance(values, PeriodicInput) else np.asarray(values, np.float64)


def tolerance(program: Program) -> float:
    """That of the output that may be farthest off."""
    return max(tolerances(program).values())


def tolerances(program: Program) -> dict[str, float]:
    """The relative error that a correct kernel may have on well-conditioned inputs, by output.

    Four times the sum of the roundings on the worst path to the output: the output's own, that of
    computed operands at each matmul on the path, and that of float32 sums, which grows with the
    root of their length.
    """
    depth, terms = _rounded_operands(program), [0] * len(program.nodes)
    for position, node in enumerate(program.nodes):
        terms[position] = max((terms[a] for a in node.args), default=0)
        if node.op in _SUMS:
            terms[position] += prod(program.sizes[d] for d in node.reduced)
    operand = _operand_roundoff(program.matmul_type, program.fp32_precision)
    return {
        o.tensor.name: _REORDERING
        * (
            o.tensor.dtype.unit_roundoff
            + depth[o.node] * operand
            + sqrt(max(terms[o.node], 1)) * F32.unit_roundoff
        )
        for o in program.outputs
    }


def shared_sums(program: Program) -> dict[str, float]:
    """By output the number of results of the sum on the way to it that has fewest, if it has fewer
    elements: all of a batch norm has as many errors as there are channels. Infinite where operands
    of matmuls are rounded: that is far more than sums lose, and differs from element to element.
    """
    found: dict[str, float] = {}
    depth = _rounded_operands(program)
    for o in program.outputs:
        below = (program.nodes[n] for n in cone(program.nodes, [o.node]))
        counts = [prod(program.sizes[d] for d in n.dims) for n in below if n.op in _SUMS]
        fewest = min(counts, default=inf) if not depth[o.node] else inf
        found[o.tensor.name] = fewest if fewest < o.tensor.elements else inf
    return found


def _rounded_operands(program: Program) -> list[int]:
    """By node on how many matmuls on the way to it operands are rounded."""
    depth = [0] * len(program.nodes)
    for position, node in enumerate(program.nodes):
        depth[position] = max((depth[a] for a in node.args), default=0)
        if node.op == "matmul" and any(_is_rounded(program, program.nodes[a]) for a in node.args):
            depth[position] += 1
    return depth


def _is_rounded(program: Program, operand: Node) -> bool:
    """Whether a matmul rounds an operand: a computed one, or float32 to TF32."""
    if operand.op != "load" or program.fp32_precision is Fp32Precision.IEEE:
        return operand.op != "load"
    return program.tensors[operand.access.tensor].dtype == F32


def _operand_roundoff(halves: DType, held_to: Fp32Precision) -> float:
    """Of what matmuls round operands to. Near zero TF32 is as fine as float32 may be."""
    is_exact = held_to is Fp32Precision.IEEE
    return max(halves.unit_roundoff, 0.0 if is_exact else _TF32_ROUNDOFF)


def judge(
    program: Program,
    reference: Mapping[str, FloatArray],
    got: Mapping[str, FloatArray],
    *,
    eager: Mapping[str, FloatArray] | None = None,
) -> FloatEvidence:
    """Compare a kernel's outputs with the reference, and with eager PyTorch's if given.

    Arrays hold the outputs' values, as any float type. A reference without errors (a plain mapping)
    is compared within ``tolerance`` alone.
    """
    found = [
        case.judge(got[case.name], None if eager is None else eager[case.name])
        for case in cases(program, reference)
    ]
    return worst_of(program, found, with_eager=eager is not None)


def cases(
    program: Program,
    reference: Mapping[str, FloatArray],
    *,
    library: Any = np,
    there: Callable[[NDArray[Any]], Any] = np.asarray,
) -> tuple[OutputCase, ...]:
    """What to compare each output with, worked out once for all kernels; with the arrays of
    ``library``, which ``there`` makes of those of the reference.
    """
    known = reference if isinstance(reference, Reference) else Reference({**reference}, {})
    allowed, draws = tolerances(program), shared_sums(program)
    selected = outputs_that_select_infinity(program)
    found = []
    for tensor in (o.tensor for o in program.outputs):
        name = tensor.name
        places = known.places.get(name)
        found.append(
            OutputCase(
                tensor,
                there(known.outputs[name]),
                there(known.errors[name]) if name in known.errors else None,
                allowed[name],
                places,
                draws=draws[name],
                is_measured=known.is_measured,
                selects_infinity=name in selected,
                library=library,
                flat=there(places.flat) if places else None,
            )
        )
    return tuple(found)


def worst_of(
    program: Program, found: Sequence[FloatEvidence], *, with_eager: bool
) -> FloatEvidence:
    """The evidence for all outputs: that of the worst, with the counts of all."""
    worst = FloatEvidence(0.0, tolerance(program), 0.0 if with_eager else None, True)
    for one in found:
        if (one.passed, -_excess(one)) < (worst.passed, -_excess(worst)):
            worst = one
    return replace(
        worst,
        nonfinite=sum(one.nonfinite for one in found),
        compared=sum(one.compared for one in found),
        elements=sum(one.elements for one in found),
        evaluated=sum(one.evaluated for one in found),
        telling=sum(one.telling for one in found),
        excess=max((one.excess for one in found), default=0.0),
        row_excess=max((one.row_excess for one in found), default=0.0),
        outside=max((one.outside for one in found), default=0.0),
        weak=tuple(name for one in found for name in one.weak),
        outputs=tuple(found) if len(found) > 1 else (),
    )


def _excess(evidence: FloatEvidence) -> float:
    return evidence.max_rel_error / evidence.bound if evidence.bound else inf
