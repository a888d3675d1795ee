"""Plans on a machine without a GPU: the emitted kernels in Triton's interpreter.

The interpreter runs in one worker process that lives as long as this one: it needs a triton of its
own (see ``modules``), and a kernel with a wrong address must not end the user's process.
"""

from __future__ import annotations

import atexit
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import CompileError, InputError
from mirage_py.runtime.base.emission import KernelFile, Step, TorchStep, ZeroFill, emit_steps
from mirage_py.runtime.base.private_folder import scratch_folder
from mirage_py.runtime.cpu.reduced_check import check_reduced, checked_array
from mirage_py.runtime.eager.eager_source import eager_source
from mirage_py.runtime.process.executor import WorkerKind
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.ugraph.checks.run_time_sizes import at_sizes
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

FloatArray = NDArray[np.float64]

TIMEOUT_S = 300.0

_LOCK = threading.Lock()
_ENVIRONMENT = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
_POOL = WorkerPool(1, WorkerKind(timeout_s=TIMEOUT_S, environment=_ENVIRONMENT))
atexit.register(_POOL.close)


def run_interpreted(
    plan: Plan,
    arrays: Mapping[str, FloatArray],
    sizes: Mapping[str, int] | None = None,
    steps: tuple[Step, ...] = (),
) -> dict[str, FloatArray]:
    """Run a plan's kernels on the CPU, or other ``steps`` on its tensors: inputs by name to outputs
    by name, in float64.

    ``sizes`` are those of run-time dimensions where they are not the plan's own.

    Inputs are rounded to their element types first. Outputs and intermediates hold NaN before the
    first kernel, so what no block writes is NaN after the last one. Raises InputError for inputs of
    the wrong shape, ScheduleError where Triton cannot express the plan, and CompileError when a
    kernel fails.
    """
    if plan.backend != "triton":
        raise InputError(
            f"Triton's interpreter runs no kernels of back end '{plan.backend}'",
            repair="run them under CPU emulation: mirage_py.runtime.cpu.cuda_emulation",
        )
    steps = steps or emit_steps(plan)
    plan = at_sizes(plan, sizes) if sizes else plan
    inputs = plan.ugraph.program.inputs
    outputs = [o.tensor for o in plan.ugraph.program.outputs]
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as name, _LOCK:
        folder = Path(name)
        for tensor in inputs:
            np.save(folder / f"{tensor.name}.npy", checked_array(tensor, arrays))
        (reply,) = _POOL.map([_task(plan, steps, folder)])
        if not reply.done:
            raise CompileError(
                "the kernels do not run in Triton's interpreter",
                where=", ".join(k.name for k in steps),
                why=reply.reason,
            )
        return {t.name: np.load(folder / f"{t.name}.npy") for t in outputs}


def check_interpreted(program: Program, plan: Plan, *, seed: int) -> FloatEvidence:
    """Compare a plan of ``program`` with float64 at a reduced size, on random and adversarial sets.

    The worst of the input sets is returned. A plan that does not run has not passed.
    """
    return check_reduced(program, plan, run_interpreted, seed=seed)


def _task(plan: Plan, steps: tuple[Step, ...], folder: Path) -> dict[str, Any]:
    program = plan.ugraph.program
    roles = {t.name: "input" for t in program.inputs}
    roles |= {o.tensor.name: "output" for o in program.outputs}
    return {
        "service": "interpret",
        "folder": str(folder),
        "tensors": [
            {
                "name": t.name,
                "shape": t.shape,
                "strides": t.element_strides,
                "dtype": t.dtype.torch_name,
                "role": roles.get(t.name, "intermediate"),
            }
            for t in plan.ugraph.tensors.values()
        ],
        "steps": [_step(s, plan.ugraph) for s in steps],
    }


def _step(step: Step, ugraph: UGraph) -> dict[str, Any]:
    if isinstance(step, TritonKernel):
        sizes = ugraph.program.sizes
        strides = {t.name: t.element_strides for t in ugraph.tensors.values()}
        return {
            "name": step.name,
            "source": step.source,
            "grid": step.text.blocks(sizes),
            "pointers": [t.name for t in step.pointers],
            "scalars": [s.value(sizes, strides) for s in step.text.scalars],
            "tiles": {name: list(tile) for name, tile in step.text.tiles.items()},
        }
    if isinstance(step, KernelFile):
        return {
            "name": step.name,
            "source": step.source,
            "launched_on": [t.name for t in step.pointers],
        }
    if isinstance(step, ZeroFill):
        return {"name": step.name, "zero": step.tensor}
    if isinstance(step, TorchStep):
        return {
            "name": step.name,
            "torch": eager_source(step.program),
            "args": [t.name for t in step.program.inputs],
            "results": [o.tensor.name for o in step.program.outputs],
        }
    assert isinstance(step, LibraryCall)
    named = {"name": step.name, "library": step.op, "args": step.args, "result": step.result}
    return {**named, "convolution": str(step.convolution)} if step.convolution else named
