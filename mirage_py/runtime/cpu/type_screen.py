"""The type screen: plans simulated in NumPy with the types of their kernels, at small sizes.

The float screen (mirage_py.verify.rounding.float_screen) judges a family's formula; what its
kernels round to halves on the way is decided by the lowering. Keys that are normalised and then
rounded for a tensor core may be ten times as far off as eager PyTorch where all of them are nearly
equal: the numerical check refuses every plan of such a family, after each was compiled. Here the
lowered block graphs, whose casts are nodes, are evaluated on the input sets of that check, beside
eager PyTorch on the CPU, and held to its rule for outputs of the real size: a few milliseconds for
all plans that differ in tiles alone.

What it doubts may still pass: the user's own function may be less exact than eager PyTorch is here.
So such plans come after the others, and none is dropped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.reasons import Reason
from mirage_py.runtime.cpu.reduced_check import eager_outputs
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import BOOL, F32, DType
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.rewrite.split_dim import outer_dim
from mirage_py.verify.evaluate.work import program_work
from mirage_py.verify.numerical_check.float_case import EagerError, OutputCase
from mirage_py.verify.numerical_check.input_sets import InputSet, input_sets
from mirage_py.verify.numerical_check.numerical_check import cases, reference
from mirage_py.verify.rounding.float_screen import at_extents
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning
from mirage_py.verify.sizes.shrink import fixed_dims
from mirage_py.verify.sizes.tied_dims import tied_dims

# Points that a dimension keeps where something is summed over it, and where nothing is: the first
# of these sizes at which a set of inputs takes no more element operations. A split has two.
_SIZES = ((128, 16), (64, 8), (32, 4))
_MOST_WORK = 5e5
_SPLITS = 2
_SEED = 0


class TypeScreen:
    """Screens plans of one program; those with equal kernels but for their tiles at once."""

    def __init__(self) -> None:
        self._sets = lru_cache(maxsize=16)(_judged_sets)
        # By what plans that differ in tiles alone have in common.
        self._known: dict[Hashable, str] = {}
        # Whatever the number of splits, the small program is one.
        self._faults: dict[Hashable, str] = {}

    def doubt(self, plan: Plan) -> str:
        """On which inputs the numerical check will refuse a plan, and why; empty if it may pass.

        What cannot be lowered or evaluated is for others to refuse, and what its indices keep large
        takes too long.
        """
        key = formula_of(plan)
        if key not in self._known:
            try:
                self._known[key] = self._fault(plan)
            except Exception:  # noqa: BLE001  what cannot be evaluated is judged when it runs
                self._known[key] = ""
        return self._known[key]

    def known_doubt(self, plan: Plan) -> str:
        """The same, of what was asked about before; empty for all else."""
        return self._known.get(formula_of(plan), "")

    def _fault(self, plan: Plan) -> str:
        typed = _typed(plan)
        found = _small(typed) if _rounds_on_the_way(plan.ugraph, typed) else None
        if found is None:
            return ""
        outputs = plan.ugraph.program.outputs
        sizes = tuple((o.tensor.name, o.tensor.elements) for o in outputs)
        key = sizes, *found
        if key not in self._faults:
            self._faults[key] = self._fault_of(sizes, *found)
        return self._faults[key]

    def _fault_of(self, sizes: tuple[tuple[str, int], ...], program: Program, small: UGraph) -> str:
        for sets in self._sets(sizes, program):
            got = evaluate_ugraph(small, sets.arrays, KernelMeaning(np.float32, len(sets.sets)))
            for number, one in enumerate(sets.sets):
                fault = one.fault({name: x[..., number] for name, x in got.items()})
                if fault is not None:
                    return str(fault)
        return ""


@dataclass(frozen=True, slots=True)
class _JudgedSet:
    """A set of inputs with what to compare each output with, and how far eager PyTorch is off."""

    name: str
    cases: tuple[tuple[OutputCase, EagerError | None], ...]

    def fault(self, got: Mapping[str, FloatArray]) -> Reason | None:
        """What the numerical check says of outputs."""
        for case, eager in self.cases:
            found = case.evidence(got[case.name], eager)
            if found.reason is not None:
                return found.reason.at(f"{self.name} inputs")
        return None


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets with equal whole numbers, which positions may be, side by side."""

    arrays: Mapping[str, FloatArray]
    sets: tuple[_JudgedSet, ...]


