"""An ATen graph rewritten at the graph level: imported, saturated, extracted, verified, emitted.

Writes to inputs are set aside, as for regions. A graph that cannot be imported or verified stays as
it is, and the reason is logged.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.networks.convolution_kernels import matches, with_kernels
from mirage_py.dynamo.networks.operator_times import measurement_for
from mirage_py.dynamo.networks.product_kernels import product_matches
from mirage_py.dynamo.networks.product_terms import with_terms
from mirage_py.dynamo.regions.writes import put_writes, take_writes
from mirage_py.errors import UnsupportedError
from mirage_py.frontend.networks.aten_emit import emitted_network
from mirage_py.frontend.networks.aten_import import ImportedNetwork, imported_network
from mirage_py.networks.ir.graph import Graph
from mirage_py.pipeline.networks.network_evidence import NetworkEvidence, check_parts
from mirage_py.pipeline.networks.network_report import report_lines
from mirage_py.runtime.launch.convolutions.block_counters import make_counters
from mirage_py.search.networks.optimize_network import NetworkResult, optimize_network
from mirage_py.search.networks.proved_rules import by_rules
from mirage_py.search.networks.saturate import Limits
from mirage_py.search.partial.substitutions import mutants
from mirage_py.targets import Target
from mirage_py.ugraph.ir.convolution import LibraryConvolution

log = logging.getLogger("mirage_py.dynamo")

LIMITS = {
    "auto": Limits(rounds=3, nodes=6_000, matches=300, solver=0.3),
    "full": Limits(rounds=6, nodes=30_000, matches=2_000, solver=2.0),
}
# Seconds of the search, and of the checks after it, unless a budget says otherwise.
_BUDGET_S = {"auto": 30.0, "full": 300.0}
# Of the seconds, what the search has: a graph whose parts are not all checked is not used.
_SEARCH_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class _Stops:
    """Whether the search, and the checks after it, are out of time."""

    search: Callable[[], bool]
    checks: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Rewriting:
    """``module`` is the given one where nothing was found; ``why`` says so. ``kernels`` says which
    operators are kernels of ours.
    """

    module: GraphModule
    result: NetworkResult | None = None
    evidence: NetworkEvidence | None = None
    why: str = ""
    kernels: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether there is another graph."""
        return not self.why

    def lines(self) -> list[str]:
        """What was found, and what was checked."""
        if self.result is None:
            return [*self.kernels, *([self.why] if self.why else [])]
        found = [*report_lines(self.result, self.evidence), *self.kernels]
        return [*found, self.why] if self.why else found


