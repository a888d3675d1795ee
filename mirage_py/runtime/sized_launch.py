"""Plans with sizes that are known at launch: one kernel, called at any size that its tiles allow.

What a call needs (shapes of results, blocks of each grid, arguments) follows from the shapes and
strides of its inputs. It is worked out once for each combination of them and kept. As triton does
for functions that it compiles itself, a kernel is compiled once more for arguments that are
multiples of 16, which lets loads along such an axis be wide.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirage_py.codegen.triton.descriptors import GRANULE_BYTES
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.codegen.valid_sizes import largest_sizes
from mirage_py.errors import InputError
from mirage_py.runtime import library
from mirage_py.runtime.emission import Step, ZeroFill, emit_steps
from mirage_py.runtime.input_check import ExpectedInput, check_detached, check_device
from mirage_py.runtime.known_calls import KnownCalls
from mirage_py.runtime.launch import PlanRunner
from mirage_py.runtime.launch_triton import Launcher, arguments_of, triton_launcher
from mirage_py.runtime.repeated_launch import Action, empty, repeated, stream_function
from mirage_py.shapes.policy import LARGEST_SIZE
from mirage_py.shapes.predicate import SizePredicate
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Tensor
from mirage_py.ugraph.run_time_sizes import at_sizes, run_time_dims, run_time_sizes, source_of
from mirage_py.ugraph.tiles_text import tiles_of
from mirage_py.ugraph.ugraph import LibraryCall

if TYPE_CHECKING:
    import torch

# Combinations of shapes and strides whose launches are kept.
_MOST_KEPT = 4096
_ALIGNED = 16

# (kernel, scalars that are multiples of 16, device) -> a loaded kernel
Loader = Callable[[TritonKernel, tuple[int, ...], int], Launcher]


def runner_of(plan: Plan) -> PlanRunner | SizedRunner:
    """What runs a plan on a GPU."""
    return SizedRunner(plan) if run_time_dims(plan) else PlanRunner(plan)


@dataclass(frozen=True, slots=True)
class _SizedCall:
    """Everything about a call that follows from the shapes and strides of its inputs."""

    inputs: tuple[ExpectedInput, ...]
    outputs: tuple[Tensor, ...]
    between: tuple[Tensor, ...]
    grids: tuple[int, ...]
    scalars: tuple[tuple[int, ...], ...]
    # Every tensor of the plan as it lies in this call.
    tensors: Mapping[str, Tensor]
    # By device, where it was called before.
    actions: dict[int, tuple[Action, ...]] = field(default_factory=dict)


class SizedRunner(KnownCalls):
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
        # Where the plan came from, for dispatch tables, and what is known of it.
        self.source = "loaded"
        self.report: Mapping[str, Any] = {}
        program = plan.ugraph.program
        super().__init__(len(program.inputs))
        self.dims = run_time_dims(plan)
        largest = largest_sizes(plan, LARGEST_SIZE)
        self.validity = SizePredicate.ranges({d: (1, largest[d]) for d in self.dims})
        self.steps = emit_steps(plan)
        self._sources = {d: self._source(d) for d in self.dims}
        self._at_run_time = run_time_sizes(plan).strides
        kernels = [s for s in self.steps if isinstance(s, TritonKernel)]
        self._described = {name for k in kernels for name in k.text.tiles}
        names = (*program.inputs, *(o.tensor for o in program.outputs), *plan.ugraph.intermediates)
        self._place = {t.name: n for n, t in enumerate(names)}
        self._calls: dict[Hashable, _SizedCall] = {}
        self._load = load or triton_launcher
        self._is_stand_in = load is not None
        self._launchers: dict[Hashable, Launcher] = {}

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

    def sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The run-time sizes that inputs of these shapes have."""
        return {d: shapes[place][axis] for d, (place, axis) in self._sources.items()}

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
    ) -> tuple[Sequence[torch.Tensor], Any, _SizedCall, torch.device]:
        device, call = self._call(inputs)
        accepted = [e.accept(v, device) for e, v in zip(call.inputs, inputs, strict=True)]
        outputs = tuple(empty(t, device) for t in call.outputs)
        memory = (*accepted, *outputs, *(empty(t, device) for t in call.between))
        self._run(call, memory, device)
        return accepted, outputs[0] if len(outputs) == 1 else outputs, call, device

    def _source(self, dim: str) -> tuple[int, int]:
        program = self.plan.ugraph.program
        found = source_of(program, dim)
        assert found is not None, "with_run_time_sizes refuses such a plan"
        return [t.name for t in program.inputs].index(found[0]), found[1]

    def _call(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.device, _SizedCall]:
        program = self.plan.ugraph.program
        if len(inputs) != len(program.inputs):
            names = ", ".join(t.name for t in program.inputs)
            raise InputError(
                f"{len(inputs)} tensors for {len(program.inputs)} inputs",
                where="kernel input",
                repair=f"pass {names}",
            )
        device = inputs[0].device
        key = tuple([(x.shape, x.stride()) for x in inputs])
        call = self._calls.get(key)
        if call is None:
            if not self._is_stand_in:
                check_device(device)
            if len(self._calls) >= _MOST_KEPT:
                self._calls.clear()
            call = self._calls[key] = self._worked_out(inputs)
        check_detached(tuple(inputs), call.inputs)
        return device, call

    def _worked_out(self, inputs: Sequence[torch.Tensor]) -> _SizedCall:
        planned = self.plan.ugraph.program.inputs
        for value, tensor in zip(inputs, planned, strict=True):
            if value.dim() != len(tensor.shape):
                raise InputError(
                    f"'{tensor.name}' has shape {list(value.shape)}",
                    where="kernel input",
                    why=f"the kernel takes {len(tensor.shape)} axes",
                    repair="optimise the program for this shape",
                )
        sizes = self.sizes([x.shape for x in inputs])
        if not self.validity.holds(sizes):
            have = ", ".join(f"{d} = {n}" for d, n in sizes.items())
            raise InputError(
                f"the sizes are {have}",
                where="kernel input",
                why=f"the kernel is right for {self.validity}",
                repair="optimise the program for this shape",
            )
        sized = at_sizes(self.plan, sizes).ugraph
        expected = tuple(map(self._expected, sized.program.inputs, inputs))
        strides: dict[str, Sequence[int]] = {
            t.name: t.element_strides for t in sized.tensors.values()
        }
        strides |= {e.tensor.name: e.tensor.element_strides for e in expected}
        return _SizedCall(
            tuple(map(ExpectedInput, (e.tensor for e in expected))),
            tuple(o.tensor for o in sized.program.outputs),
            sized.intermediates,
            tuple(_blocks(step, sized.program.sizes) for step in self.steps),
            tuple(_scalars(step, sized.program.sizes, strides) for step in self.steps),
            {**sized.tensors, **{e.tensor.name: e.tensor for e in expected}},
        )

    def _expected(self, tensor: Tensor, value: torch.Tensor) -> ExpectedInput:
        """How an input has to lie: strides that are arguments may be what they are."""
        free = self._at_run_time.get(tensor.name, ())
        strides = tuple(
            have if axis in free else want
            for axis, (want, have) in enumerate(
                zip(tensor.element_strides, value.stride(), strict=True)
            )
        )
        steps = [
            s * tensor.dtype.bytes for s, n in zip(strides, tensor.shape, strict=True) if n > 1
        ]
        if tensor.name in self._described and any(s % GRANULE_BYTES for s in steps[:-1]):
            return ExpectedInput(tensor)
        if tuple(value.shape) == tensor.shape and strides == tuple(value.stride()):
            return ExpectedInput(Tensor(tensor.name, tensor.shape, tensor.dtype, strides))
        return ExpectedInput(tensor)

    def _run(self, call: _SizedCall, memory: Sequence[torch.Tensor], device: torch.device) -> None:
        index = _index(device)
        actions = call.actions.get(index)
        if actions is None:
            rows = zip(self.steps, call.grids, call.scalars, strict=True)
            actions = tuple(self._action(call, *row, index) for row in rows)
            call.actions[index] = actions
        if self._is_stand_in:
            _run_all(actions, memory, 0)
            return
        import torch

        with torch.cuda.device(index):
            _run_all(actions, memory, stream_function()(index))

    def _action(
        self, call: _SizedCall, step: Step, grid: int, scalars: tuple[int, ...], index: int
    ) -> Action:
        if isinstance(step, TritonKernel):
            launch = self._launcher(step, scalars, index)
            tensors = [call.tensors[t.name] for t in step.pointers]
            facts = [(list(t.shape), list(t.element_strides)) for t in tensors]
            arguments = arguments_of(step, [self._place[t.name] for t in tensors], facts)

            def kernel(memory: Sequence[torch.Tensor], stream: int) -> None:
                launch(grid, stream, [*arguments(memory), *scalars])

            return kernel
        if isinstance(step, ZeroFill):
            zeroed = self._place[step.tensor]

            def zero(memory: Sequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
                memory[zeroed].zero_()

            return zero
        assert isinstance(step, LibraryCall)  # no back end but Triton's has run-time sizes
        function = library.library_function(step.op)
        given = [self._place[name] for name in step.args]
        result = self._place[step.result]

        def called(memory: Sequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
            function(*(memory[p] for p in given), out=memory[result])

        return called

    def _launcher(self, step: TritonKernel, scalars: tuple[int, ...], index: int) -> Launcher:
        aligned = tuple(n for n, value in enumerate(scalars) if value % _ALIGNED == 0)
        key = (step.name, aligned, index)
        found = self._launchers.get(key)
        if found is None:
            if not self._is_stand_in:
                _refuse_in_capture(index)
            first = len(step.pointers)
            places = tuple(first + n for n in aligned)
            found = self._launchers[key] = self._load(step, places, index)
        return found


def _run_all(actions: Sequence[Action], memory: Sequence[torch.Tensor], stream: int) -> None:
    for action in actions:
        action(memory, stream)


def _blocks(step: Step, sizes: Mapping[str, int]) -> int:
    return step.text.blocks(sizes) if isinstance(step, TritonKernel) else 0


def _scalars(
    step: Step, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    if not isinstance(step, TritonKernel):
        return ()
    return tuple(scalar.value(sizes, strides) for scalar in step.text.scalars)


def _index(device: torch.device) -> int:
    return device.index or 0


def _refuse_in_capture(index: int) -> None:
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise InputError(
            "the first call of this kind is inside a CUDA graph capture",
            where=f"cuda:{index}",
            why="kernels are compiled and loaded at the first call",
            repair="call it once with these shapes, or warmup(...) it, before the capture",
        )