def _judged_sets(sizes: tuple[tuple[str, int], ...], program: Program) -> tuple[_Sets, ...]:
    """``sizes`` are the elements of each output of the real program."""
    groups: dict[bytes, list[InputSet]] = {}
    whole = [t.name for t in program.inputs if not t.dtype.is_float and t.dtype != BOOL]
    for one in input_sets(program, _SEED):
        key = b"".join(one.arrays[name].tobytes() for name in whole)
        groups.setdefault(key, []).append(one)
    return tuple(_side_by_side(program, dict(sizes), sets) for sets in groups.values())


def _side_by_side(program: Program, sizes: Mapping[str, int], sets: Sequence[InputSet]) -> _Sets:
    arrays = {}
    for tensor in program.inputs:
        stacked = np.stack([s.arrays[tensor.name] for s in sets], axis=-1)
        arrays[tensor.name] = np.asarray(stacked != 0 if tensor.dtype == BOOL else stacked)
    judged = []
    for one in sets:
        found = cases(program, reference(program, one.arrays))
        for case in found:
            case.stands_for = sizes[case.name] / max(1, case.size)
        given = eager_outputs(program, one.arrays)
        eager = [None if given is None else case.of_eager(given[case.name]) for case in found]
        judged.append(_JudgedSet(one.name, tuple(zip(found, eager, strict=True))))
    return _Sets(arrays, tuple(judged))


def formula_of(plan: Plan) -> Hashable:
    """What says how the lowering types a plan, and so what its kernels round: its tiles count for
    what tensor cores take.
    """
    ugraph = plan.ugraph
    kernels: list[Hashable] = []
    for kernel in ugraph.kernels:
        if isinstance(kernel, BlockGraph):
            tiling = Tiling(ugraph.program, kernel)
            products = (n for n, node in enumerate(kernel.nodes) if node.op == "matmul")
            dots = tuple(n for n in products if tiling.is_dot(n))
            kernels.append((kernel.nodes, kernel.cluster_dims, dots))
        else:
            kernels.append(kernel)
    return ugraph.program, tuple(kernels)


def _typed(plan: Plan) -> UGraph:
    """The µGraph with the casts of its kernels."""
    ugraph = plan.ugraph
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    typed = iter(lowered(ugraph, blocks).blocks)
    kernels = tuple(next(typed).block if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(ugraph, kernels=kernels)


def _rounds_on_the_way(ugraph: UGraph, typed: UGraph) -> bool:
    """Whether something computed is rounded that is no output yet, and that the lowering rounds:
    where the µGraph itself has a cast, so has the program, or eager PyTorch rounds there as well.
    """
    outputs = {o.tensor.name for o in typed.program.outputs}
    for own, block in zip(ugraph.kernels, typed.kernels, strict=True):
        if not isinstance(own, BlockGraph) or not isinstance(block, BlockGraph):
            return True
        casts = {(n.attr, n.dims) for n in own.nodes if n.op == "cast"}
        for number, node in enumerate(block.nodes):
            if node.op != "cast" or not _is_narrow(node.attr) or (node.attr, node.dims) in casts:
                continue
            readers = [n for n in block.nodes if number in n.args]
            if any(n.op != "store" or n.access.tensor not in outputs for n in readers):
                return True
    return False


def _is_narrow(attr: object) -> bool:
    return isinstance(attr, DType) and attr.is_float and attr.bytes < F32.bytes


def _small(typed: UGraph) -> tuple[Program, UGraph] | None:
    """The program and the µGraph at small sizes; None where they cannot be small."""
    for summed, free in _SIZES:
        program, small = at_extents(typed, _extents(typed, summed, free))
        if program_work(program) <= _MOST_WORK:
            return program, small
    return None


def _extents(ugraph: UGraph, most_summed: int, most: int) -> dict[str, int]:
    program = ugraph.program
    tied = tied_dims(program, ugraph.kernels)
    fixed = tied.kept(fixed_dims(program, ugraph.kernels))
    summed = {d for n in program.nodes if n.op in REDUCING for d in n.reduced}
    parts = {outer_dim(d) for d in program.dim_names}
    extents = {}
    for dim, size in program.sizes.items():
        limit = _SPLITS if dim in parts else most_summed if dim in summed else most
        extents[dim] = size if dim in fixed else min(size, limit)
    for group in tied.groups:
        extents.update(dict.fromkeys(group, max(extents[d] for d in group)))
    return extents
