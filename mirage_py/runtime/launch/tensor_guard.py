"""One query to torch whether tensors are like those of an earlier call.

A tensor has a dozen properties that a kernel was made for, and each costs Python 0.1 us to read.
torch.compile asks the same of its graphs at every call, in C++; its guards are used here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Asked with as many values as there were tensors; another number of them is an error.
Fits = Callable[..., bool]


def has_tangents(tensors: Sequence[object]) -> bool:
    """Whether some tensor carries a tangent of forward-mode gradients (``forward_ad``)."""
    import torch

    if not in_dual_level():
        return False
    of = _forward_ad().unpack_dual
    return any(isinstance(t, torch.Tensor) and of(t).tangent is not None for t in tensors)


def in_dual_level() -> bool:
    """Whether tensors may carry tangents now, which torch's guards do not see."""
    return getattr(_forward_ad(), "_current_level", -1) >= 0


@cache
def _forward_ad() -> Any:
    from torch.autograd import forward_ad

    return forward_ad


def never(*_: object) -> bool:
    """Fits nothing."""
    return False


def alike(tensors: Sequence[torch.Tensor]) -> Fits:
    """Whether others have, place by place, the class, element type, device, shape and strides of
    these, require a gradient as these do (in the grad mode there is now, where one does), and are
    dispatched as these are.

    How torch dispatches says the rest: layout, negation as it is read, and whether a dispatch mode,
    tracing or a transform like vmap watches the call. Not asked: values, addresses.
    """
    import torch

    try:
        from torch._C._dynamo.guards import TensorGuards
    except ImportError:  # another torch than those that are known: everything is asked in Python
        return never

    def guard(*of: torch.Tensor) -> Fits:
        made: Any = TensorGuards(*of, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        check: Fits = made.check
        return check

    fits = guard(*tensors)
    if not fits(*tensors):
        # One tensor twice is refused there: one guard for each place.
        each = [guard(t) for t in tensors]
        fits = partial(_one_by_one, each)
    if any(t.requires_grad for t in tensors):
        # The guard knows the tensors' own wish alone.
        return partial(_in_grad_mode, fits, torch.is_grad_enabled, torch.is_grad_enabled())
    return fits


def _one_by_one(each: Sequence[Fits], *values: torch.Tensor) -> bool:
    return all(fits(v) for fits, v in zip(each, values, strict=True))


def _in_grad_mode(fits: Fits, mode: Callable[[], bool], then: bool, *values: torch.Tensor) -> bool:
    return mode() is then and fits(*values)
