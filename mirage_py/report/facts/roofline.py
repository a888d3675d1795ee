"""The roofline of a target with a program, its peers and all candidates as points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from markupsafe import Markup

from mirage_py.report.facts.candidates import Tried
from mirage_py.report.facts.headline import Headline
from mirage_py.report.pictures.plots import Point, roofline_svg
from mirage_py.targets import Target
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import CONTRACT, EFFECT, LEAF, operator


@dataclass(frozen=True, slots=True)
class Roofline:
    """The picture, and the figures of it: FLOP and bytes of the program, the bound's time."""

    picture: Markup
    flops: float
    bytes: int
    floor_us: float
    points: int


def program_flops(program: Program) -> float:
    """Operations of a program as it is written, by the operators' own counts."""
    total = 0.0
    for node in program.nodes:
        row = operator(node.op)
        if row.kind in (LEAF, EFFECT):
            continue
        dims = {*node.dims, *(d for a in node.args for d in program.nodes[a].dims)}
        points = prod(program.sizes[d] for d in dims)
        total += points * (2.0 if row.kind == CONTRACT else max(row.flops, 0.0))
    return total


def roofline(
    program: Program,
    target: Target,
    found: Headline,
    tried: Sequence[Tried],
    floor_us: float | None,
) -> Roofline | None:
    """None where there is no time to draw. Points are where their traffic and time put them."""
    flops = program_flops(program)
    moved = sum(t.bytes for t in program.tensors.values())
    floor_us = floor_us or moved / target.dram_bytes_per_us
    if not flops or not moved:
        return None
    points = [Point(flops / moved, _rate(flops, floor_us), "floor", "roofline bound",
                    f"bound: {floor_us:.2f} us")]  # fmt: skip
    for one in tried:
        if one.time_us and one.fate != "fell":
            said = "measured" if one.measured_us is not None else "predicted"
            kind = {"best": "best", "timed": "timed"}.get(one.fate, "ranked")
            label = "best" if one.fate == "best" else ""
            tip = f"{one.kind}: {one.time_us:.2f} us {said}; {one.tiles}"
            points.append(
                Point(flops / (one.bytes or moved), _rate(flops, one.time_us), kind, label, tip)
            )
    for peer in found.peers:
        if peer.time_us:
            tip = f"{peer.name}: {peer.time_us:.2f} us {peer.source}; at the program's own traffic"
            points.append(Point(flops / moved, _rate(flops, peer.time_us), "peer", peer.name, tip))
    peak = target.tensor_flops_per_us if _has_matmul(program) else target.vector_flops_per_us
    picture = roofline_svg(points, peak / 1e6, target.dram_bytes_per_us / 1e6)
    return Roofline(picture, flops, moved, floor_us, len(points))


def _rate(flops: float, time_us: float) -> float:
    """TFLOP/s."""
    return flops / time_us / 1e6


def _has_matmul(program: Program) -> bool:
    return any(operator(n.op).kind == CONTRACT for n in program.nodes)
