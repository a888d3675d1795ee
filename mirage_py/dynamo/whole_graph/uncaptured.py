"""A bypass of the CUDA graphs that Inductor puts around its code.

The benchmark must not run in torch's cudagraph trees: what they have captured they keep, and a step
that ends there takes the results of the user's other graphs with it. So while candidates are
compiled, Inductor's ``cudagraphify`` is asked through here, and the code that it gets can be called
alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Uncaptured:
    """Of what is compiled inside ``watched``: whether torch captures it, and a way past that."""

    def __init__(self) -> None:
        self._parts: list[bool] = []
        self._past = False

    @property
    def is_captured(self) -> bool:
        """Whether torch is going to replay CUDA graphs of it."""
        return bool(self._parts) and all(self._parts)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """What this thread compiles here."""
        from torch._inductor import compile_fx

        before = compile_fx.cudagraphify
        thread = threading.get_ident()

        def cudagraphify(
            model: Callable[..., Any], static_input_idxs: Sequence[int] = (), **how: Any
        ) -> Callable[..., Any]:
            recorded = before(model, static_input_idxs, **how)
            if threading.get_ident() != thread:
                return recorded
            # torch does not capture a graph that writes to inputs which do not lie still.
            self._parts.append(set(how.get("mutated_input_idxs", ())) <= set(static_input_idxs))

            def run(inputs: list[Any]) -> Any:
                return model(inputs) if self._past else recorded(inputs)

            return run

        compile_fx.cudagraphify = cudagraphify
        try:
            yield
        finally:
            compile_fx.cudagraphify = before

    @contextlib.contextmanager
    def passed_by(self) -> Iterator[None]:
        """Calls go past the CUDA graphs."""
        self._past = True
        try:
            yield
        finally:
            self._past = False
