"""A function that is served by the fastest kernel found for each call.

The first call of a signature traces the function and has it optimised; later ones look the kernel
up. Whatever stands in the way (something unsupported, a gradient, no GPU) means that the function
itself runs, with one warning per signature that says why.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch
from torch.compiler import is_dynamo_compiling

from mirage_py.frontend import refused_calls
from mirage_py.frontend.cached_kernels import (
    explained,
    operands_of,
    save_entry,
    write_entry_report,
)
from mirage_py.frontend.dynamic_axes import check_declared
from mirage_py.frontend.entries import Entry
from mirage_py.frontend.entry_tables import EntryTables, Found
from mirage_py.frontend.preparation import Preparation
from mirage_py.frontend.repeated_calls import (
    ANOTHER,
    RepeatedCalls,
    Rest,
    refused_repeat,
    repeat_of,
)
from mirage_py.frontend.searches import CallOptions, Optimizer, SizedOptimizer
from mirage_py.frontend.torch.guards.call_key import Call, CallReader, is_watched
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import TracedCall
from mirage_py.frontend.torch.writes import put_back
from mirage_py.reasons import Server
from mirage_py.shapes.policy import STATIC

# Signatures that a repr has a line for.
_MOST_SHOWN = 4

P = ParamSpec("P")
R = TypeVar("R")


class SuperoptimizedFunction(Generic[P, R]):
    """A function that calls kernels; made by ``superoptimize``. Safe to call from many threads."""

    __wrapped__: Callable[P, R]

    def __init__(
        self,
        fn: Callable[P, R],
        options: CallOptions | None = None,
        optimizer: Optimizer | None = None,
        sized_optimizer: SizedOptimizer | None = None,
    ) -> None:
        """``optimizer`` replaces the pipeline that ``options`` describe, ``sized_optimizer`` the
        one for dimensions whose size changes from call to call.
        """
        self.made_of: tuple[Any, ...] = fn, options, optimizer, sized_optimizer
        is_module = isinstance(fn, torch.nn.Module)
        functools.update_wrapper(self, fn, updated=() if is_module else ("__dict__",))
        self.options = options or CallOptions()
        self._name = getattr(fn, "__name__", type(fn).__name__)
        signature = Signature.of(fn)
        check_declared(self.options.dynamic, signature)
        self._reader = CallReader(signature)
        self._preparation = Preparation(self._reader, self.options, optimizer, sized_optimizer)
        self._tables = EntryTables(self._name, self._preparation, self._mode)
        self._repeated = RepeatedCalls()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the kernel for these arguments; prepare it first if there is none."""
        # First of all, and readable to torch.compile: inside it there is only the function. Not
        # is_compiling(), which is true in every thread while one of them compiles.
        if is_dynamo_compiling():
            return self.__wrapped__(*args, **kwargs)
        repeated = self._repeated
        try:
            result: Any = repeated.last(args, kwargs)
            if result is ANOTHER:
                result = repeated.serve(args, kwargs)
        except Exception:  # noqa: BLE001  as below, where it is tried once more
            repeated.clear()
            result = ANOTHER
        if type(result) is Rest:
            return result.call(*args, **kwargs)  # type: ignore[no-any-return]
        if result is not ANOTHER:
            return result  # type: ignore[no-any-return]
        call = self._reader.read(args, kwargs)
        if is_watched(call.leaves):
            return self.__wrapped__(*args, **kwargs)
        found = self._tables.find(call)
        entry = found.entry
        if entry.kernel is None or entry.traced is None:
            result = (entry.instead or self.__wrapped__)(*args, **kwargs)
            if not refused_calls.is_capturing():  # afterwards it may be prepared
                self._remember_refused(args, kwargs, call, found)
            return result  # type: ignore[no-any-return]
        if entry.traced.writes and entry.traced.overlaps(call.leaves):
            return self.__wrapped__(*args, **kwargs)
        try:
            rest = _begun(entry, entry.traced, call, args, kwargs)
        except Exception as error:  # noqa: BLE001  the kernel is at fault, not the call
            repeated.clear()
            refused = self._tables.refused(call, found.key, error)
            if not refused_calls.is_capturing():  # there it may be that it was not compiled before
                self._tables.replace(entry, refused)
            return self.__wrapped__(*args, **kwargs)
        self._remember(args, kwargs, call, found)
        return cast("R", rest())

    def __repr__(self) -> str:
        head, *signatures = self.dispatch_table().splitlines()
        shown = [*signatures[:_MOST_SHOWN], *(["  ..."] if len(signatures) > _MOST_SHOWN else [])]
        return "\n".join([f"<superoptimized {head}", *shown]) + ">"

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]:
        """As a method, ``self`` is the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A decorated function is stored by its name, as functions are; others by what they are
        made of. Kernels stay behind: the cache has them.
        """
        fn = self.__wrapped__
        name = getattr(fn, "__qualname__", "")
        found: Any = sys.modules.get(getattr(fn, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (type(self), self.made_of)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Do for these arguments what their first call would do, without calling anything.

        Inside a CUDA graph nothing is prepared, so prepare before capture.
        """
        call = self._reader.read(args, kwargs)
        entry = self._tables.find(call).entry
        if entry.kernel is None or entry.traced is None:
            return
        if entry.served.by is Server.TORCH_COMPILE:
            with put_back(entry.traced.places, call.leaves):
                (entry.direct or self.__wrapped__)(*args, **kwargs)  # it compiles at its first call
            return
        warmup = getattr(entry.kernel, "warmup", None)
        if warmup is None:
            return
        inputs = entry.traced.inputs(call.leaves)
        if hasattr(entry.kernel, "validity"):  # what is compiled depends on the sizes
            warmup(*inputs)
        else:
            warmup(inputs[0].device)

    def dispatch_table(self) -> str:
        """One line for each signature met so far, and what serves it."""
        return str(self._tables)

    def entry(self, *args: P.args, **kwargs: P.kwargs) -> Entry:
        """What serves these arguments, prepared if need be."""
        return self._tables.find(self._reader.read(args, kwargs)).entry

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Why these arguments are served as they are: kernel, tiles, evidence, and how to have the
        same again without a search.
        """
        entry = self.entry(*args, **kwargs)
        return explained(self._name, entry, self._preparation.report(entry))

    def report(self, path: Path | str, *args: P.args, **kwargs: P.kwargs) -> Path:
        """Write a report on what serves these arguments, or why no kernel does: one HTML file that
        needs nothing else; its path.
        """
        entry = self.entry(*args, **kwargs)
        return write_entry_report(path, self._name, entry, self._preparation.report(entry))

    def save(self, folder: Path | str, *args: P.args, **kwargs: P.kwargs) -> None:
        """Write what serves these arguments as an artifact, which ``load`` and ``mirage_py.load``
        take.

        Raises InputError where the function itself serves them, for another reason than speed.
        """
        entry = self.entry(*args, **kwargs)
        save_entry(folder, self._name, entry, self._preparation.report(entry))

    def load(self, plan: Path | str) -> None:
        """Serve the program of a saved artifact, or of the text of a plan, without a search.

        Raises FormatError, and VerificationError for a plan that does not compute its program.
        """
        self._preparation.pinned.add(str(plan))

    def as_torch_op(self, name: str, *args: P.args, **kwargs: P.kwargs) -> Any:
        """What serves these arguments as ``torch.ops.NAMESPACE.NAME``; see ``torch_ops``."""
        from mirage_py.torch_ops.register import as_torch_op

        entry = self.entry(*args, **kwargs)
        return as_torch_op(name, *operands_of(self._name, entry))

    # -- inside ------------------------------------------------------------------------------------

    def _remember(self, args: Any, kwargs: Any, call: Call, found: Found) -> None:
        """Let the next call like this one be served without a look at the tables."""
        repeat = repeat_of(
            args,
            kwargs,
            call,
            self._reader.names,
            found.entry,
            found.row,
            self._mode if self._has_mode() else None,
            with_marks=self.options.policy.kind != STATIC,
        )
        if repeat is not None:
            self._repeated.add(args, kwargs, repeat)

    def _remember_refused(self, args: Any, kwargs: Any, call: Call, found: Found) -> None:
        """The same where the function itself runs, or what replaces it."""
        instead = found.entry.instead
        repeat = refused_repeat(
            args,
            kwargs,
            call,
            self.__wrapped__ if instead is None else instead.settled,
            found.row,
            self._mode if self._has_mode() else None,
            with_marks=self.options.policy.kind != STATIC,
        )
        if repeat is not None:
            self._repeated.add(args, kwargs, repeat)

    def _mode(self) -> bool:
        """Whether the module behind the function is in training mode."""
        return bool(getattr(self._owner(), "training", False))

    def _has_mode(self) -> bool:
        return not isinstance(self._owner(), types.FunctionType)

    def _owner(self) -> object:
        return getattr(self.__wrapped__, "__self__", self.__wrapped__)


def _begun(
    entry: Entry, traced: TracedCall, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], Any]:
    """What is left of a call when its kernel has run: what fails there is not tried once more, as
    something may have been written.
    """
    direct = entry.direct
    if direct is not None:
        if traced.writes:
            return lambda: direct(*args, **kwargs)
        result = direct(*args, **kwargs)
        return lambda: result
    assert entry.kernel is not None
    found = entry.kernel(*traced.inputs(call.leaves))
    outputs = found if isinstance(found, tuple) else (found,)
    return lambda: traced.pack(outputs, call.leaves)
