"""Formatting of the roofline: the best plan's gap to the least possible time, and its bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mirage_py.cli.format.kernel_format import size_text
from mirage_py.targets import Target
from mirage_py.ugraph.ir.program import Program

# What the cost model calls a limit.
LIMITS = {
    "memory": "the bytes that have to cross the memory bus",
    "cache": "reading its operands from the L2 again in every block",
    "tensor cores": "the tensor cores",
    "plain cores": "elementwise work and reductions on the plain cores",
    "latency": "latency: one block's chain of loads, products and barriers, with too few beside it",
}


def format_roofline(report: Mapping[str, Any], program: Program, target: Target) -> Iterator[str]:
    """Sentences from a report: the bound, what sets it, the gap and what limits the best plan."""
    search, best = report["search"], report["best"]
    floor_us = search["lower_bound_us"]
    yield f"No plan needs less than {floor_us:.2f} us: {_floor(program, target, floor_us)}."
    if best is None or best["time_us"] is None:
        return
    said = {"model": "predicted to take", "measured": "measured at"}[best["source"]]
    yield f"The best is {said} {best['time_us']:.2f} us, {search['gap']:.0%} more."
    limit = search.get("limited_by", "")
    if limit:
        yield f"By the cost model it waits for {LIMITS.get(limit, limit)}."


def _floor(program: Program, target: Target, floor_us: float) -> str:
    """What sets the roofline bound."""
    moved = sum(tensor.bytes for tensor in program.tensors.values())
    memory_us = moved / target.dram_bytes_per_us
    if floor_us <= target.launch_us * 1.001:
        return "a launch takes as long"
    if memory_us >= 0.999 * floor_us:
        rate = target.dram_bytes_per_us / 1e6
        return f"{size_text(moved)} of inputs and outputs at {rate:.2f} TB/s"
    return "its products at the full rate of the tensor cores"
