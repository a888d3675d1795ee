"""The torch operator that runs a fused convolution: ``mirage_py::fused_convolution``.

Its plan is passed as text, so that code cached by Inductor, or a saved graph, launches the same
kernel in another process. On a CPU it runs torch's convolution with float32 sums; gradients are
torch's.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from mirage_py.runtime.launch.fused_convolution import (
    fused_convolution_runner,
    new_result,
    reference,
)
from mirage_py.ugraph.ir.convolution import read_plan

_SCHEMA = (
    "fused_convolution(Tensor x, Tensor? packed, Tensor? bias, Tensor? residual, str plan)"
    " -> Tensor"
)
_NAME = "mirage_py::fused_convolution"
_read = functools.cache(read_plan)


@functools.cache
def convolution_operator() -> torch._ops.OpOverload:
    """The operator; registered at the first call."""
    library = _library()
    library.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    library.impl("fused_convolution", _on_cpu, "CPU")
    library.impl("fused_convolution", _on_gpu, "CUDA")
    torch.library.register_fake(_NAME, _described, lib=library)
    torch.library.register_autograd(_NAME, _gradients, setup_context=_keep, lib=library)
    operator: torch._ops.OpOverload = torch.ops.mirage_py.fused_convolution.default
    return operator


@functools.cache
def _library() -> Any:
    # torch does not type it. What it registers is gone when it is.
    kind: Any = torch.library.Library
    return kind("mirage_py", "FRAGMENT")


def _on_gpu(
    x: torch.Tensor,
    packed: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    plan: str,
) -> torch.Tensor:
    run = fused_convolution_runner(*_read(plan), x.device.index or 0)
    return run(x, packed, bias, residual)


def _on_cpu(
    x: torch.Tensor,
    packed: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    plan: str,
) -> torch.Tensor:
    return reference(*_read(plan), x, packed, bias, residual)


def _described(
    x: torch.Tensor,
    packed: torch.Tensor | None,  # noqa: ARG001
    bias: torch.Tensor | None,  # noqa: ARG001
    residual: torch.Tensor | None,  # noqa: ARG001
    plan: str,
) -> torch.Tensor:
    spec, _ = _read(plan)
    return new_result(spec, x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    del output  # the gradient computes what it needs again
    *tensors, ctx.plan = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """By torch's operators, over the convolution computed once more."""
    wanted = ctx.needs_input_grad[:-1]
    given = [
        None if x is None else x.detach().requires_grad_(is_wanted)
        for x, is_wanted in zip(ctx.saved_tensors, wanted, strict=True)
    ]
    x, packed, bias, residual = given
    assert x is not None
    with torch.enable_grad():
        result = reference(*_read(ctx.plan), x, packed, bias, residual)
    leaves = [t for t in given if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(result, leaves, upstream))
    return (*(next(found) if t is not None and t.requires_grad else None for t in given), None)
