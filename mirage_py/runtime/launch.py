"""Plans on the GPU: on torch's current stream, in torch's memory, in CUDA graphs too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mirage_py.codegen.cuda.cuda_kernel import CudaKernel
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import CompileError, InputError
from mirage_py.runtime import library
from mirage_py.runtime.compile import KernelSource, compiled_handle
from mirage_py.runtime.emission import Step, ZeroFill, emit_steps
from mirage_py.runtime.input_check import ExpectedInput, check_detached, check_device
from mirage_py.runtime.interpreted import run_interpreted
from mirage_py.runtime.launch_cuda import Launch, Places, cuda_launch
from mirage_py.runtime.poison import poison
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Tensor

if TYPE_CHECKING:
    import torch

__all__ = ["PlanRunner", "run_interpreted"]


class PlanRunner:
    """A plan as a function of torch tensors, in the order of ``program.inputs``.

    Returns one tensor, or a tuple for several outputs. The first call on a device compiles; so that
    nothing is compiled inside a CUDA graph, capture after one call or after ``warmup``.
    """

    def __init__(self, plan: Plan) -> None:
        """Emit the kernels. Raises ScheduleError where its back end cannot express the plan."""
        self.plan = plan
        program = plan.ugraph.program
        self.steps = emit_steps(plan)
        self.inputs = tuple(ExpectedInput(t) for t in program.inputs)
        self.outputs = tuple(o.tensor for o in program.outputs)
        self.memory = (*program.inputs, *self.outputs, *plan.ugraph.intermediates)
        self._place = {t.name: n for n, t in enumerate(self.memory)}
        self._launches: dict[int, tuple[Launch, ...]] = {}

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Compute the outputs in fresh tensors.

        A tensor that lies otherwise than the kernels expect is copied first. Raises InputError for
        a wrong number, shape, type or device, or for an input whose gradient would be lost, and
        CompileError when the GPU does not take a kernel.
        """
        accepted, device = self._accept(inputs)
        outputs = tuple(self._empty(t, device) for t in self.outputs)
        self._run(accepted, outputs, device)
        return outputs[0] if len(outputs) == 1 else outputs

    def run_into(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Compute into ``outputs``, row-major tensors of the right shapes, types and device.

        Inputs must lie as the program says: nothing is checked or copied.
        """
        self._run(inputs, outputs, outputs[0].device)

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

    def _accept(
        self, inputs: tuple[torch.Tensor, ...]
    ) -> tuple[tuple[torch.Tensor, ...], torch.device]:
        if len(inputs) != len(self.inputs):
            names = ", ".join(e.tensor.name for e in self.inputs)
            raise InputError(
                f"{len(inputs)} tensors for {len(self.inputs)} inputs",
                where="kernel input",
                repair=f"pass {names}",
            )
        import torch

        for value, spec in zip(inputs, self.inputs, strict=True):
            if not isinstance(value, torch.Tensor):
                raise InputError(
                    f"'{spec.tensor.name}' is a {type(value).__name__}, not a tensor",
                    where="kernel input",
                    repair="pass torch tensors on the GPU",
                )
        device = inputs[0].device if inputs else torch.device("cuda", torch.cuda.current_device())
        check_device(device)
        check_detached(inputs, self.inputs)
        accepted = tuple(
            spec.accept(v, device) for v, spec in zip(inputs, self.inputs, strict=True)
        )
        return accepted, device

    def _empty(self, tensor: Tensor, device: torch.device) -> torch.Tensor:
        import torch

        dtype = getattr(torch, tensor.dtype.torch_name)
        return torch.empty_strided(tensor.shape, tensor.element_strides, dtype=dtype, device=device)

    def _poisoned(self, tensor: Tensor, device: torch.device) -> torch.Tensor:
        fresh = self._empty(tensor, device)
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
            between = [self._empty(t, device) for t in self.plan.ugraph.intermediates]
        memory = (*inputs, *outputs, *between)
        index = device.index
        stream_of = _stream_function()
        launches = self._launches.get(index) or self._prepare(index)
        if index == torch.cuda.current_device():
            stream = stream_of(index)
            for launch in launches:
                launch(memory, stream)
            return
        with torch.cuda.device(index):
            stream = stream_of(index)
            for launch in launches:
                launch(memory, stream)

    def _prepare(self, index: int) -> tuple[Launch, ...]:
        import torch

        if torch.cuda.is_current_stream_capturing():
            raise InputError(
                "the first call on this device is inside a CUDA graph capture",
                where=f"cuda:{index}",
                why="kernels are compiled and loaded at the first call",
                repair="call it once, or warmup() it, before the capture",
            )
        major, minor = torch.cuda.get_device_capability(index)
        with torch.cuda.device(index):
            launches = tuple(self._loaded(step, 10 * major + minor, index) for step in self.steps)
        self._launches[index] = launches
        return launches

    def _loaded(self, step: Step, capability: int, index: int) -> Launch:
        if isinstance(step, TritonKernel):
            return _triton_launch(step, capability, [self._place[t.name] for t in step.pointers])
        if isinstance(step, CudaKernel):
            pointers = [self._place[t.name] for t in step.pointers]
            mapped = [self._place[m.tensor] for m in step.tensor_maps]
            types = [self.memory[place].dtype for place in mapped]
            places = Places(pointers, tuple(zip(mapped, types, strict=True)))
            return cuda_launch(step, capability, index, places)
        if isinstance(step, ZeroFill):
            zeroed = self._place[step.tensor]

            def zero(memory: Sequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
                memory[zeroed].zero_()

            return zero
        function = library.library_function(step.op)
        arguments = [self._place[name] for name in step.args]
        result = self._place[step.result]

        def call(memory: Sequence[torch.Tensor], stream: int) -> None:  # noqa: ARG001
            function(*(memory[a] for a in arguments), out=memory[result])

        return call


@cache
def _stream_function() -> Callable[[int], int]:
    """The current stream of a device as a number: torch's own short cut, or the long way."""
    try:
        from torch._C import _cuda_getCurrentRawStream as current
    except ImportError:  # a torch without CUDA
        import torch

        return lambda index: int(torch.cuda.current_stream(index).cuda_stream)
    found: Callable[[int], int] = current
    return found


def _triton_launch(kernel: TritonKernel, capability: int, places: Sequence[int]) -> Launch:
    """The kernel, loaded on the current device, with as little as possible left to do in a call."""
    from triton import knobs
    from triton.tools.tensor_descriptor import TensorDescriptor

    compiled = compiled_handle(KernelSource.of(kernel), capability)
    grid = kernel.text.grid
    try:
        with_hooks: Callable[..., None] = compiled[(grid, 1, 1)]
    except Exception as error:
        raise CompileError(
            f"the GPU does not take it: {error}",
            where=kernel.name,
            why=f"it asks for {compiled.metadata.shared} bytes of shared memory a block "
            f"and {kernel.options.num_warps} warps",
            repair="choose a plan with smaller tiles or fewer stages",
        ) from error
    run: Callable[..., None] = compiled.run
    function: Any = compiled.function
    metadata: Any = compiled.packed_metadata

    def is_watched() -> bool:
        # A chain of hooks since triton 3.5, one function or None before.
        hook = knobs.runtime.launch_enter_hook
        return bool(getattr(hook, "calls", hook))

    tiles = kernel.text.tiles
    # Strides as the kernel knows them: torch may say anything of an axis of one element.
    described = [
        (n, list(t.shape), list(t.element_strides), list(tiles[t.name]))
        for n, t in enumerate(kernel.pointers)
        if t.name in tiles
    ]

    def launch(memory: Sequence[torch.Tensor], stream: int) -> None:
        # Addresses as integers: for tensors triton asks the driver about every pointer.
        pointers: list[Any] = [memory[p].data_ptr() for p in places]
        for number, shape, strides, tile in described:
            pointers[number] = TensorDescriptor(memory[places[number]], shape, strides, tile)
        if is_watched():  # a profiler wants to know of every launch
            with_hooks(*pointers, stream=stream)
        else:
            run(grid, 1, 1, stream, function, metadata, None, None, None, *pointers)

    return launch
