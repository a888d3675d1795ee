"""State that a function reads besides its arguments, and the part on which a trace depends.

A trace takes Python values as they are: flags, numbers in objects, hooks, the length of a list. So
all that the function can reach (closure, the globals that its code names, fields of objects,
attributes of modules) is noted, shallowly for each holder; a later call asks whether it is still
so. A function that changes any of it while it is traced is no program: it is put back as it was.
Code of installed packages, and what is global there, counts as fixed.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.guards.plain_values import is_plain, is_same_value

# Of more holders a call could not be guarded in reasonable time.
_MOST_HOLDERS = 20_000
# Tensors up to this size are put back where tracing has written to them.
_SMALL = 1 << 12
_INSTALLED = tuple(
    {sysconfig.get_path(name): None for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
# A user's own packages and those of the system lie in such folders, too, which no scheme of this
# interpreter need name.
_FOLDERS = ("/site-packages/", "/dist-packages/")
_MACHINERY = ("torch", "numpy", "mirage_py", "triton")
_MISSING = object()

Read = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Holder:
    """Something that holds values, in order: how to read it, what it held, and how to put it back.

    ``names`` are those of the values, for messages. ``quick`` may say that it holds the very same
    objects, without reading it.
    """

    path: str
    read: Read
    names: tuple[str, ...]
    content: tuple[Any, ...]
    put: Callable[[tuple[Any, ...]], None]
    is_fixed: bool = False

    quick: Callable[[], bool] | None = None

    def is_untouched(self) -> bool:
        """Whether it holds the very same objects: asked at each call, so no name is looked at."""
        now = self.read()
        return len(now) == len(self.content) and all(map(is_, now, self.content))

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        """What it holds otherwise now, or None."""
        now = self.read()
        if len(now) != len(self.content):
            return self.path or "its state"
        for name, new, old in zip(self.names, now, self.content, strict=True):
            if new is not old and not same(new, old):
                return f"{self.path}{name}"
        return None


@dataclass(frozen=True, slots=True)
class State:
    """What was reachable at one moment; tensors with their versions, small ones with values."""

    holders: tuple[Holder, ...]
    tensors: tuple[tuple[str, torch.Tensor, int, torch.Tensor | None], ...]

    @classmethod
    def of(cls, places: Sequence[tuple[str, Any]], *, copies: bool = False) -> State:
        """All that the places (a name and a value each) lead to; ``copies`` of small tensors.

        Raises UnsupportedError where that is too much to be looked at in each call.
        """
        found: list[Holder] = []
        tensors: list[tuple[str, torch.Tensor, int, torch.Tensor | None]] = []
        # Holders by identity, kept alive so that no other one gets the same number.
        seen: dict[int, Any] = {}
        todo = [(name, value) for name, value in reversed(places)]
        while todo:
            path, value = todo.pop()
            if id(value) in seen or is_plain(value):
                continue
            seen[id(value)] = value
            if isinstance(value, torch.Tensor):
                kept = value.detach().clone() if copies and value.numel() <= _SMALL else None
                tensors.append((path, value, _version(value), kept))
                continue
            parts = list(_holders(path, value))
            found += parts
            if len(found) > _MOST_HOLDERS:
                raise UnsupportedError(
                    f"the function can reach more than {_MOST_HOLDERS} objects",
                    why="what it reads of them is part of a trace, and is looked at in each call",
                    repair="pass what it needs as arguments",
                )
            for part in reversed(parts):
                todo += [
                    (f"{part.path}{n}", v) for n, v in zip(part.names, part.content, strict=True)
                ][::-1]
        return cls(tuple(found), tuple(tensors))

    def is_same(self) -> bool:
        """Whether a call now would read the same; of tensors, those that are noted alone count."""
        for holder in self.holders:
            quick = holder.quick
            untouched = quick() if quick is not None else holder.is_untouched()
            if not untouched and holder.difference(_is_alike) is not None:
                return False
        return all(_version(tensor) == version for _, tensor, version, _ in self.tensors)

    def changed(self) -> str | None:
        """The first that is another object now, or a tensor that was written to; None: nothing."""
        for holder in self.holders:
            found = holder.difference(is_same_value)
            if found is not None:
                return found
        for path, tensor, version, _ in self.tensors:
            if _version(tensor) != version:
                return path
        return None

    def restore(self) -> None:
        """Put everything back, as far as tensors were copied."""
        for holder in self.holders:
            if holder.difference(is_same_value) is not None:
                holder.put(holder.content)
        for _, tensor, version, kept in self.tensors:
            if _version(tensor) != version and kept is not None:
                with torch.no_grad():
                    tensor.copy_(kept)

    def guard(self, *, with_numbers: bool, written: Sequence[torch.Tensor] = ()) -> State:
        """What has to stay for a trace to hold; ``with_numbers`` where it took the values of
        tensors of one element, but for those that calls are known to write.
        """
        own = [id(tensor) for tensor in written]
        numbers = (t for t in self.tensors if with_numbers and t[1].numel() == 1)
        watched = [t for t in numbers if id(t[1]) not in own]
        holders = tuple(h for h in self.holders if not h.is_fixed)
        return State(holders, tuple((p, t, version, None) for p, t, version, _ in watched))


def _version(tensor: torch.Tensor) -> int:
    """How often it was written to, as far as torch counts."""
    return int(tensor._version)  # noqa: SLF001  autograd's own question


def _is_alike(new: Any, old: Any) -> bool:
    """Another tensor is another value of an input; other shapes are seen elsewhere."""
    return is_same_value(new, old) or (
        isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor) and old.numel() != 1
    )


def _holders(path: str, value: Any) -> Iterator[Holder]:
    if isinstance(value, FunctionType):
        yield from _of_function(path, value)
    elif isinstance(value, MethodType):
        yield _fixed(path, ("", ""), (value.__self__, value.__func__))
    elif isinstance(value, list):
        yield _sequence(path, value)
    elif isinstance(value, tuple):
        yield _fixed(path, tuple(f"[{n}]" for n in range(len(value))), value)
    elif isinstance(value, dict):
        yield _mapping(path, value, bracketed=True)
    elif isinstance(value, set):
        yield _set(path, value)
    elif isinstance(value, CellType):
        yield _cell(path, value)
    elif isinstance(value, functools.partial):
        yield _fixed(path, ("", "", ""), (value.func, value.args, value.keywords))
    elif isinstance(value, torch.nn.Module) or not _is_machinery(type(value)):
        yield from _of_object(path, value)
    elif hasattr(value, "__wrapped__"):  # a function that is served by kernels, say
        yield _fixed(path, ("",), (value.__wrapped__,))


def _of_object(path: str, value: Any) -> Iterator[Holder]:
    fields = getattr(value, "__dict__", None)
    if isinstance(fields, dict):
        yield _mapping(f"{path}." if path else "", fields, bracketed=False)
    slots = [
        name
        for kind in type(value).__mro__
        for name in _as_names(vars(kind).get("__slots__", ()))
        if hasattr(value, name)
    ]
    if slots:
        yield _named(f"{path}." if path else "", value, tuple(slots), getattr, object.__setattr__)
    # What its methods read: those of its own class, not of a library's.
    for kind in type(value).__mro__:
        for method in list(vars(kind).values()):
            plain = method.__func__ if isinstance(method, (staticmethod, classmethod)) else method
            if isinstance(plain, FunctionType) and not _is_installed(plain.__code__):
                yield from _of_function(path, plain)


def _of_function(path: str, function: FunctionType) -> Iterator[Holder]:
    if _is_installed(function.__code__):
        return
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        yield _cell(name, cell)
    names = tuple(dict.fromkeys(_names(function.__code__)))
    space = function.__globals__
    known = tuple(n for n in names if n in space)
    if known:
        yield _named("", space, known, _get_item, _set_item)
    for name in known:
        module = space[name]
        if isinstance(module, ModuleType) and not _is_library(module):
            inside = tuple(n for n in names if n in vars(module))
            yield _named(f"{name}.", vars(module), inside, _get_item, _set_item)
    if function.__defaults__:
        yield _fixed(path, ("",) * len(function.__defaults__), function.__defaults__)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield _fixed(path, ("",), (wrapped,))


def _sequence(path: str, value: list[Any]) -> Holder:
    def put(content: tuple[Any, ...]) -> None:
        value[:] = content

    names = tuple(f"[{n}]" for n in range(len(value)))
    return Holder(path, lambda: tuple(value), names, tuple(value), put)


def _mapping(path: str, value: dict[Any, Any], *, bracketed: bool) -> Holder:
    """Keys and values of a dict, one after the other: a key that is another shows as well."""

    def read() -> tuple[Any, ...]:
        return (*value.keys(), *value.values())

    def put(content: tuple[Any, ...]) -> None:
        count = len(content) // 2
        value.clear()
        value.update(zip(content[:count], content[count:], strict=True))

    keys, values = tuple(value), tuple(value.values())

    def quick() -> bool:
        if not keys:
            return not value
        same = len(value) == len(keys) and all(map(is_, value.values(), values))
        return same and all(map(is_, value, keys))

    names = tuple(f"[{k!r}]" if bracketed else str(k) for k in value)
    return Holder(path, read, names * 2, (*keys, *values), put, quick=quick)


def _set(path: str, value: set[Any]) -> Holder:
    def put(content: tuple[Any, ...]) -> None:
        value.clear()
        value.update(content[0])

    quick = None if value else lambda: not value
    # As one value: its order says nothing.
    return Holder(path, lambda: (frozenset(value),), ("",), (frozenset(value),), put, quick=quick)


def _cell(path: str, cell: CellType) -> Holder:
    def read() -> tuple[Any, ...]:
        try:
            return (cell.cell_contents,)
        except ValueError:  # not assigned yet
            return (_MISSING,)

    def put(content: tuple[Any, ...]) -> None:
        if content[0] is not _MISSING:
            cell.cell_contents = content[0]

    return Holder(path, read, ("",), read(), put)


def _named(
    path: str,
    holder: Any,
    names: tuple[str, ...],
    get: Callable[..., Any],
    set_: Callable[[Any, str, Any], None],
) -> Holder:
    def read() -> tuple[Any, ...]:
        return tuple([get(holder, name, _MISSING) for name in names])

    def put(content: tuple[Any, ...]) -> None:
        for name, value in zip(names, content, strict=True):
            set_(holder, name, value)

    return Holder(path, read, names, read(), put)


def _fixed(path: str, names: tuple[str, ...], content: tuple[Any, ...]) -> Holder:
    """What cannot change itself, and leads to what can."""
    return Holder(path, lambda: content, names, content, lambda _: None, is_fixed=True)


def _get_item(space: Mapping[str, Any], name: str, default: Any) -> Any:
    return space.get(name, default)


def _set_item(space: dict[str, Any], name: str, value: Any) -> None:
    space[name] = value


def _is_machinery(kind: type) -> bool:
    """Whether objects of a class hold nothing of the user's: loggers, locks, streams, classes."""
    package = kind.__module__.partition(".")[0]
    return package in sys.stdlib_module_names or package in _MACHINERY


def _as_names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_installed(code: CodeType) -> bool:
    return code.co_filename.startswith("<") or _is_of_packages(code.co_filename)


def _is_library(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or _is_of_packages(file)


def _is_of_packages(file: str) -> bool:
    return file.startswith(_INSTALLED) or any(f in file.replace(os.sep, "/") for f in _FOLDERS)
