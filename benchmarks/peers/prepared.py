"""Layouts that a peer likes better than the program's, made once and outside of what is timed."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


class Prepared:
    """Keeps what was made of input tensors for as long as the first of them lives.

    The first call on each set of inputs makes the copies. It must not be captured: the timing calls
    every entry on every set before it captures, and captured graphs hold the copies alone. Inputs
    are taken to keep their values.
    """

    def __init__(self) -> None:
        self._kept = WeakTensorKeyDictionary()

    def __call__(
        self, name: str, make: Callable[..., Tensor], first: Tensor, *others: Tensor
    ) -> Tensor:
        """``make(first, *others)``, the same object each time."""
        if first not in self._kept:
            self._kept[first] = {}
        of_first: dict[tuple[str, ...], Tensor] = self._kept[first]
        key = (name, *(str(id(t)) for t in others))
        if key not in of_first:
            of_first[key] = make(first, *others)
        return of_first[key]
