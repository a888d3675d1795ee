"""A plan as a list of things to run: emitted kernels, calls of libraries, tensors made zero."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.triton.module import TritonKernel, emit_block_graphs
from mirage_py.errors import InputError
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.ugraph import LibraryCall


@dataclass(frozen=True, slots=True)
class ZeroFill:
    """A tensor that the next kernel adds to."""

    tensor: str

    @property
    def name(self) -> str:
        """What happens, in a word."""
        return f"zero_{self.tensor}"


Step = TritonKernel | LibraryCall | ZeroFill


def emit_steps(plan: Plan) -> tuple[Step, ...]:
    """Every kernel of the plan in order.

    Raises InputError for a back end that this runtime does not launch, and ScheduleError where
    Triton cannot express a block graph.
    """
    if plan.backend != "triton":
        raise InputError(f"no runtime for back end '{plan.backend}'", repair="use backend triton")
    steps: list[Step] = []
    emitted = iter(emit_block_graphs(plan))
    for kernel in plan.ugraph.kernels:
        if isinstance(kernel, LibraryCall):
            steps.append(kernel)
            continue
        steps += map(ZeroFill, kernel.added_tensors)
        steps.append(next(emitted))
    return tuple(steps)


def emit_kernels(plan: Plan) -> tuple[TritonKernel, ...]:
    """The emitted kernels alone: what is compiled and stored. Raises as ``emit_steps`` does."""
    return tuple(s for s in emit_steps(plan) if isinstance(s, TritonKernel))
