"""Errors of a function itself, told from those of tracing it: a call says which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mirage_py.errors import InputError
from mirage_py.frontend.torch.capture import source
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.guards.state import State


def own_error(signature: Signature, arguments: Mapping[str, Any]) -> InputError | None:
    """What the function raises on copies of the arguments, as an error of theirs; None if it runs.
    What it changes elsewhere is put back.
    """
    state = State.of([("", signature.fn)], copies=True)
    try:
        with torch.no_grad():
            signature.call(pytree.tree_map_only(torch.Tensor, torch.clone, dict(arguments)))
    # It is the user's code, and may raise whatever it likes.
    except Exception as error:  # noqa: BLE001
        line = source.of_error(error)
        first = (str(error).strip().splitlines() or [""])[0]
        code = f" in `{line.code}`" if line is not None and line.code else ""
        return InputError(
            f"the function fails on these inputs: {first}{code}",
            where=str(line or source.of_function(signature.fn)),
            why=f"called by itself it raises {type(error).__name__}",
            repair=f"check shapes and types: {_described(arguments)}",
        )
    finally:
        state.restore()
    return None


def _described(arguments: Mapping[str, Any]) -> str:
    parts = []
    for name, value in arguments.items():
        kind = type(value).__name__
        if isinstance(value, torch.Tensor):
            kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        parts.append(f"{name} is {kind}")
    return ", ".join(parts)
