"""Modelled costs of convolutions against measurements on an H200.

python -m benchmarks.graphs.prices          # no GPU; reads benchmarks/results/h200-graphs.json

Of each kind of convolutions: how many there are, and the price over the faster of our kernel and
the library's, geometric mean, least and most. Rows do not say how images are padded: by half of a
window.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.search.networks.costs import NetworkCosts
from mirage_py.search.networks.egraph import ENode
from mirage_py.targets import target
from mirage_py.ugraph.ir.dtypes import BF16

_ROWS = Path(__file__).resolve().parent.parent / "results" / "h200-graphs.json"
# As ``measured_row`` writes them.
_LINE = re.compile(
    r"(?P<times>\d+) x (?P<window>\d+(?: x \d+)*)(?: (?P<groups>\d+) groups)?, "
    r"stride (?P<stride>\d+), "
    r"(?P<inputs>\d+) to (?P<results>\d+) channels at (?P<space>\d+(?: x \d+)*), .*?: "
    r"(?P<ours>[\d.]+) us, library (?P<library>[\d.]+) us;"
)
_HALF_BYTES, _VECTOR = 2, 16


@dataclass(frozen=True, slots=True)
class Priced:
    """A convolution of a measured network: of what kind, how often, measured and by the model."""

    kind: str
    times: int
    measured_us: float
    price_us: float


def priced(rows: list[dict[str, Any]]) -> Iterator[Priced]:
    """Those of all candidates that name their kernels; pools and what is unknown are left out."""
    for row in rows:
        for candidate in row["candidates"].values():
            for line in candidate.get("convolutions", []):
                found = _LINE.match(line)
                if found is not None:
                    yield _priced(row["batch"], found.groupdict())


def _priced(batch: int, given: Mapping[str, str | None]) -> Priced:
    window, space = (tuple(map(int, str(given[n]).split(" x "))) for n in ("window", "space"))
    inputs, results, times = (int(str(given[n])) for n in ("inputs", "results", "times"))
    groups, stride = int(given["groups"] or 1), int(str(given["stride"]))
    padding = tuple(k // 2 for k in window)
    out = tuple(
        (n + 2 * p - k) // stride + 1 for n, p, k in zip(space, padding, window, strict=True)
    )
    attributes = (("dilation", (1,) * len(window)), ("groups", groups), ("padding", padding),
                  ("stride", (stride,) * len(window)))  # fmt: skip
    shapes = [(batch, inputs, *space), (results, inputs // groups, *window), (batch, results, *out)]
    image, weight, result = (TensorType(shape, BF16) for shape in shapes)
    node = ENode(f"conv{len(window)}d", attributes, (0, 1))
    price_us = NetworkCosts(target("h200")).library_us(node, [image, weight], [result])
    pieces = math.gcd(_HALF_BYTES * inputs, _VECTOR)
    kind = "single channels" if groups == inputs else "groups" if groups > 1 else "dense"
    if kind == "dense":
        places = "single places" if set(window) == {1} else "windows"
        kind = f"{kind}, {places}, pieces of {pieces} bytes"
    measured_us = min(float(str(given["ours"])), float(str(given["library"])))
    return Priced(f"batch {batch}, {kind}", times, measured_us, price_us)


def lines(found: list[Priced]) -> Iterator[str]:
    """The table."""
    yield "| convolutions | how many | price over measured | least | most |"
    yield "|---|---:|---:|---:|---:|"
    for kind in sorted({p.kind for p in found}):
        some = [(p.times, p.price_us / p.measured_us) for p in found if p.kind == kind]
        count = sum(times for times, _ in some)
        mean = math.exp(sum(times * math.log(ratio) for times, ratio in some) / count)
        ratios = [ratio for _, ratio in some]
        yield f"| {kind} | {count} | {mean:.2f} | {min(ratios):.2f} | {max(ratios):.2f} |"


if __name__ == "__main__":
    document = json.loads(_ROWS.read_text(encoding="utf-8"))
    print("\n".join(lines(list(priced(document["rows"])))))
