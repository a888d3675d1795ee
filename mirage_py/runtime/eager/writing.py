"""A function that writes to tensors that it is given, as a baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class WritingFunction:
    """Called, it gives a program's outputs, and its inputs are as they were. What that takes is no
    part of what a user calls: that is ``timed``, which writes to the inputs. What is left to do
    after a kernel is ``finish``; ``words`` say what that is. ``traced`` is the function as it was
    traced, which takes all that the program reads.
    """

    timed: Callable[..., Any]
    outputs: Callable[[Callable[..., Any], Sequence[Any]], Any]
    finish: Callable[[Sequence[Any], Any], object]
    words: str
    traced: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        """The outputs of the program."""
        return self.outputs(self.timed, inputs)

    def by(self, form: Callable[[Callable[..., Any]], Callable[..., Any]]) -> WritingFunction:
        """The same by another form of the function, such as torch.compile's."""
        return replace(self, timed=form(self.timed))


def timed_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """What of a baseline is timed."""
    return function.timed if isinstance(function, WritingFunction) else function


def written_words(function: Callable[..., Any]) -> str:
    """What a function writes; nothing of one that gives results alone."""
    return function.words if isinstance(function, WritingFunction) else ""
