"""``mirage_py.optimize_graph``: rewrites an exported program, and times it against the original.

On a GPU both graphs are compiled by Inductor and timed; the faster one is the result, and the
verdict is cached. Without a GPU the modelled costs decide, and the result says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._inductor import list_mode_options
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

from mirage_py.dynamo.networks.branched_graph import captured_branches
from mirage_py.dynamo.networks.optimized_module import OptimizedModule, held_tensors
from mirage_py.dynamo.networks.rewriting import LIMITS, Rewriting, rewritten
from mirage_py.dynamo.regions.region_graph import content_key
from mirage_py.dynamo.serve.graph_target import graph_target
from mirage_py.dynamo.whole_graph.benchmark import device_and_clock, timed
from mirage_py.dynamo.whole_graph.real_inputs import NotBenchmarkedError
from mirage_py.dynamo.whole_graph.timer import CompiledGraph
from mirage_py.dynamo.whole_graph.verdicts import (
    OURS,
    TORCH,
    Verdict,
    cache_verdict,
    cached_verdict,
)
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.pipeline.networks.network_evidence import NetworkEvidence
from mirage_py.runtime.base.atomic import write_bytes, writing
from mirage_py.runtime.store.cache import toolchain
from mirage_py.search.networks.optimize_network import NetworkResult

_MARGIN = 0.01
_PLAIN = "as it was, its weights not constant"
# Its weights have been folded. Freezing lays them anew, which makes products of few rows slower.
_OURS_PLAIN = "rewritten, not frozen again"
_BRANCHES = "rewritten, in branches"
# Of the largest element: bf16 graphs round in other places.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.1}


@dataclass(frozen=True)
class OptimizedGraph:
    """A rewritten graph: ``module`` takes the arguments of the program. ``verdict`` says what
    decided and what was found; ``float_error`` is the largest difference on the example inputs,
    relative to the largest element.
    """

    module: torch.nn.Module
    rewriting: Rewriting
    verdict: str
    float_error: float | None = None

    @property
    def is_changed(self) -> bool:
        """Whether ``module`` differs from the program's graph."""
        return isinstance(self.module, OptimizedModule)

    @property
    def result(self) -> NetworkResult | None:
        """What the search found; None where the graph is none of networks."""
        return self.rewriting.result

    @property
    def evidence(self) -> NetworkEvidence | None:
        """What was verified."""
        return self.rewriting.evidence

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def captured(self, *inputs: torch.Tensor) -> Callable[..., Any]:
        """The rewritten module in one CUDA graph, with independent branches in parallel, for
        tensors like ``inputs``; the next call overwrites the results.

        Raises UnsupportedError if the graph was not rewritten or cannot be captured.
        """
        if not isinstance(self.module, OptimizedModule):
            raise UnsupportedError("a CUDA graph of branches", why="the graph is left as it is")
        return captured_branches(self.module, inputs)

    def __str__(self) -> str:
        lines = self.rewriting.lines()
        if self.float_error is not None:
            lines.append(f"on the example inputs: largest difference {self.float_error:.1e}")
        return "\n".join([*lines, f"decided: {self.verdict}"])


