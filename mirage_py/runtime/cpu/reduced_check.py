"""A plan against float64 where there is no GPU: a small one of the same tiles, run on the CPU."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from mirage_py.errors import CompileError, InputError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.cpu.reduced import reduced
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import F32, Fp32Precision
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.numerical_check.check_strength import failed, joined, of_set, required
from mirage_py.verify.numerical_check.numerical_check import (
    FloatEvidence,
    input_sets,
    judge,
    reference,
)

# Inputs by name to outputs by name, in float64; raises CompileError when a kernel fails.
Run = Callable[[Plan, Mapping[str, FloatArray]], Mapping[str, FloatArray]]


def check_reduced(program: Program, plan: Plan, run: Run, *, seed: int) -> FloatEvidence:
    """Compare a plan of ``program`` with float64 at a reduced size, on random and adversarial sets.

    A plan that does not run has not passed, nor has one of which no set of inputs says anything.
    """
    small, small_plan = reduced(program, plan)
    found: list[FloatEvidence] = []
    for inputs in input_sets(small, seed):
        try:
            got = run(small_plan, inputs.arrays)
        except CompileError as error:
            return failed(reason(Code.NOT_RUN, error).at(inputs.name))
        eager = eager_outputs(small, inputs.arrays)
        known = reference(small, inputs.arrays)
        found.append(of_set(inputs.name, judge(small, known, got, eager=eager)))
        if not found[-1].passed:
            break
    return required(joined(found))


def eager_outputs(
    program: Program, arrays: Mapping[str, FloatArray]
) -> dict[str, FloatArray] | None:
    """What eager PyTorch gives on the CPU, in float64: a yardstick for kernels. None where a
    program has no form in PyTorch, or none that runs there, and where a GPU rounds to TF32: no CPU
    does.
    """
    import torch

    if _may_round_to_tf32(program):
        return None
    try:
        inputs = [laid_out(t, torch.from_numpy(arrays[t.name].copy())) for t in program.inputs]
        with torch.no_grad(), _on_one_thread():
            found = torch_function(program)(*inputs)
    except Exception:  # noqa: BLE001  whatever torch raises there, kernels are judged without it
        return None
    results = found if isinstance(found, tuple) else (found,)
    outputs = [o.tensor.name for o in program.outputs]
    return {n: x.double().numpy() for n, x in zip(outputs, results, strict=True)}


@contextlib.contextmanager
def _on_one_thread() -> Iterator[None]:
    """Run PyTorch on one thread: small tensors take no less time on many, which spin while they
    wait for one another and keep compilers from their cores.

    OpenMP's own setting is that of the calling thread. ``torch.set_num_threads`` is also inherited,
    for good, by every thread that starts using torch meanwhile.
    """
    import torch

    usual = torch.get_num_threads()  # this also makes torch set up the calling thread
    set_num_threads = getattr(ctypes.CDLL(None), "omp_set_num_threads", None)
    if set_num_threads is None:  # torch was built without OpenMP
        yield
        return
    set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(usual)


def _may_round_to_tf32(program: Program) -> bool:
    allowed = program.fp32_precision is not Fp32Precision.IEEE
    has_matmul = any(node.op == "matmul" for node in program.nodes)
    return allowed and has_matmul and any(t.dtype == F32 for t in program.inputs)


def checked_array(tensor: Tensor, arrays: Mapping[str, FloatArray]) -> FloatArray:
    """The array of an input, in float64 and in order. Raises InputError."""
    array = arrays.get(tensor.name)
    if array is None:
        raise InputError(f"input '{tensor.name}' is missing", repair=f"pass {tensor}")
    if array.shape != tensor.shape:
        raise InputError(
            f"input '{tensor.name}' has shape {list(array.shape)}",
            why=f"the kernels were made for {list(tensor.shape)}",
        )
    # An array without axes must stay one: np.ascontiguousarray gives it an axis.
    return np.asarray(array, dtype=np.float64, order="C")
