"""Tensors that a function takes from elsewhere: closures, globals, attributes, modules.

Such a tensor becomes an input of the program. So that a later call reads what is there then
(weights change), it is found again by the way it was found: each has a name and a ``fetch``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

_OF_MODULES = frozenset(vars(torch.nn.Module()))
# Helpers that call helpers: deeper than this, a tensor is better passed as an argument.
_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tensor comes from: a readable name, and how to get it now."""

    name: str
    fetch: Callable[[], Any]


def find_origin(places: Sequence[tuple[str, Any]], tensor: torch.Tensor) -> Origin | None:
    """The way to a tensor from one of the named places (the function, its arguments), or None."""
    seen: dict[int, Any] = {}
    for name, place in places:
        for origin in _tensors(Origin(name, functools.partial(_same, place)), _MAX_DEPTH, seen):
            if _is_same(origin.fetch(), tensor):
                return origin
    return None


def _same(value: Any) -> Any:
    return value


def _is_same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether both are one piece of memory read in one way (export keeps detached aliases)."""
    if found is wanted:
        return True
    return (
        found.data_ptr() == wanted.data_ptr() != 0
        and found.shape == wanted.shape
        and found.stride() == wanted.stride()
        and found.dtype is wanted.dtype
    )


def _tensors(place: Origin, depth: int, seen: dict[int, Any]) -> Iterator[Origin]:
    value = place.fetch()
    if isinstance(value, torch.Tensor):
        yield place
        return
    if depth == 0 or id(value) in seen:
        return
    seen[id(value)] = value
    for name, fetch in _parts(value):
        joined = f"{place.name}.{name}" if place.name and name else place.name or name
        yield from _tensors(Origin(joined, fetch), depth - 1, seen)


def _parts(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What an object holds that may be, or lead to, a tensor."""
    if isinstance(value, torch.nn.Module):
        for name in _names_in(value):
            yield name, functools.partial(_attribute, value, name)
    elif isinstance(value, functools.partial):
        yield "", lambda: value.func
        yield from _parts((value.args, value.keywords))
    elif isinstance(value, MethodType):
        yield "", lambda: value.__self__
        yield "", lambda: value.__func__
    elif isinstance(value, FunctionType):
        yield from _read_by(value)
    elif isinstance(value, Mapping):
        for key in value:
            yield str(key), functools.partial(value.__getitem__, key)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for position in range(len(value)):
            yield str(position), functools.partial(value.__getitem__, position)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, ModuleType)):
        for name in vars(value):
            yield name, functools.partial(getattr, value, name)


def _read_by(function: FunctionType) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The closure and the globals that a function's code names."""
    if str(function.__module__).partition(".")[0] == "torch":
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, functools.partial(getattr, cell, "cell_contents", None)
    for name in dict.fromkeys(_names(function.__code__)):
        if name in function.__globals__:
            yield name, functools.partial(function.__globals__.get, name)
    if hasattr(function, "__wrapped__"):
        yield "", lambda: function.__wrapped__


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _names_in(module: torch.nn.Module) -> Iterator[str]:
    """Parameters and buffers, then other fields of the module and of those in it."""
    for name, _ in (*module.named_parameters(), *module.named_buffers()):
        yield name
    for path, inside in module.named_modules():
        for name in vars(inside):
            if name not in _OF_MODULES:
                yield f"{path}.{name}" if path else name


def _attribute(module: torch.nn.Module, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), module)