def optimize_graph(
    program: ExportedProgram,
    *,
    target: str = "auto",
    effort: str = "auto",
    freeze: bool = False,
    budget: float | None = None,
    mode: str = "default",
    seed: int = 0,
) -> OptimizedGraph:
    """The cheapest operator graph that substitutions make of an exported program.

    ``freeze`` declares parameters and buffers constant: values that depend on them alone are
    computed once, now, and they must not be trained any more. ``effort`` is ``auto`` or ``full``
    (larger bounds; on a GPU operators are measured, and convolutions fused with the code around
    them become our kernels where these are faster). ``budget`` is seconds of search and checks.
    ``mode`` is the torch.compile mode in which both graphs are timed. Raises InputError for other
    values.
    """
    if not isinstance(program, ExportedProgram):
        raise InputError(
            f"optimize_graph takes an exported program, not a {type(program).__name__}",
            repair="call torch.export.export(model, example_inputs) first",
        )
    if mode not in list_mode_options():
        raise InputError(f"unknown mode '{mode}'", repair=f"use {', '.join(list_mode_options())}")
    if effort not in LIMITS:
        raise InputError(f"unknown effort '{effort}'", repair=f"use {', '.join(LIMITS)}")
    chosen = graph_target(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about itself
        functional = program.run_decompositions({})
    module = functional.graph_module
    held = held_tensors(functional)
    why = _unfit(functional)
    if why:
        return OptimizedGraph(program.module(), Rewriting(module, why=why), why)
    constants = {n: t.detach() for n, t in held.items()} if freeze else {}
    found = rewritten(module, chosen, effort=effort, constants=constants, budget=budget, seed=seed)
    if not found.is_changed:
        return OptimizedGraph(program.module(), found, found.why)
    ours, theirs = OptimizedModule(functional, found.module), program.module()
    error = _float_error(program, ours, theirs)
    if error is not None and not error <= _tolerance(program):
        why = f"left as it is: on the example inputs it is off by {error:.1e}"
        return OptimizedGraph(theirs, found, why, error)
    options = {**list_mode_options(mode), "freezing": freeze}
    verdict = _verdict(program, ours, theirs, found, options)
    return OptimizedGraph(ours if verdict.winner == OURS else theirs, found, verdict.words, error)


def save_graph(found: OptimizedGraph, program: ExportedProgram, path: Path) -> None:
    """Write the module as an exported program, to be read by ``torch.export.load``. Raises
    InputError where the file cannot be written.
    """
    assert program.example_inputs is not None
    args, kwargs = program.example_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        exported = torch.export.export(found.module, args, kwargs, strict=False)
    content = io.BytesIO()
    torch.export.save(exported, content)
    with writing("the model", path, "make room, or name another file with -o"):
        write_bytes(path, content.getvalue())


def _unfit(program: ExportedProgram) -> str:
    """Why a program is left as it is, whatever its graph."""
    kinds = {s.kind for s in program.graph_signature.output_specs}
    if kinds - {OutputKind.USER_OUTPUT}:
        return "left as it is: it writes to its buffers or inputs"
    return ""


def _float_error(
    program: ExportedProgram, ours: torch.nn.Module, theirs: torch.nn.Module
) -> float | None:
    """The largest difference of results on the example inputs; None without such inputs."""
    if program.example_inputs is None:
        return None
    args, kwargs = program.example_inputs
    with torch.no_grad():
        pairs = zip(_tensors(theirs(*args, **kwargs)), _tensors(ours(*args, **kwargs)), strict=True)
        return max((_distance(one, other) for one, other in pairs), default=0.0)


def _tensors(results: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(results)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    scale = float(one.abs().max()) or 1.0
    return float((one.double() - other.double()).abs().max()) / scale


def _tolerance(program: ExportedProgram) -> float:
    """That of the coarsest type that the program computes in."""
    values = [n.meta.get("val") for n in program.graph.nodes]
    types = {v.dtype for v in values if isinstance(v, torch.Tensor)}
    return max((t for kind, t in _TOLERANCES.items() if kind in types), default=0.0)


def _verdict(
    program: ExportedProgram,
    ours: OptimizedModule,
    theirs: torch.nn.Module,
    found: Rewriting,
    options: Mapping[str, Any],
) -> Verdict:
    """Who serves, and why."""
    assert found.result is not None
    modelled = f"by modelled cost, {found.result.speedup:.2f}x"
    leaves = [x for x in pytree.tree_leaves(program.example_inputs) if isinstance(x, torch.Tensor)]
    if not any(x.device.type == "cuda" for x in leaves):
        return Verdict(OURS, f"{modelled}; no GPU was used")
    graphs = content_key(program.graph_module), content_key(found.module)
    versions = torch.cuda.get_device_name(), torch.__version__, sorted(toolchain().items())
    key = hashlib.sha256(repr((graphs, versions, sorted(options.items()))).encode()).hexdigest()
    known = cached_verdict(key)
    if known is not None:
        return known
    try:
        verdict = _race(ours, theirs, program, leaves, options)
    except (NotBenchmarkedError, torch.OutOfMemoryError) as error:
        return Verdict(OURS, f"{modelled}; not timed: {error}")
    cache_verdict(key, verdict)
    return verdict


def _race(
    ours: OptimizedModule,
    theirs: torch.nn.Module,
    program: ExportedProgram,
    leaves: Sequence[Any],
    options: Mapping[str, Any],
) -> Verdict:
    """Both compiled by Inductor, call after call, with the example inputs; both without freezing,
    too, where it is among the options, and ours in branches where CUDA graphs are.
    """
    assert program.example_inputs is not None
    args, kwargs = program.example_inputs

    def graph(module: torch.nn.Module, **more: Any) -> CompiledGraph:
        compiled = torch.compile(module, options={**options, **more})
        return CompiledGraph(lambda: compiled(*args, **kwargs), is_captured=False)

    candidates = {OURS: graph(ours), TORCH: graph(theirs)}
    if options["freezing"]:
        candidates[_PLAIN] = graph(theirs, freezing=False)
        candidates[_OURS_PLAIN] = graph(ours, freezing=False)
    if options.get("triton.cudagraphs") and not kwargs and len(leaves) == len(args):
        # What cannot be captured is left out.
        with contextlib.suppress(UnsupportedError):
            branches = captured_branches(ours, args)
            candidates[_BRANCHES] = CompiledGraph(lambda: branches(*args), is_captured=False)
    device, clock = device_and_clock(leaves)
    with torch.no_grad(), torch.cuda.device(device):
        times = timed(candidates, [], device, clock)
    best_us = min(times[TORCH], times.get(_PLAIN, times[TORCH]))
    best = min((OURS, _OURS_PLAIN, _BRANCHES), key=lambda name: times.get(name, math.inf))
    ours_us = times[best]
    words = f"raced: rewritten {ours_us:.1f} us, as it was {best_us:.1f} us"
    if best == _BRANCHES:
        words += f"; by captured(), {times[OURS]:.1f} us by torch.compile"
    elif best == _OURS_PLAIN:
        words += f"; {times[OURS]:.1f} us with freezing=True in torch.compile: leave it out"
    return Verdict(OURS if ours_us < best_us * (1 - _MARGIN) else TORCH, words)
