"""Distances from float64, where results fail KernelBench's rule: is it the kernel, or eager?

The rule compares with what eager PyTorch computes in the type of the problem, whose own rounding
may be beyond the rule's tolerance: the exponential of a cumulative sum in bfloat16, say. So both,
and the peers, are compared with the same model in float64 on the same numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

Call = Callable[..., Any]

# Elements that are compared at a time.
_PIECE = 1 << 24
# Sums of squares in another order.
_NOISE = 1.0 + 1e-6


def judged(
    calls: Mapping[str, Call], model: torch.nn.Module, inputs: Sequence[Any], tolerance: float
) -> dict[str, Any]:
    """By call the share of elements outside of the tolerance, and the relative error in the norm;
    whether "ours" is outside in no more elements than "eager", and no farther off. Nothing where
    the model does not run in float64.
    """
    wide = [x.double() if _is_float(x) else x for x in inputs]
    try:
        exact = pytree.tree_leaves(copy.deepcopy(model).double()(*wide))
    except RuntimeError as error:
        return {"no_float64": f"{type(error).__name__}: {error}"[:200]}
    found = {}
    for name, call in calls.items():
        # A call may update statistics that the next one reads.
        given = copy.deepcopy(model) if name == "eager" else call
        outputs = pytree.tree_leaves(given(*inputs))
        found[name] = distance(outputs, exact, tolerance)
    ours, eager = found["ours"], found["eager"]
    is_closer = all(ours[key] <= _NOISE * eager[key] for key in ours)
    return {"from_float64": found, "closer_than_eager": is_closer}


def distance(
    outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], tolerance: float
) -> dict[str, float]:
    """Of all elements the share that is outside of ``tolerance``, as ``allclose`` has it, and the
    norm of the errors over that of the exact numbers.
    """
    outside = elements = 0
    errors = squares = 0.0
    for output, right in zip(outputs, exact, strict=True):
        pairs = zip(output.reshape(-1).split(_PIECE), right.reshape(-1).split(_PIECE), strict=True)
        for part, truth in pairs:
            apart = (part.double() - truth).abs()
            # What is infinite or NaN in both is no distance apart.
            apart = torch.where((part == truth) | (part.isnan() & truth.isnan()), 0.0, apart)
            outside += int((~(apart <= tolerance + tolerance * truth.abs())).sum())
            elements += part.numel()
            errors += float(apart.nan_to_num(nan=torch.inf).square().sum())
            squares += float(truth.nan_to_num(posinf=0.0, neginf=0.0).square().sum())
    norm = (errors / squares) ** 0.5 if squares else float(errors > 0)
    return {"outside": outside / max(1, elements), "error": norm}


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()
