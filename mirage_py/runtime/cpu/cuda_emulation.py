"""CPU emulation of CUDA plans: the emitted kernels as C++, every CUDA thread a fiber.

Each kernel runs in a process of its own: one that goes astray or comes to a deadlock ends that
process, which says what was wrong. It is to the CUDA back end what ``interpreted`` is to Triton's.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import CompileError, InputError
from mirage_py.runtime.base.emission import Step, TorchStep, ZeroFill, emit_steps
from mirage_py.runtime.base.layouts import poison, write_once
from mirage_py.runtime.base.private_folder import scratch_folder
from mirage_py.runtime.cpu.cpu_build import executable, with_lines
from mirage_py.runtime.cpu.reduced_check import check_reduced, checked_array
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.launch.library import library_function
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

if TYPE_CHECKING:
    import torch

TIMEOUT_S = 300.0
_LAST_WORDS = 8000


@dataclass(frozen=True, slots=True)
class _Memory:
    """A tensor in the memory that belongs to it alone."""

    facts: Tensor
    buffer: torch.Tensor
    tensor: torch.Tensor
    is_input: bool


def run_emulated(plan: Plan, arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Run a CUDA plan's kernels on the CPU: inputs by name to outputs by name, in float64.

    Inputs are rounded to their element types first. Outputs and intermediates hold NaN before the
    first kernel, so what no block writes is NaN after the last one. Accesses of shared memory
    that no barrier orders are errors. Raises InputError for inputs of the wrong shape and where
    there is no C++ compiler, ScheduleError where CUDA cannot express the plan, and CompileError
    when a kernel fails.
    """
    if plan.backend != "cuda":
        raise InputError(
            f"CPU emulation runs no kernels of back end '{plan.backend}'",
            repair="run them in their own: mirage_py.runtime.cpu.triton_interpreter",
        )
    graph = plan.ugraph
    others = graph.tensors.values()
    return run_kernels(graph.program, emit_steps(plan), arrays, tensors=others)


def run_kernels(
    program: Program,
    steps: Sequence[Step],
    arrays: Mapping[str, FloatArray],
    *,
    tensors: Iterable[Tensor] = (),
    finds_races: bool = True,
) -> dict[str, FloatArray]:
    """Run CUDA kernels, library calls and zero fills in order, as ``run_emulated`` does.

    Tensors that are neither inputs nor outputs of ``program`` nor a kernel's are in ``tensors``.
    """
    inputs = {t.name: checked_array(t, arrays) for t in program.inputs}
    facts = {t.name: t for t in (*tensors, *program.inputs)}
    facts |= {o.tensor.name: o.tensor for o in program.outputs}
    for step in steps:
        if isinstance(step, CudaKernel):
            facts = {**{t.name: t for t in step.pointers}, **facts}
    memory = {name: _allocate(t, inputs.get(name)) for name, t in facts.items()}
    for step in steps:
        if isinstance(step, CudaKernel):
            _run(step, memory, finds_races)
        elif isinstance(step, ZeroFill):
            memory[step.tensor].tensor.zero_()
        elif isinstance(step, TorchStep):
            found = torch_function(step.program)(
                *(memory[t.name].tensor for t in step.program.inputs)
            )
            made = found if isinstance(found, tuple) else (found,)
            for output, value in zip(step.program.outputs, made, strict=True):
                memory[output.tensor.name].tensor.copy_(value)
        elif isinstance(step, LibraryCall):
            operands = (memory[name].tensor for name in step.args)
            function = library_function(step.op, step.convolution)
            function(*operands, out=memory[step.result].tensor)
        else:
            raise InputError(f"{step.name} is no CUDA kernel")
    return {o.tensor.name: _values(memory[o.tensor.name]) for o in program.outputs}


def check_emulated(program: Program, plan: Plan, *, seed: int) -> FloatEvidence:
    """Compare a CUDA plan of ``program`` with float64 at a reduced size, as ``check_interpreted``
    does for Triton's.
    """
    return check_reduced(program, plan, run_emulated, seed=seed)


def _allocate(facts: Tensor, values: FloatArray | None) -> _Memory:
    import torch

    span = 1 + sum((e - 1) * s for e, s in zip(facts.shape, facts.element_strides, strict=True))
    dtype: torch.dtype = getattr(torch, facts.dtype.torch_name)
    buffer = torch.full([span], poison(dtype), dtype=torch.float64).to(dtype)
    tensor = buffer.as_strided(facts.shape, facts.element_strides)
    if values is not None:
        write_once(tensor, torch.from_numpy(values))
    return _Memory(facts, buffer, tensor, values is not None)


def _values(memory: _Memory) -> FloatArray:
    import torch

    result: FloatArray = memory.tensor.to(torch.float64).contiguous().numpy()
    return result


def _bytes(memory: _Memory) -> np.ndarray[Any, Any]:
    """The tensor's memory as bytes that may be written."""
    import torch

    flat: np.ndarray[Any, Any] = memory.buffer.view(torch.uint8).numpy()
    return flat


def _run(kernel: CudaKernel, memory: Mapping[str, _Memory], finds_races: bool) -> None:
    program = executable(kernel)
    names = dict.fromkeys(
        [*(t.name for t in kernel.pointers), *(m.tensor for m in kernel.tensor_maps)]
    )
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        files = {name: Path(folder) / f"{number}.bin" for number, name in enumerate(names)}
        for name, file in files.items():
            _bytes(memory[name]).tofile(file)
        launch = Path(folder) / "launch.txt"
        launch.write_text(_launch_text(kernel, memory, files, finds_races), encoding="utf-8")
        try:
            done = subprocess.run(
                [str(program), str(launch)],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise CompileError(
                "it does not end under CPU emulation",
                where=kernel.name,
                why=f"it was stopped after {TIMEOUT_S:g} s",
            ) from None
        if done.returncode:
            words = with_lines(done.stderr.strip()[-_LAST_WORDS:], kernel, program)
            words = words or f"it ended with code {done.returncode}"
            raise CompileError(
                "the kernel does not run under CPU emulation", where=kernel.name, why=words
            )
        for name, file in files.items():
            if not memory[name].is_input:
                _bytes(memory[name])[:] = np.fromfile(file, np.uint8)


def _launch_text(
    kernel: CudaKernel,
    memory: Mapping[str, _Memory],
    files: Mapping[str, Path],
    finds_races: bool,
) -> str:
    numbers = {name: number for number, name in enumerate(files)}
    lines = [
        f"kernel {kernel.name}",
        f"grid {kernel.grid}",
        f"cluster {kernel.cluster}",
        f"threads {kernel.threads}",
        f"shared {kernel.smem_bytes}",
        f"races {int(finds_races)}",
    ]
    for name, file in files.items():
        one = memory[name]
        lines.append(f"tensor {name} {_bytes(one).size} {int(one.is_input)} {file}")
    lines += [f"pointer {numbers[t.name]}" for t in kernel.pointers]
    for m in kernel.tensor_maps:
        element_bytes = memory[m.tensor].facts.dtype.bytes
        rank, windows = len(m.shape), m.windows
        steps = (windows.steps if windows else m.steps) or (1,) * rank
        corners = windows.corners if windows else ()
        facts = (
            *(rank, element_bytes, m.swizzle_bytes, *m.shape, *m.strides_bytes, *steps),
            *(int(m.rounds), len(m.box), *m.box, len(corners), *corners),
        )
        lines.append(" ".join(map(str, ("map", numbers[m.tensor], *facts))))
    return "\n".join(lines) + "\n"
