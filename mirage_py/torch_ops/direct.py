"""The direct call of an operator's kernel, with nothing between it and torch's dispatcher.

What ``torch.library.custom_op`` registers is two functions in Python, one after the other: the
first looks for gradients and dispatches again, the second calls the kernel and compares its results
with its inputs. For an operator that never returns an input, called with plain tensors of which
none wants a gradient, the first can call the kernel at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from mirage_py.errors import InputError
from mirage_py.runtime.launch.tensor_guard import has_tangents

# Registrations last as long as the library object that made them.
_LIBRARIES: dict[str, Any] = {}


def register_direct(operator: Any, name: str, device: str, kernel: Callable[..., Any]) -> None:
    """Make ``kernel`` the implementation of a ``custom_op`` or ``triton_op`` for tensors on a
    device (``CUDA`` or ``CPU``), with gradients as the operator has them.

    The kernel takes the operator's tensors in order, and returns new ones.
    """
    namespace, _, short = name.partition("::")
    library = _LIBRARIES.get(namespace)
    if library is None:
        made: Any = torch.library.Library  # without types
        library = _LIBRARIES[namespace] = made(namespace, "FRAGMENT")
    # Called from a frame that torch.compile skips it would look into these, as into the user's own.
    hidden: Callable[..., Any] = torch._disable_dynamo  # type: ignore[attr-defined]  # noqa: SLF001
    library.impl(short, hidden(_detached(kernel)), device)
    try:
        make = importlib.import_module("torch._library.autograd").make_autograd_impl
        plain_tensors = torch._C._after_ADInplaceOrView_keyset  # noqa: SLF001
        wants_gradient = torch._C._any_requires_grad  # noqa: SLF001
    except (ImportError, AttributeError):  # another torch: gradients as custom_op looks for them
        return
    with_gradient = make(operator._opoverload, operator)  # noqa: SLF001
    backend = getattr(torch._C.DispatchKey, device)  # noqa: SLF001
    is_plain: dict[int, bool] = {}

    def dispatched(keys: Any, *inputs: torch.Tensor) -> Any:
        # Looked at here: one more function would cost every call a tenth of a microsecond.
        if forward_ad._current_level >= 0 and has_tangents(inputs):  # noqa: SLF001
            raise InputError(
                f"an input of {name} carries a tangent of forward-mode gradients",
                where="torch operator",
                why="it has gradients in reverse mode alone, and the tangent would be lost",
                repair="use torch.autograd.grad, or call the function that it was made of",
            )
        number = keys.raw_repr()
        plain = is_plain.get(number)
        if plain is None:
            # Below autograd nothing but the device: no mode, no view that is read in another way.
            below = (keys & plain_tensors).highestPriorityTypeId()
            plain = is_plain[number] = below == backend
        if plain and not (torch.is_grad_enabled() and wants_gradient(*inputs)):
            return kernel(*inputs)
        return with_gradient(keys, *inputs)

    library.impl(short, hidden(dispatched), f"Autograd{device}", with_keyset=True)


def _detached(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel below autograd, where gradients have been seen to."""

    def run(*inputs: torch.Tensor) -> Any:
        if not torch.is_grad_enabled():
            return kernel(*inputs)
        with torch.no_grad():
            return kernel(*inputs)

    return run