def rewritten(
    module: GraphModule,
    target: Target,
    *,
    effort: str,
    constants: Mapping[str, torch.Tensor] | None = None,
    budget: float | None = None,
    min_gain: float = 0.0,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Rewriting:
    """The graph that costs the least; ``constants`` are the tensors of placeholders that are
    weights which do not change, and those that the module itself holds are weights, too.
    """
    begin = clock()
    seconds = _BUDGET_S[effort] if budget is None else budget
    writes = take_writes(module.graph)
    try:
        stops = _Stops(
            lambda: clock() > begin + _SEARCH_SHARE * seconds, lambda: clock() > begin + seconds
        )
        found = _rewritten(module, target, effort, constants or {}, min_gain, seed, stops)
        if found.is_changed:
            put_writes(found.module.graph, writes)
            found.module.recompile()
    except UnsupportedError as error:
        found = Rewriting(module, why=f"left as it is: {error.why or error.what}")
    finally:
        put_writes(module.graph, writes)
    return found


def _rewritten(
    module: GraphModule,
    target: Target,
    effort: str,
    constants: Mapping[str, torch.Tensor],
    min_gain: float,
    seed: int,
    stops: _Stops,
) -> Rewriting:
    network = imported_network(module, constants)
    found = _substituted(network, module, target, effort, constants, min_gain, seed, stops)
    device = _device(module)
    if effort != "full" or device.type != "cuda":
        return found
    new = found.module
    if not found.is_changed:
        try:
            new = emitted_network(network, network.graph, module, constants)
            with_terms(new, constants)
        except UnsupportedError:
            return found
    lines = _kernels(new, constants, target, device)
    if not lines:
        return found
    why = "" if found.is_changed else found.why
    return replace(found, module=new, why="", kernels=(*((why,) if why else ()), *lines))


def _kernels(
    module: GraphModule,
    constants: Mapping[str, torch.Tensor],
    target: Target,
    device: torch.device,
) -> tuple[str, ...]:
    """Kernels of ours in the place of convolutions and products where these are faster on this
    GPU.
    """
    from mirage_py.dynamo.networks.convolution_times import convolution_times
    from mirage_py.dynamo.networks.separable import chosen_pairs, pairs, without_pairs

    places = matches(module, constants)
    products = product_matches(module, constants)
    both = pairs(places)
    wanted = [*places, *products, *(pair.whole for pair in both)]
    times = convolution_times([m.spec for m in wanted], target, device)
    taken = chosen_pairs(both, times)
    places = without_pairs(places, taken)
    every = [*places, *products]
    chosen = {s: t.plan for s, t in times.items() if t.plan is not None}
    if not with_kernels(module, every, chosen):
        return ()
    # Times may have been cached, and nothing was launched in this process yet.
    make_counters(torch.empty(0, device=device).device.index)
    lines = []
    if taken:
        lines.append(f"{len(taken)} depthwise convolutions are in the kernels of pointwise ones")
    for name, found in (("convolutions and pools", places), ("products", products)):
        ours = [times[m.spec] for m in found if times[m.spec].pays]
        all_us = f"{sum(t.us for t in ours):.0f} us, {sum(t.library_us for t in ours):.0f}"
        what = f"{len(ours)} of {len(found)} {name} are kernels of ours with what is around them"
        if found:
            lines.append(f"{what}: {all_us} us by the library, each timed alone")
    theirs = [t.plan for t in (times[m.spec] for m in places) if not t.pays]
    counts = Counter(
        (p.is_product, p.is_fused) for p in theirs if isinstance(p, LibraryConvolution)
    )
    for (is_product, is_fused), count in sorted(counts.items()):
        with_it = "with" if is_fused or is_product else "with one elementwise kernel for"
        kind = "products of the library" if is_product else "the library's"
        lines.append(f"{count} are {kind} {with_it} what is around them")
    return tuple(lines)


def _substituted(
    network: ImportedNetwork,
    module: GraphModule,
    target: Target,
    effort: str,
    constants: Mapping[str, torch.Tensor],
    min_gain: float,
    seed: int,
    stops: _Stops,
) -> Rewriting:
    device = _device(module)
    # Times of the library say nothing of convolutions that will be kernels of ours, with what is
    # around them: it took 641 us for those of NasNet-A, and they 233. Their model does.
    is_measured = effort == "full" and not (device.type == "cuda" and _convolves(network.graph))
    result = optimize_network(
        network.graph,
        target,
        # Mutants hold at the sizes at hand, and take seconds to be found and verified.
        substitutions=(*by_rules(network.graph), *mutants()) if is_measured else None,
        limits=LIMITS["full" if is_measured else "auto"],
        measure=measurement_for(device) if is_measured else None,
        should_stop=stops.search,
    )
    if result.graph is network.graph or result.speedup < 1.0 + min_gain:
        return Rewriting(module, result, why="left as it is: no cheaper graph was found")
    evidence = check_parts(result.parts, seed=seed, should_stop=stops.checks)
    if not evidence.equal:
        # A fault of ours: nobody gets this graph.
        log.error("graph level: a wrong graph was found and is not used: %s", evidence)
        return Rewriting(
            module, result, evidence, "left as it is: the graph that was found differs"
        )
    if evidence.tested < evidence.parts:
        missing = f"{evidence.parts - evidence.tested} of {evidence.parts} parts were not tested"
        return Rewriting(module, result, evidence, f"left as it is: {missing}")
    new = emitted_network(network, result.graph, module, constants)
    with_terms(new, constants)
    return Rewriting(new, result, evidence)


def _convolves(graph: Graph) -> bool:
    """Whether there are convolutions that kernels of ours could be."""
    pairs = zip(graph.nodes, graph.types, strict=True)
    return any(n.operator in ("conv2d", "conv3d") and types[0].dtype.is_half for n, types in pairs)


def _device(module: GraphModule) -> torch.device:
    values: list[Any] = [n.meta.get("val") for n in module.graph.find_nodes(op="placeholder")]
    devices = [v.device for v in values if isinstance(v, torch.Tensor)]
    return next((d for d in devices if d.type == "cuda"), torch.device("cpu"))
