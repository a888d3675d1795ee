"""The interpreter: programs and µGraphs on given inputs, over floats or over a finite field."""

from __future__ import annotations

from mirage_py.ugraph.interpret.program import (
    Sample,
    check_inputs,
    evaluate_at,
    evaluate_nodes,
    evaluate_program,
)
from mirage_py.ugraph.interpret.ugraph import evaluate_ugraph

__all__ = [
    "Sample",
    "check_inputs",
    "evaluate_at",
    "evaluate_nodes",
    "evaluate_program",
    "evaluate_ugraph",
]
