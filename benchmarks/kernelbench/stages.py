"""A problem without a GPU, in its own process: traced, cut, searched."""

from __future__ import annotations

import time
from typing import Any

import torch

import mirage_py
from benchmarks.kernelbench.in_parts import in_parts
from benchmarks.kernelbench.problem import Problem, load
from mirage_py.errors import MirageError
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import TracedCall, trace_call
from mirage_py.pipeline.pipeline import partition_of
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.verify.evaluate.trial import random_inputs
from mirage_py.verify.evaluate.work import program_work
from mirage_py.verify.sizes.shrink import shrink
from mirage_py.verify.sizes.small_sizes import small_extents

Json = dict[str, Any]

_ZERO_WORK = 3e7


def run(problem: Problem, options: Json) -> Json:
    """The row of a problem; it says in words where something could not be done."""
    started = time.process_time()
    row: Json = {"problem": problem.path.stem}
    try:
        with torch.no_grad():
            row |= _dry(problem, options)
    except MirageError as error:
        row |= {"status": "refused", "reason": error.what, "why": error.why}
    return {**row, "seconds": round(time.process_time() - started, 1)}


def _dry(problem: Problem, options: Json) -> Json:
    """Without data at the real sizes, or searched at small ones."""
    searched = options["search"]
    model, inputs = load(problem, filled=False, reduced=searched)
    try:
        program = _traced(model, inputs).program
    except MirageError as error:
        parts = in_parts(problem, options["target"])
        status = "in parts" if parts["in_regions"] else "refused"
        return {"status": status, "reason": error.what, "why": error.why, **parts}
    row: Json = {"status": "taken", "nodes": len(program.nodes), "zero": is_zero(program)}
    whole = partition_of(program)
    parts = whole.parts if whole else (program,)
    calls = sum(library_convolution(part) is not None for part in parts)
    row |= {"parts": len(parts), "convolutions": calls}
    if searched:
        result = mirage_py.optimize(program, target=options["target"], budget=options["budget"])
        row["verified"] = result.evidence is not None
        row["best"] = result.best.name
        if result.evidence is None:
            row |= {"status": "refused", "reason": "no plan", "why": "; ".join(result.notes[-2:])}
    return row


def _traced(model: torch.nn.Module, inputs: list[Any]) -> TracedCall:
    signature = Signature.of(model)
    return trace_call(signature, signature.bind(inputs, {}))


def is_zero(program: Program) -> bool:
    """Whether all outputs are 0 for all inputs, as far as two draws over finite fields tell."""
    try:
        small = shrink(program, small_extents(program, 0))
        if program_work(small) > _ZERO_WORK:
            return False
        for seed, field in enumerate(FIELDS):
            ops = FieldOps(field, seed)
            found = evaluate_program(small, random_inputs(small, ops), FieldMeaning(ops))
            if not all(ops.equal(x, ops.sub(x, x)) for x in found.values()):
                return False
    except (MirageError, ArithmeticError):
        return False
    return True
