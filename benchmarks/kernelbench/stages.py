"""A problem in its own process: traced, cut, searched; on a GPU checked and timed."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree

import mirage_py
from benchmarks.kernelbench.in_parts import in_parts
from benchmarks.kernelbench.problem import Problem, load
from mirage_py.errors import MirageError
from mirage_py.frontend.torch.guards.calls import Signature
from mirage_py.frontend.torch.trace import TracedCall, trace_call
from mirage_py.pipeline.pipeline import partition_of
from mirage_py.runtime.timing.turns import turn
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

_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
_TRIALS = 5
_ZERO_WORK = 3e7


def run(problem: Problem, options: Json) -> Json:
    """The row of a problem; it says in words where something could not be done."""
    clock = time.process_time if options["dry"] else time.monotonic
    started = clock()
    row: Json = {"problem": problem.path.stem}
    try:
        with torch.no_grad():
            row |= _dry(problem, options) if options["dry"] else _measured(problem, options)
    except MirageError as error:
        row |= {"status": "refused", "reason": error.what, "why": error.why}
    return {**row, "seconds": round(clock() - started, 1)}


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


def _measured(problem: Problem, options: Json) -> Json:
    """Checked by KernelBench's rule, and timed beside what torch has."""
    dtype = _TYPES[options["dtype"]]
    model, inputs = load(problem)
    model = model.cuda().to(dtype)
    inputs = [_moved(x, dtype) for x in inputs]
    served = mirage_py.superoptimize(copy.deepcopy(model), budget=options["budget"])
    row: Json = {"status": "taken", "correct": _correct(served, model, inputs, options["dtype"])}
    row["served"] = str(served.dispatch_table()).strip().splitlines()[-1]
    candidates = {
        "ours": served,
        "eager": model,
        "compile": torch.compile(copy.deepcopy(model)),
        "max_autotune": torch.compile(copy.deepcopy(model), mode="max-autotune"),
    }
    row["us"] = {name: _microseconds(fn, inputs) for name, fn in candidates.items()}
    return row


def _moved(x: Any, dtype: torch.dtype) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    return x.cuda().to(dtype) if x.is_floating_point() else x.cuda()


def _correct(served: Any, model: torch.nn.Module, inputs: list[Any], dtype: str) -> bool:
    """Several random trials, each compared as KernelBench does."""
    tolerance = _TOLERANCE[dtype]
    for trial in range(_TRIALS):
        torch.manual_seed(trial)
        fresh = [
            torch.rand_like(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in (inputs if trial else [])
        ] or inputs
        found, want = (pytree.tree_leaves(fn(*fresh)) for fn in (served, copy.deepcopy(model)))
        pairs = zip(found, want, strict=True)
        if not all(torch.allclose(a, b, atol=tolerance, rtol=tolerance) for a, b in pairs):
            return False
    return True


def _microseconds(function: Any, inputs: list[Any], repeats: int = 20) -> float:
    """The median of calls, each between two events on an idle stream."""
    for _ in range(3):
        function(*inputs)
    times = []
    with turn():  # several runs may share a GPU
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            function(*inputs)
            end.record()
            torch.cuda.synchronize()
            times.append(1e3 * start.elapsed_time(end))
    return sorted(times)[len(times) // 2]
