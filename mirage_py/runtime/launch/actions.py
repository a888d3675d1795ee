"""Plan steps that are not kernels of ours, as functions of tensors and a stream."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING

from mirage_py.runtime.base.emission import TorchStep, ZeroFill
from mirage_py.runtime.eager.torch_steps import Action as Action  # noqa: PLC0414
from mirage_py.runtime.eager.torch_steps import program_action
from mirage_py.runtime.launch import library
from mirage_py.ugraph.ir.ugraph import LibraryCall

if TYPE_CHECKING:
    import torch


def torch_action(step: LibraryCall | TorchStep | ZeroFill, place: Mapping[str, int]) -> Action:
    """What torch does on its current stream; ``place`` is where tensors are among the plan's."""
    if isinstance(step, ZeroFill):
        zeroed = place[step.tensor]

        def zero(memory: Sequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
            memory[zeroed].zero_()

        return zero
    if isinstance(step, TorchStep):
        return program_action(step, place)
    arguments = [place[name] for name in step.args]
    result = place[step.result]
    if step.convolution is not None:
        convolved = library.convolution_of(step.convolution)

        def convolve(memory: MutableSequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
            memory[result] = convolved(*(memory[a] for a in arguments), memory[result])

        return convolve
    function = library.library_function(step.op)

    def call(memory: Sequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
        function(*(memory[a] for a in arguments), out=memory[result])

    return call


def run_all(actions: Sequence[Action], memory: MutableSequence[torch.Tensor], stream: int) -> None:
    """One after the other."""
    for action in actions:
        action(memory, stream)
