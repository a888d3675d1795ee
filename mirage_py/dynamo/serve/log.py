"""The log, logger ``mirage_py.dynamo``: one line for each region, and one for what is in none."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from torch.fx import Node

from mirage_py.dynamo.regions.nodes import base_name, shape_of, tensors_of
from mirage_py.dynamo.regions.regions import Cut, Region, left_alone
from mirage_py.dynamo.serve.service import Entry
from mirage_py.reasons import Server

log = logging.getLogger("mirage_py.dynamo")
# So many kinds of operators outside of regions are named.
_KINDS = 12


def region_line(region: Region, times: int) -> str:
    """A region in a line: its nodes, its results, what the model says."""
    names = " ".join(base_name(n) for n in region.nodes)
    results = ", ".join(_shape(n) for n in region.outputs)
    again = f" x{times}" if times > 1 else ""
    return (
        f"region{again} [{names}] -> {results}: modelled {region.time_us:.1f} us, "
        f"outside {region.rest_us:.1f} us"
    )


def report(graph: str, cut: Cut, rows: Sequence[tuple[Region, int, Entry]], rest: str) -> list[str]:
    """The lines for a graph; ``rows``: distinct regions, how often each occurs, what serves it.

    The record of a region's line has its ``service``, too.
    """
    left_by = Server.TORCH_COMPILE if rest == "inductor" else Server.EAGER
    lines = []
    for region, times, entry in rows:
        service, verb = entry.served, "served by"
        if service.kernel is None:
            service, verb = replace(service, by=left_by), "left to"
        lines.append(f"{graph}: {region_line(region, times)}; {verb} {service}")
        log.info("%s", lines[-1], extra={"service": service})
    regions = len(lines)
    alone = left_alone(cut)
    for name, count, why in alone[:_KINDS]:
        lines.append(f"{graph}: {count} x {name} left to {rest}: {why}")
    others = sum(count for _, count, _ in alone[_KINDS:])
    if others:
        lines.append(f"{graph}: {others} operators of other kinds left to {rest}")
    for line in lines[regions:]:
        log.info("%s", line)
    return lines


def _shape(node: Node) -> str:
    tensor = tensors_of(node)[0]
    kind = str(tensor.dtype).removeprefix("torch.")
    shape = shape_of(tensor)
    return f"{kind}{list(shape)}" if prod(shape) != 1 else kind
