"""Baselines that nothing calls, for tests whose tuner says what was measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping


class IdleBaselines(dict[str, Callable[..., object]]):
    """In the place of ``WarmUp``, which needs a GPU."""

    def __init__(
        self,
        program: object,
        functions: Mapping[str, Callable[..., object]],
        held: Collection[str] = (),
    ) -> None:
        super().__init__(functions)

    def begin(self) -> None:
        """Call nothing."""

    def end(self) -> None:
        """Nothing has begun."""
