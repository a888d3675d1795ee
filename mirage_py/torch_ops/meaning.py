"""The meaning of an operator besides its kernel: shapes of results, the function in plain PyTorch,
and its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.checks.run_time_sizes import program_at_sizes, run_time_dims, source_of
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor

Tensors = tuple[torch.Tensor, ...]


class OperatorMeaning:
    """A program as shapes, values and gradients; sizes known at launch come from the inputs."""

    def __init__(self, program: Program, plan: Plan | None) -> None:
        self.program = program
        dims = run_time_dims(plan) if plan is not None else ()
        names = [t.name for t in program.inputs]
        self._sources: dict[str, tuple[int, int]] = {}
        for dim in dims:
            found = source_of(program, dim)
            assert found is not None, "with_run_time_sizes refuses such a plan"
            self._sources[dim] = names.index(found[0]), found[1]
        self._references: dict[tuple[int, ...], Callable[..., Any]] = {}

    def sizes(self, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
        """The sizes that inputs have; symbols while a graph is traced."""
        return {d: inputs[n].shape[axis] for d, (n, axis) in self._sources.items()}

    def empty(self, inputs: Sequence[torch.Tensor]) -> Tensors:
        """Results without values: what tracing and launching begin with."""
        sizes = {**self.program.sizes, **self.sizes(inputs)}
        device = inputs[0].device
        return tuple(
            torch.empty(
                _shape(o.tensor, o.index, sizes, self._sources),
                dtype=getattr(torch, o.tensor.dtype.torch_name),
                device=device,
            )
            for o in self.program.outputs
        )

    def reference(self, inputs: Sequence[torch.Tensor]) -> Tensors:
        """The function in plain PyTorch, on any device, and differentiable."""
        sizes = {d: int(n) for d, n in self.sizes(inputs).items()}
        key = tuple(sizes.values())
        if key not in self._references:
            self._references[key] = torch_function(program_at_sizes(self.program, sizes))
        found = self._references[key](*inputs)
        results = found if isinstance(found, tuple) else (found,)
        # An operator of torch gives no view of an input, and lays its results out as it says.
        return tuple(
            r.contiguous().clone() if _is_view_of(r, inputs) else r.contiguous() for r in results
        )

    def gradients(
        self, inputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the inputs, by computing the function again in plain PyTorch."""
        with torch.enable_grad():
            fresh = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
            results = self.reference(fresh)
        wanted = [x for x in fresh if x.requires_grad]
        pairs = [(r, g) for r, g in zip(results, upstream, strict=True) if g is not None]
        pairs = [(r, g) for r, g in pairs if r.requires_grad]
        if not pairs or not wanted:
            return (None,) * len(inputs)
        found = torch.autograd.grad(
            [r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True
        )
        by_input = iter(found)
        return tuple(next(by_input) if x.requires_grad else None for x in fresh)


def _shape(
    tensor: Tensor, index: Sequence[Any], sizes: Mapping[str, int], changing: Mapping[str, Any]
) -> list[int]:
    shape: list[int] = []
    for extent, expr in zip(tensor.shape, index, strict=True):
        if expr.is_dim:
            shape.append(sizes[expr.name])
        elif any(d in changing for d in expr.dims()):
            shape.append(expr.bounds(sizes)[1] + 1)
        else:
            shape.append(extent)
    return shape


def _is_view_of(result: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    return any(result is x or result._base is x for x in inputs)  # noqa: SLF001
