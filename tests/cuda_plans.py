"""Plans for the CUDA back end: of other plans or of texts, their kernels, and their error under CPU
emulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from plans import random_inputs, relative_error
from several_kernels import over

from mirage_py.codegen.cuda.kernel.module import emit_cuda, kernel_plans
from mirage_py.codegen.cuda.plan.kernel_plan import KernelPlan
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

Reference = Callable[[dict[str, NDArray[np.float64]]], NDArray[np.float64]]


def for_cuda(plan: Plan, num_warps: int = 0, num_stages: int = 0, **flags: str) -> Plan:
    """The plan with flags in all its launches; 0 warps or stages are those that it has."""
    launches = []
    for options in plan.options:
        stages = (num_stages,) * len(options.num_stages) if num_stages else options.num_stages
        options = replace(options, num_warps=num_warps or options.num_warps, num_stages=stages)
        for name, value in flags.items():
            options = options.with_flag(name, value)
        launches.append(options)
    return replace(plan, backend="cuda", options=tuple(launches))


def cuda_plan(spec: str, kernel: str, *num_stages: int, **flags: str) -> Plan:
    """One kernel of four warps over a program, both given as text; stages of each of its loops."""
    graph = over(parse(spec), kernel)
    return for_cuda(Plan(graph, (LaunchConfig(4, num_stages),)), 0, 0, **flags)


def kernel_of(plan: Plan) -> CudaKernel:
    """Its only kernel."""
    (kernel,) = emit_cuda(plan)
    return kernel


def planned(plan: Plan) -> KernelPlan:
    """What its only kernel's text follows."""
    (found,) = kernel_plans(plan)
    return found


def rounded_inputs(program: Program) -> dict[str, NDArray[np.float64]]:
    """Normally distributed inputs, float64; those that are halves hold numbers of float16."""
    arrays = random_inputs(program)
    halves = [t.name for t in program.inputs if t.dtype.is_half]
    return arrays | {n: arrays[n].astype(np.float16).astype(np.float64) for n in halves}


def error_of(plan: Plan, reference: Reference) -> float:
    """Of its only output, relative to what ``reference`` makes of the inputs in float64."""
    arrays = rounded_inputs(plan.ugraph.program)
    (found,) = run_emulated(plan, arrays).values()
    return relative_error(found, reference(arrays))
