"""Modules that are imported when something of theirs is asked for.

Emitted Triton sources name torch for whoever runs them as programs. A process that only compiles
them never asks it for anything, and sixteen that import it at once keep a machine busy for seconds.
``importlib.util.LazyLoader`` would load it for its ``__file__``, at which inspect looks.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


def defer(name: str) -> None:
    """Have ``import name`` give a module that loads when it is asked for what it does not have yet,
    unless it is loaded or there is none. ``name`` has no dots.
    """
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Deferred
    # Asked for by who imports a module of the package: that loads it, too.
    module.__dict__.pop("__path__", None)
    sys.modules[name] = module


class _Deferred(ModuleType):
    """Not executed yet."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        if spec.submodule_search_locations is not None:
            self.__path__ = spec.submodule_search_locations
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec.loader.exec_module(self)
        return getattr(self, name)
