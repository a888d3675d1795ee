"""What torch does anew in each of a thousand traces, done once; values and graphs stay the same."""

from __future__ import annotations

import functools
import logging
import sys
import typing
from typing import Any


def install() -> None:
    """In the modules that have been imported.

    Half of the time that torch.export takes to decompose operators goes into the list of all of
    them, made anew, and into annotations of functions, made anew for each: collections.abc's
    Callable is slow, that of typing keeps what it was asked for. torch.compile times the guards of
    every graph, for which it first flushes the processor's caches; for random numbers that no graph
    draws it makes tensors. Three times in each test pytest gives its handlers to loggers that do
    not propagate: eighty of torch's, of which one took them for somebody who wants each graph and
    tensor described to him, with its stack.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        is_one = isinstance(logger, logging.Logger) and name.startswith("torch")
        if is_one and not logger.propagate:
            own = [h for h in logger.handlers if type(h).__module__ != "_pytest.logging"]
            logger.handlers[:] = own
            logger.addHandler = _ignored  # type: ignore[method-assign]
    exported = sys.modules.get("torch.export.exported_program")
    if exported is not None:
        of_torch = exported._collect_all_valid_cia_ops
        exported._collect_all_valid_cia_ops = functools.cache(of_torch)
        exported._is_preservable_cia_op = functools.cache(exported._is_preservable_cia_op)
        sys.modules["torch._ops"].Callable = typing.Callable
    of_random_numbers = sys.modules.get("torch._decomp.decompositions_for_rng")
    if of_random_numbers is not None:
        none = sys.modules["torch"].tensor(())

        def reset(state: Any) -> None:
            state.seed = state.base_offset = none
            state.relative_offset = 0
            state.offset_advanced_at_least_once = False

        of_random_numbers.PhiloxState.reset = reset
    guards = sys.modules.get("torch._dynamo.guards")
    if guards is not None:
        guards.profile_guard_manager = lambda *_: 0.0


def _ignored(_: logging.Handler) -> None:
    """In place of a method."""
