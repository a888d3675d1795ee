"""Mutants drawn at random: every kind of mutation in turn, on any of the right µGraphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import numpy as np
import samples
import several_kernels
from adversarial import (  # noqa: F401 (each registers its mutations)
    graphs,
    guard_mutations,
    handover_mutations,
    kernel_mutations,
    number_mutations,
    place_mutations,
)
from adversarial.mutations import GRAPH_MUTATIONS, MUTATIONS, with_dims

from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# Written by hand: what searches of the examples seldom find, atomic additions above all.
_SEVERAL = ("split_matmul_added", "library_epilogue", "library_prologue", "residual_gated")
_SAMPLES = ("row_maximum", "rotary", "split_attention")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a mutation is made: the ``place``-th way that ``kind`` offers on a µGraph."""

    kind: str
    graph: str
    place: int

    def __str__(self) -> str:
        return f"{self.kind} {self.place} on {self.graph}"


@cache
def originals() -> dict[str, tuple[Program, UGraph]]:
    """Programs and right µGraphs by name."""
    found = {name: (graphs.program_of(name), graphs.graph(name)) for name in graphs.names()}
    hand = {n: (several_kernels.program(n), several_kernels.ugraph(n)) for n in _SEVERAL}
    hand |= {n: (samples.ugraph(n).program, samples.ugraph(n)) for n in _SAMPLES}
    return found | {f"hand_{name}": pair for name, pair in hand.items()}


def given(name: str) -> Program:
    """The program of a µGraph as it is written."""
    return originals()[name][0] if name.startswith("hand_") else graphs.given_of(name)


def kinds() -> tuple[str, ...]:
    """All kinds of mutation, sorted."""
    return tuple(sorted((*MUTATIONS, *GRAPH_MUTATIONS)))


def descriptions() -> dict[str, str]:
    """What each kind does, in a line."""
    functions = {**MUTATIONS, **GRAPH_MUTATIONS}
    return {kind: (functions[kind].__doc__ or "").strip().split("\n\n")[0] for kind in kinds()}


def mutants_of(kind: str, graph: UGraph) -> Iterator[UGraph]:
    """Every way to make a mistake of this kind, but for those that change nothing."""
    if kind in GRAPH_MUTATIONS:
        yield from (wrong for wrong in GRAPH_MUTATIONS[kind](graph) if wrong != graph)
        return
    for number, kernel in enumerate(graph.kernels):
        if isinstance(kernel, BlockGraph):
            for altered in MUTATIONS[kind](graph.program, kernel):
                redone = with_dims(graph.program, altered)
                if redone is not None and redone != kernel:
                    kernels = (*graph.kernels[:number], redone, *graph.kernels[number + 1 :])
                    yield replace(graph, kernels=kernels)


def mutant(site: Site) -> UGraph:
    """The mutant at a site."""
    _, graph = originals()[site.graph]
    return next(islice(mutants_of(site.kind, graph), site.place, None))


def sites(count: int, seed: int) -> Iterator[Site]:
    """Up to ``count`` sites: kinds in turn, each on all µGraphs in a random order, then again.

    No two give the same mutant.
    """
    draw = np.random.default_rng(seed)
    seen: dict[str, None] = {}
    turns = [_sites_of(kind, draw, seen) for kind in kinds()]
    done = 0
    while turns and done < count:
        left = []
        for turn in turns:
            site = next(turn, None)
            if site is not None and done < count:
                done += 1
                yield site
            if site is not None:
                left.append(turn)
        turns = left


def _sites_of(kind: str, draw: np.random.Generator, seen: dict[str, None]) -> Iterator[Site]:
    names = sorted(originals())
    left: dict[str, list[tuple[int, str]]] = {}
    while names:
        for name in [names[n] for n in draw.permutation(len(names))]:
            if name not in left:
                digests = [wrong.digest for wrong in mutants_of(kind, originals()[name][1])]
                left[name] = [(int(n), digests[n]) for n in draw.permutation(len(digests))]
            while left[name]:
                place, digest = left[name].pop()
                if digest not in seen:
                    seen[digest] = None
                    yield Site(kind, name, place)
                    break
        names = [n for n in names if left[n]]
