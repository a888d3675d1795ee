"""A cache of calls: inputs like those of an earlier call are not checked again.

A kernel's first call checks its inputs one by one, says what is wrong with them, copies what lies
otherwise. A call whose inputs were taken as they are is cached with a guard: where the guard holds,
the same answers hold, and what is left is an address for each tensor, memory and the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mirage_py.display import Reported
from mirage_py.runtime.launch.tensor_guard import Fits, alike, in_dual_level, never

if TYPE_CHECKING:
    import torch

    from mirage_py.ugraph.ir.plan import Plan

T = TypeVar("T")

# A call of a runner again, with tensors that its guard holds for.
Again = Callable[[Sequence["torch.Tensor"]], Any]

# Combinations of shapes that are cached, and calls of one combination that differ in other ways.
_MOST_SHAPES = 4096
_MOST_ALIKE = 4


class ByShapes(Generic[T]):
    """A cache by the shapes of tensors; of those with the same shapes the newest few."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[T, ...]] = {}

    def at(self, tensors: Sequence[torch.Tensor]) -> tuple[T, ...]:
        """The cached values for tensors of these shapes."""
        return self._kept.get(tuple([t.shape for t in tensors]), ())

    def add(self, tensors: Sequence[torch.Tensor], thing: T) -> None:
        """Keep a thing."""
        if len(self._kept) >= _MOST_SHAPES:
            self._kept.clear()
        key = tuple([t.shape for t in tensors])
        self._kept[key] = (thing, *self._kept.get(key, ())[: _MOST_ALIKE - 1])


class CachedCalls(Reported):
    """A function of ``count`` tensors that remembers calls; threads may share it."""

    plan: Plan

    def __init__(self, count: int) -> None:
        from torch.compiler import is_dynamo_compiling

        # What is known of the result that the kernel is of, if anything.
        self.record: Mapping[str, Any] = {}
        self._is_compiling = is_dynamo_compiling
        self._count = count
        self._last: tuple[Fits, Again] = (never, self._first_call)
        self._known: ByShapes[tuple[Fits, Again]] = ByShapes()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.plan.ugraph.program!r}: {self.plan!r}>"

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Compute the outputs in fresh tensors.

        A tensor that lies otherwise than the kernels expect is copied first. Raises InputError for
        a wrong number, shape, type or device, for sizes that the kernels do not reach, or for an
        input whose gradient would be lost, and CompileError when the GPU does not take a kernel.
        """
        if self._is_compiling():  # torch.compile reads this, and has guards of its own
            return self._checked_call(inputs)  # type: ignore[no-any-return]
        if in_dual_level():  # of which guards know nothing
            return self._checked_call(inputs)  # type: ignore[no-any-return]
        try:
            for tensor in inputs:
                if tensor.is_nested:  # torch ends the process that asks a guard of one
                    return self._checked_call(inputs)  # type: ignore[no-any-return]
        except AttributeError:  # no tensor
            return self._first_call(inputs)  # type: ignore[no-any-return]
        if len(inputs) == self._count:
            fits, call = self._last
            if fits(*inputs):
                return call(inputs)  # type: ignore[no-any-return]
        return (self.again(inputs) or self._first_call)(inputs)  # type: ignore[no-any-return]

    def again(self, inputs: Sequence[torch.Tensor]) -> Again | None:
        """The call for inputs that are like those of an earlier one, without the guard: for whoever
        has a guard of his own.
        """
        if len(inputs) != self._count:
            return None
        try:
            found = self._known.at(inputs)
        except AttributeError:  # no tensors
            return None
        for fits, call in found:
            if fits(*inputs):
                self._last = fits, call
                return call
        return None

    def _first_call(self, inputs: Sequence[torch.Tensor]) -> Any:
        """A call of whose inputs nothing is known."""
        raise NotImplementedError

    def _checked_call(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The same, without remembering it."""
        raise NotImplementedError

    def _remember(self, inputs: Sequence[torch.Tensor], call: Again) -> None:
        """Keep how inputs like these are served, that were taken as they are."""
        if not inputs:  # nothing to guard
            return
        self._last = alike(inputs), call
        self._known.add(inputs, self._last)
