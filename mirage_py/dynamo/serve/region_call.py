"""A region as something to call: which program serves which sizes, and what happens otherwise."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.regions.nodes import extent
from mirage_py.dynamo.regions.region_graph import with_values
from mirage_py.dynamo.regions.region_program import (
    RefusedNodeError,
    RegionProgram,
    TensorLayout,
    region_program,
)
from mirage_py.dynamo.serve.chain import Chain
from mirage_py.errors import LostGpuError, MirageWarning, why_failed
from mirage_py.reasons import Code, Reason, Served, Server, reason
from mirage_py.ugraph.ir.plan import Plan

Value = torch.Tensor | int
# From a program's inputs to its outputs, a tuple for several.
Kernel = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]


@dataclass(frozen=True, slots=True)
class Service:
    """A ``kernel`` that serves a program, or None for the region's own operators, and why; ``link``
    is its plan for a chain. Where it ``places`` results, kernel and link are placed plans
    (ugraph/rewrite/placements.py), called by ``run_in_place``.
    """

    kernel: Kernel | None
    why: Reason
    by: Server = Server.EAGER
    link: Plan | None = None
    places: bool = False

    def __str__(self) -> str:
        return str(Served(self.by, self.why))


# (the program, the region's own code as a Kernel) -> what serves it.
RegionServer = Callable[[RegionProgram, Kernel], Service]


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a region's dispatch table: what serves inputs of some sizes and layouts, or the
    number of the node in the region's graph that was ``refused``, without which others may be in a
    program.
    """

    signature: str
    served: Service
    program: RegionProgram | None = None
    refused: int | None = None


class RegionCall:
    """A region of one content; every place in the graphs that has this content calls it.

    Safe to call from many threads. The table has an entry for each set of layouts and sizes met:
    with static sizes that is one, made when the graph is compiled. A symbolic size makes one more
    entry when it takes a new value, and torch need not compile anything again. After ``max_sizes``
    of them no more are made, with one warning: each is a search, in the middle of the user's calls.
    ``_table_key`` is where another policy (buckets of sizes, one kernel for all) says which calls
    share an entry.
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
    ) -> None:
        """``constants`` are numbers of inputs that no kernel around the region writes; links serve
        while the ``chain`` is on. Of ``written`` each is the number of a result and that of the
        input that it is written to.
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

    def __call__(self, *inputs: Value) -> tuple[torch.Tensor, ...]:
        """The region's results, laid out as torch expects them, without those in place."""
        layouts = tuple(_described(x) for x in inputs)
        table_key = _table_key(layouts)
        entry = self._entries.get(table_key) or self.prepare(layouts)
        kernel, program = entry.served.kernel, entry.program
        if self._chain.is_on:
            kernel = self._links.get(table_key, kernel)
        if kernel is None or program is None or self._broken:
            return self._by_module(inputs)
        try:
            found = _called(kernel, program, inputs, places=entry.served.places)
        except Exception as error:  # noqa: BLE001  the kernel is at fault, not the call
            self._broken = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"a region falls back to eager, its kernel failed: {self._broken}",
                MirageWarning,
                stacklevel=2,
            )
            return self._by_module(inputs)
        return tuple(
            r.arranged(found[r.number]) for r in program.results if r.number not in self._written
        )

    def described(self, *inputs: Value) -> tuple[torch.Tensor, ...]:
        """The results of a call with tensors without data."""
        results = self.module(*inputs)
        return tuple(r for n, r in enumerate(results) if n not in self._written)

    def _by_module(self, inputs: Sequence[Value]) -> tuple[torch.Tensor, ...]:
        """The region by its own operators."""
        results = self.module(*inputs)
        for number, place in self._written.items():
            target = inputs[place]
            assert isinstance(target, torch.Tensor)
            target.copy_(results[number])
        return tuple(r for n, r in enumerate(results) if n not in self._written)

    def prepare(self, layouts: Sequence[TensorLayout | int]) -> Entry:
        """The entry for inputs of these layouts; made if there is none."""
        key = _table_key(tuple(layouts))
        with self._lock:
            known = self._entries.get(key)
            if known is None and _is_capturing():
                # Only this time, so that a later call prepares it.
                return Entry("", Service(None, Reason(Code.MET_INSIDE_CUDA_GRAPH)))
            if known is None and len(self._entries) == self._max_sizes:
                self._say_full()
                return Entry("", self._beyond)
            if known is None:
                known = self._entries[key] = self._made(layouts)
            return known

    def links(self) -> Mapping[Hashable, Plan]:
        """Its plans for a chain, by what ``serve_link`` knows them by."""
        return {k: e.served.link for k, e in self._entries.items() if e.served.link is not None}

    def serve_link(self, key: Hashable, kernel: Kernel) -> None:
        """The ``kernel`` serves while the chain is on."""
        self._links[key] = kernel

    def dispatch_table(self) -> str:
        """One line for each set of sizes met so far, and what serves it."""
        lines = [f"({e.signature}) -> {e.served}" for e in self._entries.values()]
        return "\n".join([*lines, f"others -> {self._beyond}"] if self._is_full else lines)

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

    def _made(self, layouts: Sequence[TensorLayout | int]) -> Entry:
        signature = ", ".join(map(_words, layouts))
        try:
            program = self._told(region_program(self.module, layouts))
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


def _table_key(layouts: tuple[TensorLayout | int, ...]) -> Hashable:
    return layouts


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
