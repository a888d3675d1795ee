"""A callable region: the program for each size, and the fallback."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.regions.merged_rows import MergedRows, merged_rows
from mirage_py.dynamo.regions.nodes import extent
from mirage_py.dynamo.regions.region_graph import with_values
from mirage_py.dynamo.regions.region_program import (
    RefusedNodeError,
    RegionProgram,
    TensorLayout,
    region_program,
)
from mirage_py.dynamo.regions.symbolic_sizes import SymbolicSizes
from mirage_py.dynamo.serve.chain import Chain
from mirage_py.dynamo.serve.service import Entry, Kernel, RegionServer, Service, Value
from mirage_py.dynamo.serve.sized_entries import Layouts, SizedEntries
from mirage_py.errors import LostGpuError, MirageWarning, why_failed
from mirage_py.reasons import Code, Reason, reason
from mirage_py.shapes.policy import BUCKETED, ShapePolicy
from mirage_py.ugraph.ir.plan import Plan

# What runs a region's own operators: the inputs to its results.
Original = Callable[..., Sequence[torch.Tensor]]
# Sets of symbolic sizes of which what serves them is remembered.
_MOST_KEPT = 4096


class RegionCall:
    """A region of one content; every place in the graphs that has this content calls it.

    Safe to call from many threads. Without ``sizes``, the names of symbolic ones, the table has an
    entry for each set of layouts met: with static sizes that is one, made when the graph is
    compiled. With them a bucket of sizes has one (``sized_entries.py``), and what serves a size is
    looked up by it. After ``max_sizes`` no more are made: each is a search, in the middle of the
    user's calls. ``original`` makes of a region's own operators what runs where no kernel does.
    """

    def __init__(
        self,
        key: str,
        module: GraphModule,
        server: RegionServer,
        max_sizes: int | None = None,
        constants: Sequence[int] = (),
        chain: Chain | None = None,
        written: Sequence[tuple[int, int]] = (),
        sizes: tuple[SymbolicSizes, ShapePolicy] | None = None,
        original: Callable[[GraphModule], Original] = lambda module: module,
        *,
        is_static: bool = False,
    ) -> None:
        """Where a call ``is_static``, its graph has no symbols: inputs lie as they were prepared
        for, and are not asked again. ``constants`` are numbers of inputs that no kernel around the
        region writes; links serve while the ``chain`` is on. Of ``written`` each is the number of a
        result and that of the input that it is written to.
        """
        self.key = key
        self.module = module
        self._server = server
        self._max_sizes = max_sizes
        self._constants = frozenset(constants)
        self._chain = chain or Chain()
        self._written = dict(written)
        self._links: dict[Hashable, Kernel] = {}
        self._is_full = False
        self._entries: dict[Hashable, Entry] = {}
        self._lock = threading.RLock()
        self._broken = ""
        self._original = original(module)
        self._is_static = is_static
        # What serves all calls, by its key.
        self._only: tuple[Hashable, Entry] | None = None
        self._symbolic: SymbolicSizes | None = None
        self._rows: MergedRows | None = None
        self._sized: SizedEntries | None = None
        if sizes is not None:
            symbolic, policy = sizes
            # Where the edges of buckets are given, they are those of each size.
            if policy.kind == BUCKETED and not policy.edges:
                self._rows = merged_rows(module, symbolic)
            self._symbolic = symbolic if self._rows is None else self._rows.merged
            self._sized = SizedEntries(module, self._symbolic, policy, self._made_of, max_sizes)

    def __call__(self, *inputs: Value) -> tuple[torch.Tensor, ...]:
        """The region's results, laid out as torch expects them, without those in place."""
        if self._rows is None:
            found = self._served(inputs)
            return self._by_torch(inputs) if found is None else found
        found = self._served(self._rows.given(inputs))
        return self._by_torch(inputs) if found is None else self._rows.arranged(found, inputs)

    def _served(self, inputs: Sequence[Value]) -> tuple[torch.Tensor, ...] | None:
        """The results by a kernel; None where none serves these inputs."""
        table_key: Hashable
        if self._only is not None:
            table_key, entry = self._only
        else:
            symbolic = self._symbolic
            table_key = symbolic.of(inputs) if symbolic else tuple(map(_described, inputs))
            entry = self._entries.get(table_key) or self._prepared(table_key)
        kernel, program = entry.served.kernel, entry.program
        if self._chain.is_on:
            kernel = self._links.get(table_key, kernel)
        if kernel is None or program is None or self._broken:
            return None
        try:
            found = _called(kernel, program, inputs, places=entry.served.places)
        except Exception as error:  # noqa: BLE001  the kernel is at fault, not the call
            self._broken = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"a region falls back to eager, its kernel failed: {self._broken}",
                MirageWarning,
                stacklevel=3,
            )
            return None
        return tuple(
            r.arranged(found[r.number]) for r in program.results if r.number not in self._written
        )

    def described(self, *inputs: Value) -> tuple[torch.Tensor, ...]:
        """The results of a call with tensors without data."""
        results = self.module(*inputs)
        return tuple(r for n, r in enumerate(results) if n not in self._written)

    def _by_torch(self, inputs: Sequence[Value]) -> tuple[torch.Tensor, ...]:
        """The region by its own operators: compiled, or as they are."""
        results = self._by_operators(inputs)
        for number, place in self._written.items():
            target = inputs[place]
            assert isinstance(target, torch.Tensor)
            target.copy_(results[number])
        return tuple(r for n, r in enumerate(results) if n not in self._written)

    def prepare(self, layouts: Sequence[TensorLayout | int]) -> Entry:
        """The entry for inputs of these layouts; made if there is none."""
        if self._symbolic is None:
            key = tuple(layouts)
            entry = self._prepared(key)
            # Other layouts where the model is on many devices.
            self._is_static &= self._only is None or self._only[0] == key
            self._only = (key, entry) if self._is_static else None
            return entry
        given = layouts if self._rows is None else self._rows.given(layouts)
        return self._prepared(self._symbolic.of(given))

    def _prepared(self, key: Hashable) -> Entry:
        with self._lock:
            known = self._entries.get(key)
            if known is not None:
                return known
            is_capturing = _is_capturing()
            if self._sized is not None:
                known = self._sized.find(key, may_search=not is_capturing)
                is_full = known is not None and known.served.why.code is Code.MAX_SIZES
            else:
                is_full = len(self._entries) == self._max_sizes
                if not is_capturing and not is_full:
                    known = self._made(key)
            if is_full:
                self._say_full()
            if known is None:
                # Where it is a capture: only this time, so that a later call prepares it.
                why = Reason(Code.MET_INSIDE_CUDA_GRAPH)
                return Entry("", Service(None, why) if is_capturing else self._beyond)
            if self._sized is not None and len(self._entries) >= _MOST_KEPT:
                self._entries.clear()
            self._entries[key] = known
            return known

    def links(self) -> Mapping[Hashable, Plan]:
        """Its plans for a chain, by what ``serve_link`` knows them by."""
        return {k: e.served.link for k, e in self._entries.items() if e.served.link is not None}

    def serve_link(self, key: Hashable, kernel: Kernel) -> None:
        """The ``kernel`` serves while the chain is on."""
        self._links[key] = kernel

    def dispatch_table(self) -> str:
        """One line for each set of sizes, or bucket of them, met so far, and what serves it."""
        if self._sized is not None:
            return str(self._sized)
        lines = [f"({e.signature}) -> {e.served}" for e in self._entries.values()]
        return "\n".join([*lines, f"others -> {self._beyond}"] if self._is_full else lines)

    @property
    def searches(self) -> int:
        """For how many sets of sizes, or buckets of them, a kernel was asked for."""
        return len(self._entries) if self._sized is None else self._sized.searches

    @property
    def has_open_sizes(self) -> bool:
        """Whether one of its kernels may serve many sizes."""
        return self._sized is not None

    @property
    def sizes_met(self) -> tuple[int, int]:
        """How many sets of sizes a kernel serves of those met so far, and how many its operators
        run at.
        """
        entries = list(self._entries.values())
        served = sum(e.served.kernel is not None for e in entries)
        return served, len(entries) - served

    @property
    def _beyond(self) -> Service:
        return Service(None, reason(Code.MAX_SIZES, self._max_sizes))

    def _say_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            warnings.warn(
                f"a region meets more than {self._max_sizes} sets of sizes: at others it runs as "
                "it is; raise the option max_sizes, or pad to fewer sizes",
                MirageWarning,
                stacklevel=4,
            )

    def _by_operators(self, inputs: Sequence[Value]) -> Sequence[torch.Tensor]:
        if self._original is not self.module and not _is_capturing():
            try:
                return self._original(*inputs)
            except Exception:  # noqa: BLE001  the compiler is at fault, or the operators say so, too
                self._original = self.module
        results: Sequence[torch.Tensor] = self.module(*inputs)
        return results

    def _made(self, layouts: Any) -> Entry:
        """The entry of these layouts alone."""
        signature = ", ".join(map(_words, layouts))
        return self._made_of(signature, lambda: (region_program(self.module, layouts), layouts))

    def _made_of(
        self, signature: str, program_of: Callable[[], tuple[RegionProgram, Layouts]]
    ) -> Entry:
        try:
            found, layouts = program_of()
            program = self._told(found)
            served = self._server(program, self._reference(program, layouts))
        except LostGpuError:  # there is none for the fallback either
            raise
        # The rest can run it, whatever went wrong in making it faster.
        except Exception as error:  # noqa: BLE001
            refused = error.number if isinstance(error, RefusedNodeError) else None
            return Entry(signature, Service(None, why_failed(error)), refused=refused)
        return Entry(signature, served, program)

    def _told(self, region: RegionProgram) -> RegionProgram:
        tensors = zip(region.program.inputs, region.inputs, strict=True)
        names = (t.name for t, number in tensors if number in self._constants)
        return replace(region, constants=tuple(names))

    def _reference(self, program: RegionProgram, layouts: Sequence[TensorLayout | int]) -> Kernel:
        """The region's own operators, from the program's inputs to its outputs."""
        module = with_values(self.module) if program.writes else self.module

        def reference(*given: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
            by_number = dict(zip(program.inputs, given, strict=True))
            inputs = [by_number.get(n, _blank(x, given)) for n, x in enumerate(layouts)]
            results = module(*inputs)
            written = tuple(r.written(results[r.number]) for r in program.results)
            return written[0] if len(written) == 1 else written

        return reference


def _called(
    kernel: Any, program: RegionProgram, inputs: Sequence[Value], *, places: bool
) -> Sequence[torch.Tensor]:
    """What a kernel makes of a region's inputs; what is written in place is there afterwards."""
    given = [inputs[n] for n in program.inputs]
    if not program.writes:
        result = kernel(*given)
        return result if isinstance(result, tuple) else (result,)
    targets = {w.placement.output: inputs[w.input] for w in program.writes}
    if places:
        known = {t.name for t in program.program.inputs}
        read = {
            t.name: inputs[n]
            for w in program.writes
            for t, n in zip(w.placement.read, w.read, strict=True)
            if t.name not in known
        }
        found: Sequence[torch.Tensor] = kernel.run_in_place([*given, *read.values()], targets)
        return found
    result = kernel(*given)
    made = result if isinstance(result, tuple) else (result,)
    for write in program.writes:
        write.put(made[write.placement.output], inputs)
    return made


def layouts_of(values: Sequence[object]) -> list[TensorLayout | int]:
    """The layouts of values as torch describes them; of symbols their value in the example."""
    found: list[TensorLayout | int] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            shape, strides = (tuple(map(extent, x)) for x in (value.shape, value.stride()))
            found.append(TensorLayout(shape, strides, value.dtype, value.device))
        else:
            found.append(extent(value))
    return found


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _described(value: Value) -> TensorLayout | int:
    return TensorLayout.of(value) if isinstance(value, torch.Tensor) else int(value)


def _blank(layout: TensorLayout | int, given: Sequence[torch.Tensor]) -> Value:
    """An input that the program does not read: only its shape matters."""
    if isinstance(layout, int):
        return layout
    device = given[0].device
    return torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device=device)


def _words(layout: TensorLayout | int) -> str:
    if isinstance(layout, int):
        return str(layout)
    return f"{str(layout.dtype).removeprefix('torch.')}{list(layout.shape)}"
