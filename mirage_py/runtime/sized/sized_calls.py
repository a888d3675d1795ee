"""The arguments of a call of a plan with run-time sizes, from the shapes and strides of its inputs.

Shapes of results, blocks of each grid, arguments: worked out once for each combination, and cached.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage_py.codegen.tiling.descriptors import GRANULE_BYTES
from mirage_py.codegen.tiling.valid_sizes import largest_sizes
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import InputError
from mirage_py.runtime.base.emission import Step
from mirage_py.runtime.launch.actions import Action
from mirage_py.runtime.launch.input_check import ExpectedInput
from mirage_py.shapes.policy import LARGEST_SIZE
from mirage_py.shapes.predicate import SizePredicate
from mirage_py.ugraph.checks.run_time_sizes import (
    at_sizes,
    run_time_dims,
    run_time_sizes,
    source_of,
)
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor

if TYPE_CHECKING:
    import torch

# Combinations of shapes and strides that are cached.
_MOST_KEPT = 4096


@dataclass(frozen=True, slots=True)
class SizedCall:
    """Everything about a call that follows from the shapes and strides of its inputs."""

    inputs: tuple[ExpectedInput, ...]
    outputs: tuple[Tensor, ...]
    between: tuple[Tensor, ...]
    # Of each step: blocks of its grid, and arguments after its pointers.
    grids: tuple[int, ...]
    scalars: tuple[tuple[int, ...], ...]
    # Every tensor of the plan as it lies in this call.
    tensors: Mapping[str, Tensor]
    # By device, where it was called before.
    actions: dict[int, tuple[Action, ...]] = field(default_factory=dict)


class SizedCalls:
    """Calls of a plan, whose emitted ``steps`` are Triton's; ``validity`` says for which sizes."""

    def __init__(self, plan: Plan, steps: Sequence[Step]) -> None:
        self.plan = plan
        dims, largest = run_time_dims(plan), largest_sizes(plan, LARGEST_SIZE)
        self.validity = SizePredicate.ranges({d: (1, largest[d]) for d in dims})
        self._steps = steps
        self._sources = {d: self._source(d) for d in dims}
        self._at_run_time = run_time_sizes(plan).strides
        self._described = {t for s in steps if isinstance(s, TritonKernel) for t in s.text.tiles}
        self._kept: dict[Hashable, SizedCall] = {}

    def sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The run-time sizes that inputs of these shapes have."""
        return {d: shapes[place][axis] for d, (place, axis) in self._sources.items()}

    def of(self, inputs: Sequence[torch.Tensor]) -> SizedCall:
        """The call with these inputs. Raises InputError for shapes that the plan does not reach."""
        key = tuple([(x.shape, x.stride()) for x in inputs])
        call = self._kept.get(key)
        if call is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            call = self._kept[key] = self._worked_out(inputs)
        return call

    def _source(self, dim: str) -> tuple[int, int]:
        program = self.plan.ugraph.program
        found = source_of(program, dim)
        assert found is not None, "with_run_time_sizes refuses such a plan"
        return [t.name for t in program.inputs].index(found[0]), found[1]

    def _worked_out(self, inputs: Sequence[torch.Tensor]) -> SizedCall:
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
        tensors = {**sized.tensors, **{e.tensor.name: e.tensor for e in expected}}
        strides = {name: tensor.element_strides for name, tensor in tensors.items()}
        return SizedCall(
            expected,
            tuple(o.tensor for o in sized.program.outputs),
            sized.intermediates,
            tuple(_blocks(step, sized.program.sizes) for step in self._steps),
            tuple(_scalars(step, sized.program.sizes, strides) for step in self._steps),
            tensors,
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


def _blocks(step: Step, sizes: Mapping[str, int]) -> int:
    return step.text.blocks(sizes) if isinstance(step, TritonKernel) else 0


def _scalars(
    step: Step, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    if not isinstance(step, TritonKernel):
        return ()
    return tuple(scalar.value(sizes, strides) for scalar in step.text.scalars)
