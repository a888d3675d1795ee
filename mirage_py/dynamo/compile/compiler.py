"""The compiler of a model's graphs: regions, each compiled once for its content, and the Inductor
fallback.

ATen graph -> cut -> region graphs -> programs -> served -> fused graph -> Inductor
              regions  region_graph   region_program  servers  fused_graph   inductor_graphs, rest
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dispatch.python import no_python_dispatcher
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from mirage_py.dynamo.compile.fused_graph import fused_graph
from mirage_py.dynamo.compile.refusals import refusals
from mirage_py.dynamo.networks.held_weights import is_wanted
from mirage_py.dynamo.regions.constants import with_constants
from mirage_py.dynamo.regions.region_graph import RegionGraph, region_graph
from mirage_py.dynamo.regions.region_program import RefusedNodeError, TensorLayout, region_program
from mirage_py.dynamo.regions.regions import Cut, Region, cut
from mirage_py.dynamo.regions.symbolic_sizes import SymbolicSizes, has_symbols, symbolic_sizes
from mirage_py.dynamo.regions.writes import Write, count_together, in_place, put_writes, take_writes
from mirage_py.dynamo.serve.chain import Chain, link_kernels
from mirage_py.dynamo.serve.cuda_graphs import captured
from mirage_py.dynamo.serve.fallback import BoxedCall, eager_fallback, inductor_settings
from mirage_py.dynamo.serve.log import log, report
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.region_call import RegionCall, layouts_of
from mirage_py.dynamo.serve.region_op import register
from mirage_py.dynamo.serve.servers import server_for
from mirage_py.dynamo.serve.service import Entry, RegionServer, Service
from mirage_py.errors import InputError, LostGpuError, MirageWarning, UnsupportedError
from mirage_py.reasons import Code, Reason, reason
from mirage_py.shapes.policy import STATIC, ShapePolicy
from mirage_py.targets import Target


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a graph: its cut, the regions that something serves, and a row of the log for
    each distinct region: the first of it, how many there are, what serves it.
    """

    cut: Cut
    served: tuple[RegionGraph, ...]
    rows: tuple[tuple[Region, int, Entry], ...]


