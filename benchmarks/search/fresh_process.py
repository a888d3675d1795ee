"""A measurement in a new process with empty caches."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

Json = dict[str, Any]

_CACHES = ("MIRAGE_PY_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def in_fresh_process(function: Callable[..., Any], *args: Any, **variables: str) -> Any:
    """What a function of a module gives there, with these environment variables; a row that says
    the ``fault`` where it fails, or where its process ends.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        caches = {variable: f"{folder}/{variable}" for variable in _CACHES}
        with patch.dict(os.environ, {**caches, **variables}):
            child = context.Process(target=_in_child, args=(function, args, theirs))
            child.start()
        theirs.close()
        try:
            found = ours.recv()
        except EOFError:
            found = {"fault": "the process ended"}
        child.join()
    return found


def _in_child(function: Callable[..., Any], args: tuple[Any, ...], pipe: Connection) -> None:
    try:
        pipe.send(function(*args))
    except Exception as error:  # noqa: BLE001  one that fails is shown as such
        pipe.send({"fault": f"{type(error).__name__}: {error}"[:300]})
