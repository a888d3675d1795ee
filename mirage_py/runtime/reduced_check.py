"""A plan against float64 where there is no GPU: a small one of the same tiles, run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

from mirage_py.errors import CompileError
from mirage_py.runtime.reduced import reduced
from mirage_py.ugraph.buffers import FloatArray
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Program
from mirage_py.verify.float_gate import FloatEvidence, input_sets, judge, reference

# Inputs by name to outputs by name, in float64; raises CompileError when a kernel fails.
Run = Callable[[Plan, Mapping[str, FloatArray]], Mapping[str, FloatArray]]


def check_reduced(program: Program, plan: Plan, run: Run, *, seed: int) -> FloatEvidence:
    """Compare a plan of ``program`` with float64 at a reduced size, on random and on ugly inputs.

    The worst of the input sets is returned. A plan that does not run has not passed.
    """
    small, small_plan = reduced(program, plan)
    worst: FloatEvidence | None = None
    for inputs in input_sets(small, seed):
        try:
            got = run(small_plan, inputs.arrays)
        except CompileError as error:
            return FloatEvidence(inf, 0.0, None, False, f"{inputs.name}: {error}")
        found = judge(small, reference(small, inputs.arrays), got)
        if not found.passed:
            return replace(found, reason=f"{inputs.name} inputs: {found.reason}")
        if worst is None or found.max_rel_error > worst.max_rel_error:
            worst = found
    assert worst is not None
    return worst
