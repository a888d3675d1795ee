"""Families of kernels in the forms that tests start from: stabilised, screened, with tiles."""

from __future__ import annotations

from collections.abc import Iterable

from mirage_py.search.clusters.clusters import is_clustered
from mirage_py.search.extract.family import Family
from mirage_py.search.rank.forms import form_of, splits_worth_trying
from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.instantiate import _of_form
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.kernel_models import KernelModels
from mirage_py.search.stabilize.safe import SafeFamilies, SafetyScreen
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.targets import Target
from mirage_py.ugraph.ir.ugraph import UGraph


def stabilize(ugraph: UGraph) -> UGraph:
    """The µGraph with every exp whose scale cancels shifted by the maximum of its argument."""
    return stabilized(ugraph).ugraph


def is_safe(ugraph: UGraph) -> bool:
    """Whether every exp that the program could shift is shifted, by what is not masked."""
    return not stabilized(ugraph).faults


def safe_families(families: Iterable[Family]) -> SafeFamilies:
    """The families stabilised, with epilogues hoisted; without those that rounding spoils."""
    screen = SafetyScreen()
    for ugraph in screen.stable(families):
        screen.passes(ugraph)
    return screen.found()


def stable_families(families: Iterable[Family]) -> tuple[UGraph, ...]:
    """The families stabilised, with epilogues hoisted, also those that rounding spoils: for tests
    of what kernels there are, as the screen takes longer than the search.
    """
    return SafetyScreen().stable(families)


def accurate(ugraphs: Iterable[UGraph]) -> tuple[UGraph, ...]:
    """Those of safe families, put together to others, that rounding does not spoil."""
    return tuple(filter(SafetyScreen().passes, ugraphs))


def instances(ugraph: UGraph, target: Target, limit: int) -> tuple[Instance, ...]:
    """The ``limit`` plans of a family that the cost model ranks highest, best first, with every
    useful number of splits: for Triton, or for CUDA where there are clusters.
    """
    backend = "cuda" if is_clustered(ugraph) else "triton"
    ranker = KernelRanker(target, backend, KernelModels(target, most_tilings=limit))
    forms = [form_of(ugraph, target, splits) for splits in splits_worth_trying(ugraph, target)]
    found = [i for form in forms for i in _of_form(form, ranker, limit)]
    return tuple(sorted(found, key=lambda i: i.estimate.time_us)[:limit])
