"""Measurements of the tuner for programs of the suite, part by part: the fastest plans, and
refusals.

``python -m benchmarks.wild.tuned_parts --budget 20 softmax_router sigmoid_router`` on a GPU.
"""

from __future__ import annotations

import argparse
import warnings

import torch

from benchmarks.wild.catalogue import program_at
from mirage_py.frontend.torch import trace
from mirage_py.pipeline import pipeline
from mirage_py.result import Result

_SHOWN = 5
_WIDTH = 160


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for each part")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.programs:
        wild = program_at(name)
        program = trace(wild.function, *wild.arguments(real=True, device="cuda"))
        whole = pipeline.partition_of(program)
        for part in whole.parts if whole else (program,):
            show(part.name, pipeline.optimize(part, budget=given.budget))
        if whole:
            show(name, pipeline.optimize(program, budget=given.budget * (len(whole.parts) + 1)))
        torch.cuda.empty_cache()


def show(name: str, result: Result) -> None:
    """A result, its notes, and the fastest of what was measured."""
    best, baseline = result.best, result.baseline
    print(f"{name}: {best.name} {best.time_us:.2f} us, {baseline.name} {baseline.time_us:.2f} us")
    for note in result.notes:
        print(f"  note: {note[:_WIDTH]}")
    passed = sum(c.passed for c in result.candidates)
    print(f"  {passed} of {len(result.candidates)} plans passed")
    for c in sorted(result.candidates, key=lambda c: c.timing.time_us)[:_SHOWN]:
        print(f"  {c.timing.time_us:8.2f} {c.kind}: {str(c.plan)[:_WIDTH]} {c.reason or ''}")


if __name__ == "__main__":
    main()
