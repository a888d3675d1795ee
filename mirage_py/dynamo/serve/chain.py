"""The chain of a model's regions: programmatic dependent launch after any preceding kernel.

A *link* is a region's plan as it is launched there, on Hopper: its kernels start early behind
whatever lies in front, and copy their first tiles of constants before they wait
(codegen/tiling/dependent_launch.py has the argument). Captured in a CUDA graph such launches are
programmatic edges. The plan that is cached, and was timed by itself, is no link.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, prod
from typing import Any

import torch

from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.errors import CompileError
from mirage_py.ugraph.ir.launch_choices import NextStart
from mirage_py.ugraph.ir.launch_config import launch_options
from mirage_py.ugraph.ir.plan import Plan, chained
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall

Kernel = Callable[..., Any]
# The compute capability of Hopper, which has early starts.
_HOPPER = launch_options()["next_start"].capability
# Blocks of a kernel that run at once, beside those of the kernel in front.
_BLOCKS_AN_SM = 2


@dataclass
class Chain:
    """Whether regions are launched as links now; all regions of a model ask it."""

    is_on: bool = False

    def running(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """A compiled graph whose regions are links."""

        @functools.wraps(compiled)
        def run(*values: Any) -> Any:
            before, self.is_on = self.is_on, True
            try:
                return compiled(*values)
            finally:
                self.is_on = before

        return run


def link_of(plan: Plan, constants: Sequence[str], options: BackendOptions) -> Plan | None:
    """The plan as a link, where one is asked for and there can be one; nothing around it writes its
    inputs ``constants``.
    """
    if options.chain == "off" or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    if 10 * major + minor != _HOPPER or _inductor_starts_early(options):
        return None
    few = all(_blocks(plan, k) <= _BLOCKS_AN_SM * _sms() for k in plan.ugraph.kernels)
    # Behind blocks that all run at once the next kernel's are spread evenly, as early as they come.
    return chained(plan, NextStart.WAITED if few else NextStart.STORES, constants)


def _sms() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def _blocks(plan: Plan, kernel: BlockGraph | LibraryCall) -> float:
    """How many blocks a kernel has."""
    if not isinstance(kernel, BlockGraph):
        return inf
    sizes = plan.ugraph.program.sizes
    return prod(ceil(sizes[a.dim] / (a.tile or 1)) for a in kernel.grid)


def link_kernels(plans: Sequence[Plan], options: BackendOptions) -> list[Kernel | None]:
    """The kernels of links, compiled in parallel and loaded; None for what does not compile."""
    if not plans:
        return []
    from mirage_py.runtime.compile.compile_pool import CompilePool

    try:
        with CompilePool(scheduler=options.scheduler) as pool:
            outcomes = pool.compile(plans, _HOPPER)
    except CompileError:
        return [None for _ in plans]
    pairs = zip(plans, outcomes, strict=True)
    return [_loaded(plan) if outcome.compiled else None for plan, outcome in pairs]


def _loaded(plan: Plan) -> Kernel | None:
    from mirage_py.runtime.launch.launch import PlanRunner

    runner = PlanRunner(plan)
    try:
        runner.warmup()
    except CompileError:
        return None
    return runner


def _inductor_starts_early(options: BackendOptions) -> bool:
    """Whether Inductor's own kernels do. They wait only for what the node in front writes, which a
    region with several results has at several nodes.
    """
    from torch._inductor import config

    own = getattr(config.triton, "enable_pdl", False)
    return bool(options.inductor.get("triton.enable_pdl", own))
