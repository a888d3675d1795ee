"""``@superoptimize``: a torch function that is served by the fastest kernel found for each call.

The first call of a signature traces the function and has it optimised; later ones look the kernel
up. Whatever stands in the way (something unsupported, a gradient, no GPU) means that the function
itself runs, with one warning per signature that says why.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

import torch

from mirage_py.errors import MirageError, UnsupportedError
from mirage_py.frontend.dynamic_axes import (
    Declared,
    DynamicAxis,
    dynamic_axes,
    group_key,
    marks_of,
    sizes_of,
    without_sizes,
)
from mirage_py.frontend.kept_kernels import Pinned, described, explained, operands_of, save_entry
from mirage_py.frontend.searches import (
    CallOptions,
    Kernel,
    Optimizer,
    SizedOptimizer,
    cached_report,
    default_optimizer,
    default_sized_optimizer,
)
from mirage_py.frontend.sized_calls import SizedGroup, sized_program
from mirage_py.frontend.torch.call_key import Call, CallReader, call_key, is_watched, tensor_key
from mirage_py.frontend.torch.calls import Signature
from mirage_py.frontend.torch.trace import TracedCall, trace_call
from mirage_py.frontend.warnings import MirageWarning
from mirage_py.shapes.dispatch import Row
from mirage_py.shapes.policy import STATIC
from mirage_py.shapes.predicate import SizePredicate

__all__ = ["CallOptions", "SuperoptimizedFunction", "superoptimize"]

P = ParamSpec("P")
R = TypeVar("R")

# Exact sizes whose row of a dispatch table is remembered.
_MOST_ROWS = 4096
# What begins the keys of refusals that the dispatch table has a row for.
_SIZES_REFUSED = "sizes refused"


@dataclass(frozen=True, slots=True)
class _Entry:
    """What serves a signature: a kernel, or the function itself and the reason."""

    signature: str
    served_by: str
    kernel: Kernel | None = None
    traced: TracedCall | None = None
    captured: tuple[Hashable, ...] = ()

    @property
    def source(self) -> str:
        """Where it came from, in a word."""
        if self.kernel is None or not hasattr(self.kernel, "plan"):
            return "fallback"
        return str(getattr(self.kernel, "source", "searched"))


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
        is_module = isinstance(fn, torch.nn.Module)
        functools.update_wrapper(self, fn, updated=() if is_module else ("__dict__",))
        self.options = options or CallOptions()
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._optimizer = optimizer
        self._has_pipeline = optimizer is None
        self._sized_optimizer = sized_optimizer
        self._policy = self.options.policy
        self._is_declared = bool(self.options.dynamic) and self._policy.kind != STATIC
        self._pinned = Pinned(self.options.plan)
        self._groups: dict[Hashable, SizedGroup[_Entry]] = {}
        self._rows: dict[Hashable, Row[_Entry]] = {}
        self._needs_gpu = optimizer is None and self.options.backend != "interpret"
        self._reader = CallReader(Signature.of(fn))
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.RLock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the kernel for these arguments; prepare it first if there is none."""
        # First of all, and readable to torch.compile: inside it there is only the function.
        if torch.compiler.is_compiling():
            return self.__wrapped__(*args, **kwargs)
        call = self._reader.read(args, kwargs)
        if is_watched(call.leaves):
            return self.__wrapped__(*args, **kwargs)
        key, entry = self._entry(call)
        if entry.kernel is None or entry.traced is None:
            return self.__wrapped__(*args, **kwargs)
        try:
            outputs = entry.kernel(*entry.traced.inputs(call.leaves))
        except Exception as error:  # noqa: BLE001  the kernel is at fault, not the call
            refused = self._refused(call, key, error)
            if not _is_capturing():  # there it may be that it was not compiled before
                self._replace(entry, refused)
            return self.__wrapped__(*args, **kwargs)
        packed = entry.traced.pack(outputs if isinstance(outputs, tuple) else (outputs,))
        return cast("R", packed)

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]:
        """As a method, ``self`` is the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Do for these arguments what their first call would do, without calling anything.

        Inside a CUDA graph nothing is prepared, so prepare before capture.
        """
        call = self._reader.read(args, kwargs)
        entry = self._entry(call)[1]
        warmup = getattr(entry.kernel, "warmup", None)
        if warmup is None or entry.traced is None:
            return
        inputs = entry.traced.inputs(call.leaves)
        if hasattr(entry.kernel, "validity"):  # what is compiled depends on the sizes
            warmup(*inputs)
        else:
            warmup(inputs[0].device)

    def dispatch_table(self) -> str:
        """One line for each signature met so far, and what serves it."""
        if not self._entries and not self._groups:
            return f"{self._name}: not called yet"
        entries = [e for k, e in list(self._entries.items()) if not _is_of_sizes(k)]
        lines = [f"({e.signature}) -> {e.served_by}{_said(e)}" for e in entries]
        lines += [line for g in list(self._groups.values()) for line in str(g).splitlines()]
        return "\n".join([f"{self._name}:", *(f"  {line}" for line in lines)])

    def entry(self, *args: P.args, **kwargs: P.kwargs) -> _Entry:
        """What serves these arguments, prepared if need be."""
        return self._entry(self._reader.read(args, kwargs))[1]

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Why these arguments are served as they are: kernel, tiles, evidence, and how to have the
        same again without a search.
        """
        entry = self.entry(*args, **kwargs)
        return explained(self._name, entry, self._report(entry))

    def save(self, folder: Path | str, *args: P.args, **kwargs: P.kwargs) -> None:
        """Write what serves these arguments as an artifact, which ``load`` and ``mirage_py.load``
        take.

        Raises InputError where the function itself serves them, for another reason than speed.
        """
        entry = self.entry(*args, **kwargs)
        save_entry(folder, self._name, entry, self._report(entry))

    def load(self, plan: Path | str) -> None:
        """Serve the program of a saved artifact, or of the text of a plan, without a search.

        Raises FormatError, and VerificationError for a plan that does not compute its program.
        """
        self._pinned.add(str(plan))

    def as_torch_op(self, name: str, *args: P.args, **kwargs: P.kwargs) -> Any:
        """What serves these arguments as ``torch.ops.NAMESPACE.NAME``; see ``torch_ops``."""
        from mirage_py.torch_ops.register import as_torch_op

        entry = self.entry(*args, **kwargs)
        return as_torch_op(name, *operands_of(self._name, entry))

    def _report(self, entry: _Entry) -> Mapping[str, Any]:
        """What is known of a kernel: by itself, or by the cache that its search was kept in."""
        report = getattr(entry.kernel, "report", None)
        if report is None and entry.traced is not None and self._has_pipeline:
            return cached_report(entry.traced.program, self.options)
        return report or {}

    # -- preparing ---------------------------------------------------------------------------------

    def _entry(self, call: Call) -> tuple[Hashable, _Entry]:
        """What serves the call, and its key in the table."""
        key: Hashable
        key = (self._mode(), call_key(call))
        marks = () if self._policy.kind == STATIC else marks_of(call.leaves)
        try:
            if marks or self._is_declared:
                found = self._sized_entry(call, (marks, key))
                if found is not None:
                    return found
            entry = self._entries.get(key)
        except TypeError as error:  # an argument has no hash
            key = ("no key", self._reader.describe(call))
            return key, self._refused(call, key, _unhashable(error))
        if entry is not None and _is_current(entry):
            return key, entry
        with self._lock:
            # Another thread may have been first.
            entry = self._entries.get(key)
            if entry is not None and _is_current(entry):
                return key, entry
            if _is_capturing():
                # Only this time: under a key of its own, so that a later call prepares it.
                key = ("in a CUDA graph", key)
                return key, self._refused(call, key, _in_cuda_graph())
            return key, self._prepared(call, key)

    def _prepared(self, call: Call, key: Hashable) -> _Entry:
        try:
            self._check(call)
        except UnsupportedError as error:
            return self._refused(call, key, error)
        if self._optimizer is None:
            # Outside the net below: an option that does not exist is the caller's mistake.
            self._optimizer = default_optimizer(self.options)
        try:
            entry = self._optimized(call, self._optimizer)
        # A function that works must go on working, whatever goes wrong in making it faster.
        except Exception as error:  # noqa: BLE001
            return self._refused(call, key, error)
        self._entries[key] = entry
        return entry

    def _sized_entry(self, call: Call, exactly: Hashable) -> tuple[Hashable, _Entry] | None:
        """What serves a call whose sizes are among many; None where no axis of it is dynamic.

        ``exactly`` is the key of the call with its sizes: for those that were met before there is
        nothing to work out. Raises TypeError where an argument has no hash.
        """
        known = self._rows.get(exactly)
        if known is not None and _is_current(known.entry):
            known.calls += 1
            return (_SIZES_REFUSED, exactly), known.entry
        axes = dynamic_axes(call, self._reader.names, self.options.dynamic)
        sizes = sizes_of(call, axes) if axes else None
        if sizes is None:
            return None
        rest = call_key(without_sizes(call, axes))
        key: Hashable = ("sizes", self._mode(), rest, group_key(call, axes))
        group = self._groups.get(key)
        row = group.table.find(sizes) if group is not None else None
        if row is None or not _is_current(row.entry):
            with self._lock:
                if group is None:
                    signature = self._reader.describe(call, axes)
                    group = self._groups.setdefault(key, SizedGroup(signature, axes))
                row = group.table.find(sizes)
                if row is None or not _is_current(row.entry):
                    if _is_capturing():
                        key = ("in a CUDA graph", key)
                        return key, self._refused(call, key, _in_cuda_graph())
                    if row is not None:  # what the function takes from elsewhere has changed
                        group.table.discard(row)
                    row = self._sized_row(call, axes, sizes, group, key)
        row.calls += 1
        if len(self._rows) >= _MOST_ROWS:
            self._rows.clear()
        self._rows[exactly] = row
        return (_SIZES_REFUSED, exactly), row.entry

    def _sized_row(
        self,
        call: Call,
        axes: tuple[DynamicAxis, ...],
        sizes: Mapping[str, int],
        group: SizedGroup[_Entry],
        key: Hashable,
    ) -> Row[_Entry]:
        bounds = {name: self._policy.bucket(size) for name, size in sizes.items()}
        predicate = SizePredicate.ranges(bounds)
        # Outside the net below: an option that does not exist is the caller's mistake.
        optimizer = self._optimizer = self._optimizer or default_optimizer(self.options)
        sized = self._sized_optimizer or default_sized_optimizer(self.options)
        self._sized_optimizer = sized
        try:
            self._check(call)
            if min(sizes.values()) <= 1:
                # Axes of one point are no dimensions: a program of its own.
                predicate = SizePredicate.ranges({n: (s, s) for n, s in sizes.items()})
                entry = self._optimized(call, optimizer)
            else:
                entry, predicate = self._optimized_for_sizes(call, axes, sizes, sized)
        except Exception as error:  # noqa: BLE001  as in _prepared
            entry = self._refused(call, (_SIZES_REFUSED, key), error)
        row = Row(predicate, entry, entry.served_by, entry.source)
        return group.table.add(row)

    def _replace(self, entry: _Entry, refused: _Entry) -> None:
        """Where a kernel has failed that many sizes share."""
        for group in list(self._groups.values()):
            for row in group.table:
                if row.entry is entry:
                    row.entry, row.served_by, row.source = refused, refused.served_by, "fallback"

    def _optimized_for_sizes(
        self,
        call: Call,
        axes: tuple[DynamicAxis, ...],
        sizes: Mapping[str, int],
        optimizer: SizedOptimizer,
    ) -> tuple[_Entry, SizePredicate]:
        def trace(at: Call) -> TracedCall:
            return trace_call(self._reader.signature, self._reader.arguments(at))

        found = sized_program(call, axes, sizes, self._policy, trace)
        kernel: Kernel | None = self._pinned.kernel_for(found.traced.program)
        if kernel is None:
            reference = self._reference(found.call, found.traced)
            kernel = optimizer(found.traced.program, tuple(found.dims), reference)
        entry = self._entry_of(self._reader.describe(call, axes), kernel, found.traced, found.call)
        return entry, found.validity(getattr(kernel, "validity", None))

    def _optimized(self, call: Call, optimizer: Optimizer) -> _Entry:
        arguments = self._reader.arguments(call)
        traced = trace_call(self._reader.signature, arguments)
        inputs = traced.inputs(call.leaves)
        kernel: Kernel | None = self._pinned.kernel_for(traced.program)
        if kernel is None:
            kernel = optimizer(traced.program, inputs, self._reference(call, traced))
        return self._entry_of(self._reader.describe(call), kernel, traced, call)

    def _entry_of(self, signature: str, kernel: Kernel, traced: TracedCall, call: Call) -> _Entry:
        inputs = traced.inputs(call.leaves)
        served_by = getattr(kernel, "description", None) or described(kernel)
        captured = tuple(tensor_key(t) for t in inputs[len(traced.arguments) :])
        return _Entry(signature, served_by, kernel, traced, captured)

    def _reference(self, call: Call, traced: TracedCall) -> Kernel:
        """The function itself, from the program's inputs to its outputs."""

        def reference(*inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
            leaves = list(call.leaves)
            for place, tensor in zip(traced.arguments, inputs, strict=False):
                leaves[place] = tensor
            arguments = self._reader.arguments(Call(tuple(leaves), call.structure))
            outputs = traced.unpack(self._reader.signature.call(arguments))
            return outputs[0] if len(outputs) == 1 else outputs

        return reference

    def _check(self, call: Call) -> None:
        """UnsupportedError for calls that no kernel can serve."""
        if torch.is_grad_enabled() and any(t.requires_grad for t in call.tensors):
            raise UnsupportedError(
                "an argument requires grad",
                why="kernels compute forward only, and the gradient would be lost",
                repair="call it under torch.no_grad() where no gradient is needed",
            )
        devices = list(dict.fromkeys(t.device for t in call.tensors))
        if len(devices) > 1:
            raise UnsupportedError(
                f"the arguments are on several devices: {', '.join(map(str, devices))}",
                why="a kernel runs on one",
                repair=f"move all of them to {devices[0]}",
            )
        if self._needs_gpu and devices and devices[0].type != "cuda":
            raise UnsupportedError(
                f"the arguments are on {devices[0]}",
                why="kernels run on an NVIDIA GPU",
                repair="move the arguments to one, or search without one: mirage-py superoptimize",
            )

    def _mode(self) -> bool:
        """Whether the module behind the function is in training mode."""
        owner = getattr(self.__wrapped__, "__self__", self.__wrapped__)
        return bool(getattr(owner, "training", False))

    def _refused(self, call: Call, key: Hashable, error: Exception) -> _Entry:
        """Note and say, once, why the function itself runs; with ``strict`` raise instead."""
        if self.options.strict:
            raise error
        known = self._entries.get(key)
        if known is not None and known.kernel is None:
            return known
        signature = self._reader.describe(call)
        what = error.what if isinstance(error, MirageError) else f"{type(error).__name__}: {error}"
        entry = _Entry(signature, f"the function itself: {what}")
        self._entries[key] = entry
        message = f"{self._name}({signature}) runs as it is: {error}"
        warnings.warn(message, MirageWarning, stacklevel=_callers_level())
        return entry


@overload
def superoptimize(fn: Callable[P, R], /) -> SuperoptimizedFunction[P, R]: ...


@overload
def superoptimize(
    fn: None = None,
    /,
    *,
    target: str = "auto",
    backend: str = "auto",
    effort: str = "quick",
    budget: float | None = None,
    seed: int = 0,
    strict: bool = False,
    cache: bool = True,
    shapes: str | None = None,
    dynamic: Declared | None = None,
    edges: tuple[int, ...] = (),
    plan: str | None = None,
) -> Callable[[Callable[P, R]], SuperoptimizedFunction[P, R]]: ...


def superoptimize(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    target: str = "auto",
    backend: str = "auto",
    effort: str = "quick",
    budget: float | None = None,
    seed: int = 0,
    strict: bool = False,
    cache: bool = True,
    shapes: str | None = None,
    dynamic: Declared | None = None,
    edges: tuple[int, ...] = (),
    plan: str | None = None,
) -> Any:
    """Make a torch function call the fastest kernels that can be found for it.

    Use it as ``@superoptimize`` or ``@superoptimize(effort="full")``. ``budget`` limits the search
    of a signature, in seconds. With ``strict`` an error is raised where otherwise the function
    itself would run with a warning.

    ``shapes`` is what dimensions get whose size changes from call to call: ``static`` (a kernel for
    each size), ``bucketed`` (one for each bucket of sizes, whose upper ends ``edges`` may name), or
    ``symbolic`` (one for all). They are those that ``dynamic`` names, as in
    ``{"x": {0: "tokens"}}``, and those that ``torch._dynamo.mark_dynamic`` marks; unless
    ``shapes`` says otherwise they are bucketed. See docs/dynamic_shapes.md.

    ``plan`` is a saved artifact, or the text of a plan that ``explain`` prints: calls with its
    program are served by it without a search.
    """
    options = CallOptions(
        target,
        backend,
        effort,
        budget,
        seed,
        strict,
        cache,
        shapes,
        dynamic,
        tuple(edges),
        str(plan) if plan is not None else None,
    )
    if fn is None:
        return lambda fn: SuperoptimizedFunction(fn, options)
    return SuperoptimizedFunction(fn, options)


def _said(entry: _Entry) -> str:
    """Where a kernel came from, if it says so."""
    source = getattr(entry.kernel, "source", "")
    return f" ({source})" if source else ""


def _is_of_sizes(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[:1] == (_SIZES_REFUSED,)


def _is_current(entry: _Entry) -> bool:
    """Whether the tensors that the function takes from elsewhere still look as they did."""
    if entry.traced is None or not entry.captured:
        return True
    try:
        found = tuple(tensor_key(origin.fetch()) for origin in entry.traced.captured)
    except (AttributeError, LookupError, TypeError):  # it is gone, or no tensor any more
        return False
    return found == entry.captured


def _callers_level() -> int:
    """How far above the caller of this function the first frame outside this file is."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    level = 1
    while frame is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    return level


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _in_cuda_graph() -> UnsupportedError:
    return UnsupportedError(
        "this signature is met for the first time inside a CUDA graph",
        why="nothing is searched, compiled or timed during capture",
        repair="call it once before capture, or call .prepare(...) with the same arguments",
    )


def _unhashable(error: TypeError) -> UnsupportedError:
    return UnsupportedError(
        f"an argument cannot be part of a signature: {error}",
        why="kernels are kept by the values of all arguments that are not tensors",
        repair="pass plain values: numbers, strings, tuples of them",
    )