@dataclass
class GraphCompiler:
    """Cuts forward and backward graphs; regions of the same content share one ``RegionCall``.

    ``server`` replaces what ``options`` and the device of the inputs would choose. ``plans`` are
    those of the graphs so far, and ``is_used`` says whether their regions serve, which a faster
    graph without regions prevents; ``selections`` counts calls of ours beside regions. With
    ``shares_budget`` the regions of a graph share one budget.
    """

    options: BackendOptions
    target: Target
    server: RegionServer | None = None
    calls: dict[str, RegionCall] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    is_used: bool = True
    selections: int = 0
    shares_budget: bool = False
    chain: Chain = field(default_factory=Chain)

    def compile(self, name: str, module: GraphModule, inputs: Sequence[Any]) -> BoxedCall:
        """The graph ``name`` as a callable of a list of inputs, with torch's operators around."""
        try:
            fused = self.fused(name, module)
        except LostGpuError:  # eager would fail, too, and say less
            raise
        # The model works without us, so it goes on working.
        except Exception as error:  # noqa: BLE001
            text = f"the {name} graph is left to eager: {type(error).__name__}: {error}"
            warnings.warn(text, MirageWarning, stacklevel=2)
            fused = module
        run = eager_fallback(fused)
        if self.options.cuda_graphs:
            run = captured(name, run, fused, inputs)
        held = self.held()

        def call(values: list[Any]) -> Sequence[Any]:
            assert held is not None
            return run(values)

        call._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001  torch's protocol
        return call

    def held(self) -> Sequence[RegionCall]:
        """The regions: who keeps a compiled graph keeps them, for it knows their keys alone."""
        return tuple(self.calls.values())

    def chained(self, compiled: Callable[..., Any]) -> Callable[..., Any] | None:
        """A compiled graph with its regions as links of a chain; None where none can be one."""
        links = [(call, *item) for call in self.calls.values() for item in call.links().items()]
        kernels = link_kernels([plan for _, _, plan in links], self.options)
        for (call, key, _), kernel in zip(links, kernels, strict=True):
            if kernel is not None:
                call.serve_link(key, kernel)
        return self.chain.running(compiled) if any(kernels) else None

    def fused(self, name: str, module: GraphModule) -> GraphModule:
        """The graph, rewritten as a whole where that pays, with a call in the place of each region
        that something serves; ``module`` itself where neither is.
        """
        module = self._rewritten(name, module)
        writes = take_writes(module.graph)
        try:
            plan = self._planned(name, module, writes)
            fused = fused_graph(module, plan.cut, plan.served) if plan.served else None
        finally:
            put_writes(module.graph, writes)
        self.report(name, plan)
        if fused is None:
            return module
        count_together(fused.graph, writes)
        put_writes(fused.graph, writes)
        return fused

    def _rewritten(self, name: str, module: GraphModule) -> GraphModule:
        """A graph for inference as substitutions make it."""
        effort = self.options.graph
        if effort == "off" or name != "inference" or not is_wanted(module, effort):
            return module
        # The search is loaded when something is searched.
        from mirage_py.dynamo.networks.rewriting import rewritten

        with _disable_current_modes(), no_python_dispatcher():
            found = rewritten(
                module,
                self.target,
                effort=effort,
                budget=self.options.budget,
                min_gain=self.options.min_gain,
                seed=self.options.seed,
            )
        self.lines += [f"graph level: {line}" for line in found.lines()]
        for line in found.lines():
            log.info("graph level: %s", line)
        return found.module

    def plan(self, name: str, module: GraphModule) -> Plan:
        """What becomes of the graph ``name``."""
        writes = take_writes(module.graph)
        try:
            return self._planned(name, module, writes)
        finally:
            put_writes(module.graph, writes)

    def report(self, name: str, plan: Plan) -> None:
        """Write down what becomes of the graph ``name``."""
        self.plans.append(plan)
        lines = report(name, plan.cut, plan.rows, self.options.rest)
        self.lines += lines
        if self.options.report:
            from mirage_py.dynamo.serve.model_report import add_to_report

            add_to_report(lines, self.options, self.target)

    def _planned(self, name: str, module: GraphModule, writes: Sequence[Write]) -> Plan:
        plan = self._served(name, module, writes, parts=True)
        # A larger region that nothing serves leaves none: its products alone may be served.
        if all(entry.served.kernel is not None for _, _, entry in plan.rows):
            return plan
        return max(plan, self._served(name, module, writes, parts=False), key=_saved_us)

    def _served(
        self, name: str, module: GraphModule, writes: Sequence[Write], *, parts: bool
    ) -> Plan:
        """The graph cut anew, without nodes that turn out to be in no program, as long as there are
        any: they cost themselves, and not the region that they stood in. So do products that are
        read in parts where the program is too large, which is known before any search.
        """
        refused: dict[Node, Reason] = {}
        unparted: dict[Node, None] = {}
        while True:
            found, graphs = self._cut(name, module, writes, parts, refused, unparted)
            if large := self._too_large(found, graphs):
                unparted.update(dict.fromkeys(large))
                continue
            entries = self._entries(found.regions, graphs)
            with _disable_current_modes(), no_python_dispatcher():
                new = refusals(found, graphs, entries)
            if not new:
                served = tuple(g for g in graphs if entries[g.key].served.kernel is not None)
                return Plan(found, served, tuple(_distinct(found.regions, graphs, entries)))
            refused |= new

    def _cut(
        self,
        name: str,
        module: GraphModule,
        writes: Sequence[Write],
        parts: bool,
        refused: Mapping[Node, Reason],
        unparted: Collection[Node],
    ) -> tuple[Cut, Sequence[RegionGraph]]:
        # Inductor may reuse what a forward graph leaves for a backward one.
        written = in_place(module.graph, writes) if name == "inference" else {}
        found = cut(
            module.graph,
            self.target,
            rest_fuses=self.options.rest == "inductor",
            rest_tunes=self._rest_tunes(),
            min_gain=self.options.min_gain,
            float64=self.options.on_cpu == "reference",
            parts=parts,
            refused=refused,
            in_place=written,
            unparted=unparted,
        )
        graphs = [region_graph(r, found.facts) for r in found.regions]
        if name == "inference" and self.options.chain != "off":
            graphs = with_constants(graphs, found, [w.place for w in writes])
        return found, graphs

    def _rest_tunes(self) -> bool:
        """Whether Inductor chooses among kernels for what is left to it."""
        options = self.options
        return options.rest == "inductor" and bool(inductor_settings(options).get("max_autotune"))

    def _too_large(self, found: Cut, graphs: Sequence[RegionGraph]) -> list[Node]:
        """The products that are read in parts in regions which no program takes as a whole."""
        takes: dict[str, bool] = {}
        for region, graph in zip(found.regions, graphs, strict=True):
            if region.products and graph.key not in takes:
                values = [n.meta["val"] for n in graph.inputs]
                with _disable_current_modes(), no_python_dispatcher():
                    takes[graph.key] = _is_taken_whole(graph, layouts_of(values))
        pairs = zip(found.regions, graphs, strict=True)
        return [n for r, g in pairs if not takes.get(g.key, True) for n in r.products]

    def _entries(
        self, regions: Sequence[Region], graphs: Sequence[RegionGraph]
    ) -> dict[str, Entry]:
        """What serves each content; the most valuable are optimised first."""
        gains: dict[str, float] = {}
        for region, graph in zip(regions, graphs, strict=True):
            gains[graph.key] = gains.get(graph.key, 0.0) + region.gain_us
        by_key = {g.key: g for g in reversed(graphs)}
        entries = {}
        for key in sorted(gains, key=lambda k: -gains[k]):
            if key not in self.calls and len(self.calls) == self.options.max_regions:
                why = reason(Code.MAX_REGIONS, self.options.max_regions)
                entries[key] = Entry("", Service(None, why))
                continue
            is_new, begin = key not in self.calls, time.perf_counter()
            entries[key] = self._entry(by_key[key], len(gains))
            if is_new:
                seconds = time.perf_counter() - begin
                log.info("content %d of %d: %.1f s", len(entries), len(gains), seconds)
        return entries

    def _entry(self, graph: RegionGraph, others: int) -> Entry:
        values = [n.meta["val"] for n in graph.inputs]
        # Kernels are measured on real tensors, and their programs are nobody's trace.
        with _disable_current_modes(), no_python_dispatcher():
            call = self.calls.get(graph.key) or self._call(graph, values, others)
            return call.prepare(layouts_of(values))

    def _call(self, graph: RegionGraph, values: Sequence[Any], others: int) -> RegionCall:
        devices = [v.device.type for v in values if isinstance(v, torch.Tensor)]
        options = self.options.with_share(others) if self.shares_budget else self.options
        server = self.server or server_for(options, devices[0] if devices else "cpu")
        call = self.calls[graph.key] = RegionCall(
            graph.key,
            graph.module,
            server,
            self.options.max_sizes,
            graph.constants,
            self.chain,
            graph.written,
            self._sizes(graph, values),
            self._original,
            is_static=not has_symbols(values),
        )
        register(call)
        return call

    def _sizes(
        self, graph: RegionGraph, values: Sequence[Any]
    ) -> tuple[SymbolicSizes, ShapePolicy] | None:
        """The names of a region's symbolic sizes, where one kernel may serve many of them."""
        policy = self.options.policy
        # What is written in place lies where one size says.
        if policy.kind == STATIC or graph.written:
            return None
        found = symbolic_sizes(values, [n.meta["val"] for n in graph.outputs])
        return None if found is None else (found, policy)

    def _original(self, module: GraphModule) -> Callable[..., Any]:
        """What runs a region's own operators at sizes that no kernel serves: Inductor, once for
        many sizes, where it compiles all else.
        """
        if self.options.rest != "inductor":
            return module
        from mirage_py.runtime.eager.compiled import CompiledFunction

        compiled = CompiledFunction(module, dynamic=True)

        def run(*inputs: Any) -> Any:
            with torch.no_grad():
                return compiled(*inputs)

        return run


def _is_taken_whole(graph: RegionGraph, layouts: Sequence[TensorLayout | int]) -> bool:
    """Whether there is a program, or a node without which there may be one."""
    try:
        region_program(graph.module, layouts)
    except RefusedNodeError:
        return True
    except (UnsupportedError, InputError):
        return False
    return True


def _saved_us(plan: Plan) -> float:
    """What the model expects the regions to save that something serves."""
    rows = [row for row in plan.rows if row[2].served.kernel is not None]
    return sum(times * region.gain_us for region, times, _ in rows)


def _distinct(
    regions: Sequence[Region], graphs: Sequence[RegionGraph], entries: dict[str, Entry]
) -> list[tuple[Region, int, Entry]]:
    """The first region of each content, how many there are, what serves them."""
    keys = [g.key for g in graphs]
    first = dict(zip(reversed(keys), reversed(regions), strict=True))
    return [(first[key], keys.count(key), entries[key]) for key in dict.fromkeys(keys)]
