"""The operator of torch that runs a fused convolution: ``mirage_py::fused_convolution``.

Its plan is text among the arguments, so that code that Inductor keeps on disk, and a saved graph,
launch the same kernel in another process. On a CPU it is torch's convolution with float32 sums.
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
    "fused_convolution(Tensor x, Tensor packed, Tensor? bias, Tensor? residual, str plan) -> Tensor"
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
    operator: torch._ops.OpOverload = torch.ops.mirage_py.fused_convolution.default
    return operator


@functools.cache
def _library() -> Any:
    # torch does not type it. What it registers is gone when it is.
    kind: Any = torch.library.Library
    return kind("mirage_py", "FRAGMENT")


def _on_gpu(
    x: torch.Tensor,
    packed: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    plan: str,
) -> torch.Tensor:
    run = fused_convolution_runner(*_read(plan), x.device.index or 0)
    return run(x, packed, bias, residual)


def _on_cpu(
    x: torch.Tensor,
    packed: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    plan: str,
) -> torch.Tensor:
    return reference(*_read(plan), x, packed, bias, residual)


def _described(
    x: torch.Tensor,
    packed: torch.Tensor,  # noqa: ARG001
    bias: torch.Tensor | None,  # noqa: ARG001
    residual: torch.Tensor | None,  # noqa: ARG001
    plan: str,
) -> torch.Tensor:
    spec, _ = _read(plan)
    return new_result(spec, x)
