"""Mutants of layers beside the layers themselves, through torch's libraries, on a GPU.

Each mutant is corrected, verified and compared with the layer on random inputs; then both run as
CUDA graphs of eager calls, interleaved, with weights laid out beforehand and channels last. Without
a GPU nothing is timed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.partial.cases import CASES, SMALL, Case
from mirage_py.dynamo.whole_graph.timer import CompiledGraph, times_on_gpu
from mirage_py.frontend.networks.folded import folded_weights
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.operators import operator
from mirage_py.search.partial.mutations import mutations

# Of what a sum of bf16 products in another order may differ, in shares of the largest element.
_ALLOWED = 0.02


class Runner:
    """A graph on given tensors, with what follows from weights computed beforehand."""

    def __init__(self, graph: Graph, tensors: Sequence[torch.Tensor]) -> None:
        self._graph = graph
        self._known = {Value(INPUTS, n): x for n, x in enumerate(tensors)}
        weights = {
            v: x for v, x in self._known.items() if graph.inputs[v.index].name in graph.constants
        }
        self._known |= folded_weights(graph, weights)

    def __call__(self) -> list[torch.Tensor]:
        values: dict[Value, Any] = dict(self._known)
        for number, node in enumerate(self._graph.nodes):
            if Value(number) in values or any(v not in values for v in node.inputs):
                continue  # weights, or what they are computed from
            results = operator(node.operator).over_torch(
                [values[v] for v in node.inputs], node.values
            )
            values |= {Value(number, n): x for n, x in enumerate(results)}
        return [values[v] for v in self._graph.outputs]


def measured_case(case: Case, device: str, most: int) -> dict[str, Any]:
    """The row of a case: the mutants, their errors, and times where there is a GPU."""
    graph = case.graph()
    found = mutations(graph, most=most, rounds=case.rounds)
    tensors = [_drawn(entry.type.shape, device, n) for n, entry in enumerate(graph.inputs)]
    runners = {"program": Runner(graph, tensors)}
    runners |= {str(m): Runner(m.graph, tensors) for m in found}
    wanted = runners["program"]()
    errors = {name: _error(run(), wanted) for name, run in runners.items()}
    times: dict[str, float] = {}
    if device == "cuda":
        candidates = {name: CompiledGraph(run, True) for name, run in runners.items()}
        times = times_on_gpu(candidates, lambda: None)
    return {
        "case": case.name,
        "mutants": [
            {"mutant": name, "error": errors[name], "us": times.get(name)} for name in runners
        ],
    }


def _drawn(shape: tuple[int, ...], device: str, seed: int) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(shape, device=device, generator=generator).bfloat16()
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape))
    return x if last is None else x.contiguous(memory_format=last)


def _error(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The largest difference, in shares of the largest element."""
    pairs = list(zip(found, wanted, strict=True))
    return max(float((a.float() - b.float()).abs().max() / b.float().abs().max()) for a, b in pairs)


def lines(row: dict[str, Any]) -> list[str]:
    """A row for people: the program, and its mutants, fastest first."""
    program, *mutants = row["mutants"]
    if program["us"] is None:
        worst = max((m["error"] for m in mutants), default=0.0)
        return [f"{row['case']}: {len(mutants)} mutants, largest error {worst:.2g}, not timed"]
    mutants.sort(key=lambda m: m["us"])
    shown = [f"{row['case']}: {program['us']:.1f} us"]
    for m in mutants:
        wrong = "" if m["error"] <= _ALLOWED else f"  WRONG BY {m['error']:.2g}"
        shown.append(f"  {program['us'] / m['us']:5.2f}x {m['us']:8.1f} us  {m['mutant']}{wrong}")
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partial", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for the results")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--most", type=int, default=8, help="mutants of each case")
    parser.add_argument("--smoke", action="store_true", help="one small case")
    chosen = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    with torch.no_grad():
        for case in SMALL if chosen.smoke else CASES:
            if chosen.only in case.name:
                rows.append(measured_case(case, device, chosen.most))
                print("\n".join(lines(rows[-1])), flush=True)
    if chosen.output:
        name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        document = {"device": name, "torch": torch.__version__, "rows": rows}
        chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    wrong = [m for row in rows for m in row["mutants"] if m["error"] > _ALLOWED]
    return 1 if wrong else 0
