"""Agreement of two calls of a function, in results and in what they write to their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Of the largest element: programs keep float32 between operators, eager keeps the tensors' type.
_ALLOWED = {torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}


def copied(arguments: Sequence[Any]) -> list[Any]:
    """The same arguments in memory of their own."""
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]


class Yardstick:
    """What eager makes of arguments: results, and the arguments afterwards. Where a call differs
    from that, both are held against the function in double precision: eager rounds after each
    operator, so a sum of halves may be far from the number that it stands for.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self._function = function
        self._given = arguments
        after = copied(arguments)
        self._wanted = function(*after), after

    def difference(self, found: Any, arguments: Sequence[Any]) -> str:
        """The first difference in words, empty where a call is as good as eager's."""
        words = difference((found, list(arguments)), self._wanted)
        if not words or self._exact is None:
            return words
        return difference((found, list(arguments)), self._wanted, self._exact)

    @cached_property
    def _exact(self) -> Any:
        after = copied(self._given)
        after = [x.double() if _is_float(x) else x for x in after]
        try:
            return self._function(*after), after
        # A function may insist on a type.
        except (RuntimeError, TypeError, ValueError):
            return None


def difference(found: Any, wanted: Any, exact: Any = None) -> str:
    """The first difference in words, empty where there is none: from what is ``wanted``, and where
    it is known from what is ``exact``, which nothing may be further from than the former.
    """
    ours, ours_as = pytree.tree_flatten(found)
    theirs, theirs_as = pytree.tree_flatten(wanted)
    if ours_as != theirs_as:
        return f"a result is {ours_as}, not {theirs_as}"
    known, known_as = pytree.tree_flatten(exact)
    known = known if known_as == theirs_as else [None] * len(theirs)
    for n, (a, b, c) in enumerate(zip(ours, theirs, known, strict=True)):
        words = _difference(a, b)
        if words and not (isinstance(c, torch.Tensor) and _is_as_near(a, b, c)):
            return f"number {n}: {words}"
    return ""


def _is_as_near(a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether a is as near to the exact numbers as b; of whole numbers each is one or the other."""
    if (a.shape, a.dtype) != (b.shape, b.dtype) or a.shape != exact.shape:
        return False
    if not b.dtype.is_floating_point:
        return bool(((a == b) | (a == exact)).all())
    if not (exact.isfinite().all() and a.isfinite().all()):
        return False
    ours, theirs = (float((x.double() - exact).abs().max()) for x in (a, b))
    return ours <= max(theirs, _step(b) * max(float(exact.abs().max()), 1e-6))


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype.is_floating_point


def _step(x: torch.Tensor) -> float:
    # A number of eight bits is one step off where what it was made of is.
    return 0.07 if x.element_size() == 1 else _ALLOWED[x.dtype]


def _difference(a: Any, b: Any) -> str:
    if not isinstance(b, torch.Tensor) or not isinstance(a, torch.Tensor):
        return "" if a == b else f"{a!r}, not {b!r}"
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
    if not b.dtype.is_floating_point:
        count = int((a != b).sum())
        return f"{count} elements of {b.numel()} differ" if count else ""
    step = _step(b)
    x, y = a.float(), b.float()
    finite = y.isfinite()
    others = [t[~finite].nan_to_num(0.0, 1.0, -1.0) for t in (x, y)]
    if not torch.equal(x.isfinite(), finite) or not torch.equal(*others):
        return "infinities or NaN elsewhere"
    if not finite.any():
        return ""
    error = float((x - y)[finite].abs().max()) / max(float(y[finite].abs().max()), 1e-6)
    return f"off by {error:.2g} of the largest element" if not error <= step else ""
