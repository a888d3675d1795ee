"""Features of a plan for a learned ranker: what the cost model sees of it, and what it does not.

By name, so that a ranker trained before an option existed still reads its own. Of a plan's kernels
the two that take longest are described; what is not there is 0. ``with_others`` adds what only
candidates beside one another have: each feature's distance from their median.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from math import log, log2

import numpy as np
from numpy.typing import NDArray

from mirage_py.search.model.cost_model import Estimate, resource_times
from mirage_py.search.model.kernel_load import KernelLoad
from mirage_py.search.model.model_constants import constants_of
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall

ROOFLINE = "roofline"
# Whether all kernels are pointwise and move many times what the L2 holds.
LARGE_POINTWISE = "large pointwise"
_RELATIVE = "rel:"
_DESCRIBED = 2
_WARP = 32

Features = Mapping[str, float]


# The plans of a program are put in order before and after their families are verified.
@lru_cache(maxsize=512)
def plan_features(plan: Plan, target: Target) -> Features:
    """The features of a plan; ``roofline`` is the logarithm of its predicted microseconds."""
    model = PlanModel(plan, target)
    estimates = model.predicted().kernels
    total_us = sum(e.time_us for e in estimates)
    order = sorted(range(len(estimates)), key=lambda n: -estimates[n].time_us)
    blocks = [n for n in order if isinstance(model.loads[n], KernelLoad)]
    found = {
        ROOFLINE: log(total_us),
        "kernels": float(len(estimates)),
        "libraries": float(len(estimates) - len(blocks)),
        "cuda": float(plan.backend == "cuda"),
        LARGE_POINTWISE: float(all(_has_accesses(load) for load in model.loads)),
    }
    for n in blocks:
        share = estimates[n].time_us / total_us
        for name, value in _options(plan.options[n]):
            found[name] = found.get(name, 0.0) + share * value
    for rank, n in enumerate(blocks[:_DESCRIBED]):
        load, block = model.loads[n], plan.ugraph.kernels[n]
        assert isinstance(load, KernelLoad)
        assert isinstance(block, BlockGraph)
        for name, value in _kernel(load, estimates[n], block, target):
            found[f"k{rank}:{name}"] = value
        found[f"k{rank}:share"] = estimates[n].time_us / total_us
    return found


def with_others(features: Sequence[Features], names: Sequence[str]) -> NDArray[np.float64]:
    """A row for each plan, a column for each name; ``rel:NAME`` is relative to the median."""
    rows = np.zeros((len(features), len(names)))
    for column, name in enumerate(names):
        own = name.removeprefix(_RELATIVE)
        rows[:, column] = [f.get(own, 0.0) for f in features]
        if name != own:
            rows[:, column] -= np.median(rows[:, column])
    return rows


def all_names(features: Sequence[Features]) -> tuple[str, ...]:
    """Every name that some plan has, and the same relative to the others."""
    own = sorted({name for f in features for name in f})
    return (*own, *(_RELATIVE + name for name in own))


def _has_accesses(load: KernelLoad | LibraryCall) -> bool:
    return isinstance(load, KernelLoad) and load.accesses is not None


def _options(options: LaunchConfig) -> Iterator[tuple[str, float]]:
    """What is chosen besides tiles, warps and stages: each choice a feature of its own."""
    for field in fields(options):
        value = getattr(options, field.name)
        if not field.metadata or value is None:
            continue
        if isinstance(value, Enum):
            yield f"{field.name}={value.value}", 1.0
        elif isinstance(value, tuple):
            yield field.name, float(len(value))
        else:
            yield field.name, float(value)


def _kernel(
    load: KernelLoad, found: Estimate, block: BlockGraph, target: Target
) -> Iterator[tuple[str, float]]:
    total_us = max(found.time_us, 1e-6)
    for name, time_us in resource_times(load, target, constants_of(target)).items():
        yield f"time {name}", time_us / total_us
    yield "us", log(total_us)
    yield "blocks", log2(load.blocks / target.sms)
    places = max(1, load.waves * load.per_sm) * target.sms
    yield "last wave", load.blocks / places
    yield "waves", log2(max(1, load.waves))
    yield "resident", float(load.resident)
    yield "warps", float(load.num_warps)
    yield "warps of an SM", float(load.per_sm * load.num_warps)
    yield "registers", float(load.footprint.registers_per_thread)
    yield "shared memory", log2(load.footprint.smem_bytes + 1)
    yield "cluster", float(load.cluster_blocks)
    yield from _sections(load)
    tiles = sorted((axis.tile or 1 for axis in block.grid), reverse=True)
    yield from ((f"tile {n}", log2(tile)) for n, tile in enumerate(tiles[:2]))
    yield "axes", float(len(block.grid))
    yield "nodes", log2(len(block.nodes))


def _sections(load: KernelLoad) -> Iterator[tuple[str, float]]:
    """The work of all iterations of one block, and how far loads run ahead."""
    sections = load.sections
    iterations = sum(s.iterations for s in sections)
    group = sum(s.iterations * s.group_flops for s in sections)
    other = sum(s.iterations * s.plain_flops for s in sections)
    vector = sum(s.iterations * s.vector_ops for s in sections)
    cache = sum(s.iterations * s.cache_bytes for s in sections)
    ahead = (max(1, slots) * s.cache_bytes for s, slots in zip(sections, load.slots, strict=True))
    yield "sections", float(len(sections))
    yield "slots", float(max(load.slots, default=0))
    yield "stalls", float(any(s.stalls and s.iterations > 1 for s in sections))
    yield "wgmma", float(group > 0)
    yield "mma", float(other > 0)
    sums = {
        "iterations": iterations,
        "bytes ahead": load.per_sm * max(ahead, default=0.0),
        "barriers": sum(s.iterations * s.barriers for s in sections),
        "sums": sum(s.iterations * s.sums + s.late_sums for s in sections),
        "vector operations": vector,
        "of a thread": vector / (_WARP * load.num_warps),
        "bytes": cache,
        "bytes of an iteration": cache / max(1.0, iterations),
        "bytes of an SM": cache * load.per_sm * load.waves,
        "flops of an iteration": (group + other) / max(1.0, iterations),
        "flops of a warp": group / load.num_warps,
        "operand bytes": sum(s.iterations * s.operand_bytes for s in sections),
    }
    yield from ((name, log2(value + 1)) for name, value in sums.items())
