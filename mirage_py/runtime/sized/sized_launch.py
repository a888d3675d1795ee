"""Plans with sizes that are known at launch: one kernel, called at any size that its tiles allow.

As triton does for functions that it compiles itself, a kernel is compiled once more for arguments
that are multiples of 16, which lets loads along such an axis be wide; not where a plan asks for one
variant.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.runtime.base.emission import KernelFile, Step, emit_steps
from mirage_py.runtime.launch.actions import Action, run_all, torch_action
from mirage_py.runtime.launch.cached_calls import CachedCalls
from mirage_py.runtime.launch.input_check import (
    check_detached,
    check_device,
    check_outside_capture,
    check_tensors,
)
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.launch.launch_triton import Launcher, arguments_of, triton_launcher
from mirage_py.runtime.launch.repeated_launch import empty, repeated, stream_function
from mirage_py.runtime.sized.sized_calls import SizedCall, SizedCalls
from mirage_py.shapes.predicate import SizePredicate
from mirage_py.ugraph.checks.run_time_sizes import run_time_dims
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.tiles_text import tiles_of

if TYPE_CHECKING:
    import torch

_ALIGNED = 16
_WARM_UP = "call it once with these shapes, or warmup(...) it, before the capture"

# (kernel, scalars that are multiples of 16, device) -> a loaded kernel
Loader = Callable[[TritonKernel, tuple[int, ...], int], Launcher]


def runner_of(plan: Plan) -> PlanRunner | SizedRunner:
    """What runs a plan on a GPU."""
    return SizedRunner(plan) if run_time_dims(plan) else PlanRunner(plan)


class SizedRunner(CachedCalls):
    """A plan with run-time sizes as a function of torch tensors, in the order of
    ``program.inputs``.

    ``validity`` says for which sizes. Returns one tensor, or a tuple for several outputs. A first
    call, and one whose sizes are the first to be multiples of 16, or not to be, compiles; so that
    nothing is compiled inside a CUDA graph, ``warmup`` compiles for a shape beforehand.
    """

    def __init__(self, plan: Plan, load: Loader | None = None) -> None:
        """Emit the kernels; ``load`` stands in for the GPU in tests.

        Raises ScheduleError where Triton cannot express the plan.
        """
        self.plan = plan
        # Where the plan came from, for dispatch tables.
        self.source = "loaded"
        program = plan.ugraph.program
        super().__init__(len(program.inputs))
        self.steps = emit_steps(plan)
        self.calls = SizedCalls(plan, self.steps)
        names = (*program.inputs, *(o.tensor for o in program.outputs), *plan.ugraph.intermediates)
        self._place = {t.name: n for n, t in enumerate(names)}
        self._load = load or triton_launcher
        self._is_one = any(options.one_variant for options in plan.options)
        self._is_emulated = load is not None
        self._launchers: dict[Hashable, Launcher] = {}

    @property
    def validity(self) -> SizePredicate:
        """For which sizes it is right."""
        return self.calls.validity

    @property
    def description(self) -> str:
        """The tiles, in a line."""
        return tiles_of(self.plan)

    @property
    def compiled(self) -> int:
        """How many kernels were compiled."""
        return len(self._launchers)

    def warmup(self, *inputs: torch.Tensor) -> None:
        """Compile and load what a call with these inputs needs."""
        device, call = self._call(inputs)
        for step, scalars in zip(self.steps, call.scalars, strict=True):
            if isinstance(step, TritonKernel):
                self._launcher(step, scalars, _index(device))

    # -- inside ----------------------------------------------------------------------------------

    def _first_call(self, inputs: Sequence[torch.Tensor]) -> Any:
        accepted, result, call, device = self._launched(inputs)
        if all(a is x for a, x in zip(accepted, inputs, strict=True)):
            actions = call.actions[_index(device)]
            fresh = (*call.outputs, *call.between)
            again = repeated(actions, fresh, len(call.outputs), device, self._checked_call)
            self._remember(inputs, again)
        return result

    def _checked_call(self, inputs: Sequence[torch.Tensor]) -> Any:
        return self._launched(inputs)[1]

    def _launched(
        self, inputs: Sequence[torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], Any, SizedCall, torch.device]:
        device, call = self._call(inputs)
        accepted = [e.accept(v, device) for e, v in zip(call.inputs, inputs, strict=True)]
        outputs = tuple(empty(t, device) for t in call.outputs)
        memory = [*accepted, *outputs, *(empty(t, device) for t in call.between)]
        self._run(call, memory, device)
        outputs = tuple(memory[len(accepted) : len(accepted) + len(outputs)])
        return accepted, outputs[0] if len(outputs) == 1 else outputs, call, device

    def _call(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.device, SizedCall]:
        check_tensors(inputs, [t.name for t in self.plan.ugraph.program.inputs])
        device = inputs[0].device
        if not self._is_emulated:
            check_device(device)
        call = self.calls.of(inputs)
        check_detached(inputs, call.inputs)
        return device, call

    def _run(
        self, call: SizedCall, memory: MutableSequence[torch.Tensor], device: torch.device
    ) -> None:
        index = _index(device)
        actions = call.actions.get(index)
        if actions is None:
            rows = zip(self.steps, call.grids, call.scalars, strict=True)
            actions = tuple(self._action(call, *row, index) for row in rows)
            call.actions[index] = actions
        if self._is_emulated:
            run_all(actions, memory, 0)
            return
        import torch

        with torch.cuda.device(index):
            run_all(actions, memory, stream_function()(index))

    def _action(
        self, call: SizedCall, step: Step, grid: int, scalars: tuple[int, ...], index: int
    ) -> Action:
        if isinstance(step, TritonKernel):
            launch = self._launcher(step, scalars, index)
            tensors = [call.tensors[t.name] for t in step.pointers]
            facts = [(list(t.shape), list(t.element_strides)) for t in tensors]
            arguments = arguments_of(step, [self._place[t.name] for t in tensors], facts)

            def kernel(memory: Sequence[torch.Tensor], stream: int) -> None:
                launch(grid, stream, [*arguments(memory), *scalars])

            return kernel
        # Triton's kernels alone have run-time sizes.
        assert not isinstance(step, CudaKernel | KernelFile)
        return torch_action(step, self._place)

    def _launcher(self, step: TritonKernel, scalars: tuple[int, ...], index: int) -> Launcher:
        aligned = tuple(
            n for n, value in enumerate(scalars) if value % _ALIGNED == 0 and not self._is_one
        )
        key = (step.name, aligned, index)
        found = self._launchers.get(key)
        if found is None:
            if not self._is_emulated:
                check_outside_capture(index, _WARM_UP)
            first = len(step.pointers)
            places = tuple(first + n for n in aligned)
            found = self._launchers[key] = self._load(step, places, index)
        return found


def _index(device: torch.device) -> int:
    return device.index or 0
