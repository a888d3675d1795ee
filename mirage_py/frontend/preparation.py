"""Preparation of a call: traced, searched for, or taken from a saved plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mirage_py.collector import rarely_collecting
from mirage_py.frontend.cached_kernels import Pinned, direct_form, what_serves
from mirage_py.frontend.dynamic_axes import DynamicAxis
from mirage_py.frontend.entries import Entry
from mirage_py.frontend.refused_calls import check_servable
from mirage_py.frontend.refused_functions import RefusedFunction
from mirage_py.frontend.searches import (
    CallOptions,
    Kernel,
    Optimizer,
    SizedOptimizer,
    cached_report,
    default_optimizer,
    default_sized_optimizer,
)
from mirage_py.frontend.sized_calls import sized_program
from mirage_py.frontend.torch.guards.call_key import Call, CallReader, tensor_key
from mirage_py.frontend.torch.guards.origins import Origin
from mirage_py.frontend.torch.reference import reference_of
from mirage_py.frontend.torch.trace import TracedCall, trace_call
from mirage_py.frontend.torch.writes import put_back
from mirage_py.reasons import Served
from mirage_py.shapes.predicate import SizePredicate


class Preparation:
    """Makes the kernels of one function. ``optimizer`` replaces the pipeline that ``options``
    describe, ``sized_optimizer`` the one for dimensions whose size changes from call to call.
    """

    def __init__(
        self,
        reader: CallReader,
        options: CallOptions,
        optimizer: Optimizer | None = None,
        sized_optimizer: SizedOptimizer | None = None,
    ) -> None:
        self.reader = reader
        self.options = options
        self.pinned = Pinned(options.plan)
        self._optimizer = optimizer
        self._sized_optimizer = sized_optimizer
        self._has_pipeline = optimizer is None
        self._needs_gpu = optimizer is None and options.backend != "interpret"

    def ensure_optimizers(self, *, sized: bool) -> None:
        """Raises InputError for an option that does not exist: that is the caller's mistake, and no
        reason to run the function itself.
        """
        self._optimizer = self._optimizer or default_optimizer(self.options)
        if sized:
            self._sized_optimizer = self._sized_optimizer or default_sized_optimizer(self.options)

    def check(self, call: Call) -> None:
        """UnsupportedError for calls that no kernel can serve."""
        check_servable(call.tensors, needs_gpu=self._needs_gpu)

    def exactly(self, call: Call) -> Entry:
        """What serves calls with this signature, ``ensure_optimizers`` having been called."""
        assert self._optimizer is not None
        begun = time.monotonic()
        traced = self._traced(call)
        inputs = traced.inputs(call.leaves)
        itself = self._reference(call, traced)
        kernel: Kernel | None = self.pinned.kernel_for(traced.program)
        if kernel is None:
            given = None if self._has_pipeline else self._optimizer
            optimizer = given or default_optimizer(self.options, begun)
            # A module's own buffers are what the function itself writes to while it is timed.
            with put_back([p for p in traced.places if isinstance(p, Origin)], ()):
                kernel = optimizer(traced.program, inputs, itself)
        served = what_serves(kernel, itself)
        direct = direct_form(kernel, itself, self.reader.signature.fn)
        return _entry(self.reader.describe(call), served, kernel, traced, direct)

    def for_sizes(
        self, call: Call, axes: Sequence[DynamicAxis], sizes: Mapping[str, int]
    ) -> tuple[Entry, SizePredicate]:
        """What serves calls of many sizes, and which sizes those are."""
        assert self._sized_optimizer is not None
        found = sized_program(call, axes, sizes, self.options.policy, self._traced)
        itself = self._reference(found.call, found.traced)
        kernel: Kernel | None = self.pinned.kernel_for(found.traced.program)
        if kernel is None:
            kernel = self._sized_optimizer(found.traced.program, tuple(found.dims), itself)
        served = what_serves(kernel, itself)
        signature = self.reader.describe(call, axes)
        direct = direct_form(kernel, itself, self.reader.signature.fn, dynamic=True)
        entry = _entry(signature, served, kernel, found.traced, direct)
        return entry, found.validity(getattr(kernel, "validity", None))

    def instead(
        self, name: str, call: Call, error: Exception, *, is_sized: bool
    ) -> RefusedFunction | None:
        """What may run instead of the function where no kernel serves a call."""
        # Here and not above: whole models are cut in the rooms behind it.
        from mirage_py.frontend.function_parts import function_parts

        given = None if self._has_pipeline else self._optimizer
        parts = function_parts(
            self.reader.signature.fn, call, error, self.options, optimizer=given, is_sized=is_sized
        )
        return None if parts is None else RefusedFunction(parts, name, error)

    def report(self, entry: Entry) -> Mapping[str, Any]:
        """The report of a kernel: its own, or that of the cached search."""
        report = getattr(entry.kernel, "record", None)
        if not report and entry.traced is not None and self._has_pipeline:
            return cached_report(entry.traced.program, self.options, entry.traced.words)
        return report or {}

    @rarely_collecting()
    def _traced(self, call: Call) -> TracedCall:
        return trace_call(self.reader.signature, self.reader.arguments(call), as_in_memory=True)

    def _reference(self, call: Call, traced: TracedCall) -> Kernel:
        """The function itself, from the program's inputs to its outputs."""
        if call.structure is None and traced.is_plain(len(call.leaves)):
            return self.reader.signature.fn

        def of_leaves(leaves: Sequence[Any]) -> Any:
            arguments = self.reader.arguments(Call(tuple(leaves), call.structure))
            return self.reader.signature.call(arguments)

        return reference_of(traced, call.leaves, of_leaves)


def _entry(
    signature: str,
    served: Served,
    kernel: Kernel,
    traced: TracedCall,
    direct: Callable[..., Any] | None,
) -> Entry:
    captured = tuple(tensor_key(origin.fetch()) for origin in traced.elsewhere)
    return Entry(signature, served, kernel, traced, captured, direct=direct)
