from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import TracedCall, trace_call
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.verify.shifts.safe_exp import add_safe_shifts


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def _agrees(fn: Callable[..., Any], *args: Any, single: bool = False, **kwargs: Any) -> TracedCall:
    """Trace ``fn``, evaluate the program in float64, and compare with torch in float64.

    ``single`` runs torch in float32, for functions that hold tensors of their own or cast.
    """
    signature = Signature.of(fn)
    with torch.no_grad():
        arguments = signature.bind(args, kwargs)
        traced = trace_call(signature, arguments)
        program = traced.program
        values = [_array(x) for x in traced.inputs(pytree.tree_leaves(arguments))]
        inputs = {t.name: v for t, v in zip(program.inputs, values, strict=True)}
        # With maxima where torch's softmax has them: logits may be as low as float32 goes.
        results = evaluate_program(add_safe_shifts(program), inputs, FloatMeaning())
        outputs = [torch.from_numpy(results[o.tensor.name].copy()) for o in program.outputs]
        ours = traced.pack(outputs)
        if not single:
            arguments = pytree.tree_map(_double, arguments)
        theirs = signature.call(arguments)
    got, want = pytree.tree_leaves(ours), pytree.tree_leaves(theirs)
    assert pytree.tree_structure(ours) == pytree.tree_structure(theirs)
    for mine, other in zip(got, want, strict=True):
        if isinstance(other, torch.Tensor):
            tolerance = 1e-9 if not single else 2e-4 if other.dtype is torch.float32 else 1e-2
            torch.testing.assert_close(
                mine, other.double(), atol=tolerance, rtol=tolerance, equal_nan=True
            )
        else:
            assert mine == other
    return traced


def _double(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


@pytest.fixture
def agrees() -> Callable[..., TracedCall]:
    """``agrees(fn, *inputs)`` fails unless the traced program computes what torch does."""
    torch.manual_seed(0)
    return _agrees


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(3, 5, 7)


@pytest.fixture
def y() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(3, 5, 7)
