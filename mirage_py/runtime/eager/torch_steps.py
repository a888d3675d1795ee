"""Parts of a program that PyTorch computes between kernels of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.reasons import Code, Served, Server, reason
from mirage_py.runtime.base.emission import TorchStep
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.eager.compiled import CompiledFunction
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor

if TYPE_CHECKING:
    import torch

_MOST_NAMED = 6
# What a step does: every tensor of the plan, and a stream, to a launch. A library may put a tensor
# of its own in the place of its result.
Action = Callable[[MutableSequence["torch.Tensor"], int], None]


def served_by(plan: Plan, words: str) -> Served | None:
    """That a plan serves in part, which ``words`` say more of; None where all of it is ours."""
    steps = plan.torch_steps
    if not steps:
        return None
    named = [*steps[:_MOST_NAMED], *(["..."] if len(steps) > _MOST_NAMED else [])]
    total = len(plan.ugraph.kernels)
    why = reason(Code.BESIDE_TORCH, words, len(steps), total, ", ".join(named))
    return Served(Server.IN_PARTS, why)


def program_action(
    step: TorchStep, place: Mapping[str, int], device: torch.device | None = None
) -> Action:
    """The program on torch's current stream; ``place`` is where tensors are among the plan's. For a
    ``device`` it is compiled now: at the first call it may be too late, inside a CUDA graph.
    """
    program = step.program
    function: Callable[..., Any] = torch_function(program)
    if step.is_compiled:
        function = _without_gradients(CompiledFunction(function))
        if device is not None:
            function(*_zeros(program.inputs, device))
    arguments = [place[t.name] for t in program.inputs]
    results = [(place[o.tensor.name], o.tensor) for o in program.outputs]
    own: list[bool] = []

    def run(memory: MutableSequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
        given = [memory[a] for a in arguments]
        found = function(*given)
        made = found if isinstance(found, tuple) else (found,)
        if not own:  # what the operators return depends on nothing but the program
            own.extend(_own(made, given, [tensor for _, tensor in results]))
        for (at, _), value, is_own in zip(results, made, own, strict=True):
            if is_own:
                memory[at] = value
            else:
                memory[at].copy_(value)

    return run


def _zeros(tensors: Sequence[Tensor], device: torch.device) -> list[torch.Tensor]:
    """Right for indices too."""
    import torch

    nothing = torch.zeros((), device=device)
    return [laid_out(t, nothing.expand(t.shape)) for t in tensors]


def _without_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile compiles anew for another mode."""
    import torch

    def run(*inputs: torch.Tensor) -> Any:
        with torch.no_grad():
            return function(*inputs)

    return run


def _own(
    made: Sequence[torch.Tensor], given: Sequence[torch.Tensor], wanted: Sequence[Tensor]
) -> list[bool]:
    """For each result whether it lies as the plan has it, in memory of its own."""
    seen = {x.untyped_storage().data_ptr() for x in given}
    found: list[bool] = []
    for value, tensor in zip(made, wanted, strict=True):
        memory = value.untyped_storage().data_ptr()
        lies = tuple(value.shape) == tensor.shape and value.stride() == tensor.element_strides
        found.append(lies and memory not in seen and value.storage_offset() == 0)
        seen.add(memory)
    return found
