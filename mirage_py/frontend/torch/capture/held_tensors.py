"""Tensors that a function holds, as inputs of its trace where it writes to them.

A trace takes what a function holds as it is. So a write would happen, while the function is traced:
before the first one the trace stops, and begins again with inputs in place of all that is held.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_IN_PLACE = ("__setitem__", *(f"__{name}__" for name in dir(operator) if name[:1] == "i"))

# An assignment to x.data: x has another memory afterwards, which no graph knows of.
_REPLACES = torch.Tensor.data.__set__  # type: ignore[attr-defined]
# x.data is x outside of autograd. As an attribute it goes past the graph, so export took what came
# of it for a constant.
_DETACHES = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class WritesToHeldError(BaseException):
    """The function is about to write to a tensor that is no input; no code of the user's catches
    it.
    """


class HeldTensors(TorchFunctionMode):
    """What is computed with in place of held tensors is ``given``; what an operator returns of it
    is the held one again, as in eager.
    """

    def __init__(self, held: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._instead = {id(t): other for t, other in zip(held, given, strict=True)}
        self._held = {id(other): t for t, other in zip(held, given, strict=True)}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Every operator, with the inputs of the trace."""
        del types
        kwargs = kwargs or {}
        if func == _REPLACES:
            raise NotImplementedError("it gives a tensor another memory")
        if func == _DETACHES:
            func, args = torch.Tensor.detach, args[:1]
        if self._instead:
            args, kwargs = pytree.tree_map_only(torch.Tensor, self.instead, (args, kwargs))
            result = func(*args, **kwargs)
            return self._held.get(id(result), result)
        if any(map(_is_real, (*args[:1], kwargs.get("out")))) and _writes(func, kwargs):
            raise WritesToHeldError
        return func(*args, **kwargs)

    def instead(self, tensor: torch.Tensor) -> torch.Tensor:
        """The input for a held tensor; others are themselves."""
        return self._instead.get(id(tensor), tensor)


def _is_real(value: Any) -> bool:
    # What vmap and grad wrap is the trace's own, whatever it is wrapped in.
    while isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value):
        value = get_unwrapped(value)
    return isinstance(value, torch.Tensor) and not isinstance(
        value,
        torch._subclasses.FakeTensor,  # noqa: SLF001
    )


def _writes(func: Callable[..., Any], kwargs: Mapping[str, Any]) -> bool:
    name = getattr(func, "__name__", "")
    plain = name.endswith("_") and not name.endswith("__")
    return plain or name in _IN_PLACE or kwargs.get("out") is not None
