"""Plans on the GPU: on torch's current stream, in torch's memory, in CUDA graphs too."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import InputError
from mirage_py.runtime.base.emission import KernelFile, Step, TorchStep, emit_steps
from mirage_py.runtime.base.layouts import poison
from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.eager.torch_steps import program_action
from mirage_py.runtime.launch.actions import Action, run_all, torch_action
from mirage_py.runtime.launch.cached_calls import CachedCalls
from mirage_py.runtime.launch.input_check import (
    ExpectedInput,
    check_detached,
    check_device,
    check_outside_capture,
    check_tensors,
)
from mirage_py.runtime.launch.launch_cuda import Places, cuda_launch
from mirage_py.runtime.launch.launch_triton import arguments_of, triton_launcher
from mirage_py.runtime.launch.repeated_launch import empty, repeated, stream_function
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor

if TYPE_CHECKING:
    import torch


class PlanRunner(CachedCalls):
    """A plan as a function of torch tensors, in the order of ``program.inputs``.

    Returns one tensor, or a tuple for several outputs. The first call on a device compiles; so that
    nothing is compiled inside a CUDA graph, capture after one call or after ``warmup``.
    """

    def __init__(self, plan: Plan, steps: tuple[Step, ...] = ()) -> None:
        """Emit the kernels, or take other ``steps`` on the tensors of the plan. Raises
        ScheduleError where its back end cannot express the plan.
        """
        self.plan = plan
        program = plan.ugraph.program
        self.steps = steps or emit_steps(plan)
        super().__init__(len(program.inputs))
        self.inputs = tuple(ExpectedInput(t) for t in program.inputs)
        self.outputs = tuple(o.tensor for o in program.outputs)
        self.memory = (*program.inputs, *self.outputs, *plan.ugraph.intermediates)
        self._place = {t.name: n for n, t in enumerate(self.memory)}
        self._launches: dict[int, tuple[Action, ...]] = {}

    def run_into(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Compute into ``outputs``, row-major tensors of the right shapes, types and device.

        Inputs must lie as the program says: nothing is checked or copied.
        """
        self._run(inputs, outputs, outputs[0].device)

    def run_in_place(
        self, inputs: Sequence[torch.Tensor], targets: Mapping[int, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """As a call of a placed plan: outputs number so-and-so are these tensors, and the others
        fresh ones. Raises InputError where a target is not as the plan has it.
        """
        accepted, device = self._accept(tuple(inputs))
        for number, target in targets.items():
            if ExpectedInput(self.outputs[number]).accept(target, device) is not target:
                raise InputError(
                    f"'{self.outputs[number].name}' lies otherwise than the kernel writes it",
                    where="kernel output",
                    repair="begin it at a multiple of 16 bytes, without gaps",
                )
        outputs = tuple(
            targets[n] if n in targets else empty(t, device) for n, t in enumerate(self.outputs)
        )
        self._run(accepted, outputs, device)
        return outputs

    def run_poisoned(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As a call, with NaN in outputs and intermediates first.

        For checks: fresh memory often still holds an earlier right answer.
        """
        accepted, device = self._accept(inputs)
        outputs = tuple(self._poisoned(t, device) for t in self.outputs)
        between = [self._poisoned(t, device) for t in self.plan.ugraph.intermediates]
        self._run(accepted, outputs, device, between)
        return outputs

    def warmup(self, device: torch.device | None = None) -> None:
        """Compile and load the kernels on a device, by default the current one."""
        import torch

        index = device.index if device is not None else None
        self._prepare(torch.cuda.current_device() if index is None else index)

    # -- inside ----------------------------------------------------------------------------------

    def _first_call(self, inputs: Sequence[torch.Tensor]) -> Any:
        accepted, device = self._accept(tuple(inputs))
        result = self._launched(accepted, device)
        if all(a is x for a, x in zip(accepted, inputs, strict=True)):
            fresh = (*self.outputs, *self.plan.ugraph.intermediates)
            launches = self._launches[device.index]
            call = repeated(launches, fresh, len(self.outputs), device, self._checked_call)
            self._remember(inputs, call)
        return result

    def _checked_call(self, inputs: Sequence[torch.Tensor]) -> Any:
        return self._launched(*self._accept(tuple(inputs)))

    def _launched(self, accepted: Sequence[torch.Tensor], device: torch.device) -> Any:
        outputs = tuple(empty(t, device) for t in self.outputs)
        self._run(accepted, outputs, device)
        return outputs[0] if len(outputs) == 1 else outputs

    def _accept(
        self, inputs: tuple[torch.Tensor, ...]
    ) -> tuple[tuple[torch.Tensor, ...], torch.device]:
        import torch

        check_tensors(inputs, [e.tensor.name for e in self.inputs])
        device = inputs[0].device if inputs else torch.device("cuda", torch.cuda.current_device())
        check_device(device)
        check_detached(inputs, self.inputs)
        accepted = tuple(
            spec.accept(v, device) for v, spec in zip(inputs, self.inputs, strict=True)
        )
        return accepted, device

    def _poisoned(self, tensor: Tensor, device: torch.device) -> torch.Tensor:
        fresh = empty(tensor, device)
        return fresh.fill_(poison(fresh.dtype))

    def _run(
        self,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        device: torch.device,
        between: Sequence[torch.Tensor] | None = None,
    ) -> None:
        import torch

        if between is None:
            between = [empty(t, device) for t in self.plan.ugraph.intermediates]
        memory = [*inputs, *outputs, *between]
        index = device.index
        stream_of = stream_function()
        launches = self._launches.get(index) or self._prepare(index)
        elsewhere = index != torch.cuda.current_device()
        with torch.cuda.device(index) if elsewhere else contextlib.nullcontext():
            run_all(launches, memory, stream_of(index))
            for held, wanted in zip(memory[len(inputs) :], outputs, strict=False):
                if held is not wanted:
                    wanted.copy_(held)

    def _prepare(self, index: int) -> tuple[Action, ...]:
        import torch

        check_outside_capture(index, "call it once, or warmup() it, before the capture")
        with torch.cuda.device(index):
            launches = tuple(self._loaded(step, index) for step in self.steps)
        self._launches[index] = launches
        return launches

    def _loaded(self, step: Step, index: int) -> Action:
        import torch

        if isinstance(step, TritonKernel):
            return self._triton(step, index)
        if isinstance(step, CudaKernel):
            return self._cuda(step, index)
        if isinstance(step, KernelFile):
            return self._file(step)
        if isinstance(step, TorchStep):
            return program_action(step, self._place, torch.device("cuda", index))
        return torch_action(step, self._place)

    def _file(self, step: KernelFile) -> Action:
        start = load_module(step.source, step.name).launch
        places = [self._place[t.name] for t in step.pointers]

        def launch(memory: Sequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
            start(*(memory[p] for p in places))  # on torch's current stream

        return launch

    def _triton(self, step: TritonKernel, index: int) -> Action:
        facts = [(list(t.shape), list(t.element_strides)) for t in step.pointers]
        arguments = arguments_of(step, [self._place[t.name] for t in step.pointers], facts)
        start, grid = triton_launcher(step, (), index), step.text.grid

        def launch(memory: Sequence[torch.Tensor], stream: int) -> None:
            start(grid, stream, arguments(memory))

        return launch

    def _cuda(self, step: CudaKernel, index: int) -> Action:
        import torch

        major, minor = torch.cuda.get_device_capability(index)
        pointers = [self._place[t.name] for t in step.pointers]
        mapped = [self._place[m.tensor] for m in step.tensor_maps]
        types = [self.memory[place].dtype for place in mapped]
        places = Places(pointers, tuple(zip(mapped, types, strict=True)))
        return cuda_launch(step, 10 * major + minor, index, places)
