"""A plan with run-time sizes against float64 at several of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mirage_py.codegen.tiling.valid_sizes import largest_sizes
from mirage_py.errors import CompileError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.base.layouts import write_once
from mirage_py.ugraph.checks.run_time_sizes import at_sizes, run_time_dims
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.verify.numerical_check.check_strength import failed, joined, of_set
from mirage_py.verify.numerical_check.input_sets import SET_NAMES, drawn_sets
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence, judge, reference

if TYPE_CHECKING:
    import torch

Sizes = Mapping[str, int]
# (plan, inputs by name, sizes) -> outputs by name, in float64; raises CompileError.
Run = Callable[[Plan, Mapping[str, FloatArray], Sizes], Mapping[str, FloatArray]]
# Plain random numbers and the first ugly ones: sizes are at fault at every value alike.
_SETS = SET_NAMES[:2]


def checked_sizes(plan: Plan) -> list[dict[str, int]]:
    """The sizes at which a plan is compared: the smallest, one that nothing divides, those it is
    tuned for, and larger ones where it may have them.
    """
    dims = run_time_dims(plan)
    planned = {d: plan.ugraph.program.sizes[d] for d in dims}
    largest = largest_sizes(plan, 1 << 24)
    odd = {d: min(planned[d], 2 * (planned[d] // 3) + 1 + 2 * n) for n, d in enumerate(dims)}
    above = {d: min(largest[d], planned[d] + 1) for d in dims}
    found: list[dict[str, int]] = []
    for sizes in (dict.fromkeys(dims, 2), odd, planned, above):
        if sizes not in found:
            found.append(sizes)
    return found


def check_sizes(
    plan: Plan, run: Run, *, seed: int, sizes: Sequence[Sizes] | None = None
) -> FloatEvidence:
    """Compare a plan with float64 at ``sizes``, by default ``checked_sizes``: the worst of them.

    The µGraph is one for all sizes, so its equality is not asked again; what is judged here is the
    text: masks of tails, ends of loops, strides and blocks as arguments.
    """
    parts: list[FloatEvidence] = []
    for size in checked_sizes(plan) if sizes is None else sizes:
        program = at_sizes(plan, size).ugraph.program
        for inputs in drawn_sets(program, seed, _SETS):
            at = ", ".join(f"{d} = {n}" for d, n in size.items())
            try:
                got = run(plan, inputs.arrays, size)
            except CompileError as error:
                return failed(reason(Code.NOT_RUN, error).at(f"{inputs.name} at {at}"))
            found = judge(program, reference(program, inputs.arrays), got)
            parts.append(of_set(f"{inputs.name} at {at}", found))
            if not found.passed:
                return joined(parts)
    return joined(parts)


def run_on_gpu(
    plan: Plan, arrays: Mapping[str, FloatArray], sizes: Sizes
) -> Mapping[str, FloatArray]:
    """The plan's kernels at these sizes on the current GPU."""
    from mirage_py.runtime.sized.sized_launch import SizedRunner

    program = at_sizes(plan, sizes).ugraph.program
    inputs = [_on_gpu(t, arrays[t.name]) for t in program.inputs]
    found = SizedRunner(plan)(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    names = [o.tensor.name for o in program.outputs]
    return {n: x.double().cpu().numpy() for n, x in zip(names, outputs, strict=True)}


def _on_gpu(tensor: Tensor, values: FloatArray) -> torch.Tensor:
    import torch

    dtype = getattr(torch, tensor.dtype.torch_name)
    fresh = torch.empty_strided(tensor.shape, tensor.element_strides, dtype=dtype, device="cuda")
    write_once(fresh, torch.from_numpy(values).to("cuda"))
    return fresh
