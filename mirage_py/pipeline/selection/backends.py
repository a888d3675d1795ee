"""The back ends of an optimisation, and their plans in one ranking."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from mirage_py.errors import CompileError, InputError
from mirage_py.runtime.cpu.type_screen import TypeScreen
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.search.model.launches import BackEnd
from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.shortlist import Terms
from mirage_py.search.rank.streaming import streaming_instances
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_choices import Arch
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import UGraph

AUTO = "auto"
# Of plans for a chain so many are measured.
_STREAMING = 2
_HOPPER = 90


def usable(backend: str) -> tuple[BackEnd | Literal["auto"], tuple[str, ...]]:
    """The back end that ``--backend`` means here, and notes on what is left out and why.

    ``auto`` is both, or Triton alone where nothing compiles CUDA kernels. Raises InputError for
    another name.
    """
    if backend == "triton":
        return "triton", ()
    if backend == "cuda":
        return "cuda", ()
    if backend != AUTO:
        raise InputError(f"unknown back end '{backend}'", repair="use auto, triton or cuda")
    from mirage_py.runtime.compile.cuda_compiler import cuda_compiler

    try:
        cuda_compiler()
    except CompileError as error:
        note = f"no CUDA kernels are among the candidates: {error.what}"
        return "triton", (f"{note}; {error.repair}" if error.repair else note,)
    return "auto", ()


def rank_for(
    backend: BackEnd | Literal["auto"],
    families: Sequence[UGraph],
    target: Target,
    limit: int,
    terms: Terms,
) -> list[Instance]:
    """The best instances for a back end, or half of each, best first by the cost model."""

    def as_compiled(ranked: Sequence[Instance]) -> list[Instance]:
        return [
            replace(i, plan=for_cuda(i.plan, target)) if i.plan.backend == "cuda" else i
            for i in ranked
        ]

    if (begun := terms.begun) is not None:
        terms = replace(terms, begun=lambda found: begun(as_compiled(found)))
    return as_compiled(rank(families, target, limit, backend, terms))


def streaming_for(
    families: Sequence[UGraph], target: Target, ranker: KernelRanker, terms: Terms
) -> list[Instance]:
    """A few plans for a chain of kernels, best first by the cost model."""
    found = streaming_instances(families, target, ranker)
    allowed = (replace(i, plan=for_cuda(i.plan, target)) for i in found if terms.may(i.family))
    return list(islice(allowed, _STREAMING))


def with_doubts(
    ranked: Sequence[Instance], screen: TypeScreen, deadline: float | None
) -> list[Instance]:
    """The instances, those last that the numerical check will likely refuse: plans of one family
    compute one formula, so that all that lead may fail together. After ``deadline`` (of
    time.monotonic) it is what the screen knows by then.
    """
    asked = []
    for instance in ranked:
        is_late = deadline is not None and time.monotonic() > deadline
        doubt = screen.known_doubt if is_late else screen.doubt
        asked.append(replace(instance, doubt=doubt(instance.plan)))
    return sorted(asked, key=lambda i: bool(i.doubt))


def limits_for(backend: str, limits: SearchLimits, target: Target) -> SearchLimits:
    """The limits of a search, with clusters as large as the target's where kernels may be CUDA's.

    Limits that speak of clusters themselves stay as they are.
    """
    if backend == "triton" or limits.max_cluster_blocks != SearchLimits().max_cluster_blocks:
        return limits
    return replace(limits, max_cluster_blocks=target.max_cluster_blocks)


def for_cuda(plan: Plan, target: Target) -> Plan:
    """The plan for the CUDA back end, its text with the instructions that the target alone has."""
    arch = Arch.SM_90A if target.capability == _HOPPER else None
    options = tuple(replace(o, arch=arch) for o in plan.options)
    return replace(plan, backend="cuda", options=options)
