"""Whether two calls of a function agree in results and in what they leave in their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Of the largest element: programs keep float32 between operators, eager keeps the tensors' type.
_ALLOWED = {torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}


def copied(arguments: Sequence[Any]) -> list[Any]:
    """The same arguments in memory of their own."""
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]


def difference(found: Any, wanted: Any) -> str:
    """The first difference in words, empty where there is none."""
    ours, ours_as = pytree.tree_flatten(found)
    theirs, theirs_as = pytree.tree_flatten(wanted)
    if ours_as != theirs_as:
        return f"a result is {ours_as}, not {theirs_as}"
    for n, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if words := _difference(a, b):
            return f"number {n}: {words}"
    return ""


def _difference(a: Any, b: Any) -> str:
    if not isinstance(b, torch.Tensor) or not isinstance(a, torch.Tensor):
        return "" if a == b else f"{a!r}, not {b!r}"
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
    if not b.dtype.is_floating_point:
        count = int((a != b).sum())
        return f"{count} elements of {b.numel()} differ" if count else ""
    # A number of eight bits is one step off where what it was made of is.
    step = 0.07 if b.element_size() == 1 else _ALLOWED[b.dtype]
    x, y = a.float(), b.float()
    finite = y.isfinite()
    others = [t[~finite].nan_to_num(0.0, 1.0, -1.0) for t in (x, y)]
    if not torch.equal(x.isfinite(), finite) or not torch.equal(*others):
        return "infinities or NaN elsewhere"
    if not finite.any():
        return ""
    error = float((x - y)[finite].abs().max()) / max(float(y[finite].abs().max()), 1e-6)
    return f"off by {error:.2g} of the largest element" if not error <= step else ""
