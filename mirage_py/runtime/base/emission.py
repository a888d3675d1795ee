"""A plan as a list of things to run: emitted kernels, calls of libraries, tensors made zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.triton.module import TritonKernel, emit_triton
from mirage_py.errors import InputError
from mirage_py.ugraph.building.torch_calls import called_program
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import INDUCTOR, LibraryCall, UGraph


@dataclass(frozen=True, slots=True)
class ZeroFill:
    """A tensor that the next kernel adds to."""

    tensor: str

    @property
    def name(self) -> str:
        """What happens, in a word."""
        return f"zero_{self.tensor}"


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A Triton kernel by the text of a file, of which ``launch`` starts it on ``pointers``."""

    name: str
    source: str
    pointers: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class TorchStep:
    """A program that PyTorch computes, on its inputs and outputs by name."""

    program: Program
    is_compiled: bool

    @property
    def name(self) -> str:
        """That of the program."""
        return self.program.name


# The back ends there are, as plans name them.
BACKENDS = ("triton", "cuda")

EmittedKernel = TritonKernel | CudaKernel
Step = EmittedKernel | KernelFile | LibraryCall | TorchStep | ZeroFill


def emit_steps(plan: Plan) -> tuple[Step, ...]:
    """Every kernel of the plan in order.

    Raises InputError for an unknown back end, and ScheduleError where the plan's back
    end cannot express a block graph.
    """
    steps: list[Step] = []
    emitted = iter(_emitted(plan))
    for kernel in plan.ugraph.kernels:
        if isinstance(kernel, LibraryCall):
            steps.append(_call(kernel, plan.ugraph))
            continue
        steps += map(ZeroFill, kernel.added_tensors)
        steps.append(next(emitted))
    return tuple(steps)


def _call(call: LibraryCall, ugraph: UGraph) -> LibraryCall | TorchStep:
    if call.body is None:
        return call
    return TorchStep(called_program(call, ugraph), call.op == INDUCTOR)


def emit_kernels(plan: Plan) -> tuple[EmittedKernel, ...]:
    """The emitted kernels alone: what is compiled and stored. Raises as ``emit_steps`` does."""
    return tuple(s for s in emit_steps(plan) if isinstance(s, TritonKernel | CudaKernel))


def source_suffix(kernel: EmittedKernel) -> str:
    """How the file of a kernel's source is called: ``.py`` or ``.cu``."""
    return ".cu" if isinstance(kernel, CudaKernel) else ".py"


def _emitted(plan: Plan) -> Sequence[EmittedKernel]:
    if plan.backend == "triton":
        return emit_triton(plan)
    if plan.backend == "cuda":
        # Whoever runs Triton kernels alone needs none of it.
        from mirage_py.codegen.cuda.kernel import module

        return module.emit_cuda(plan)
    raise InputError(f"no runtime for back end '{plan.backend}'", repair="use triton or cuda")
