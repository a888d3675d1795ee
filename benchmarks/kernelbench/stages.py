"""A problem in its own process: traced, cut, searched; on a GPU checked and timed."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import mirage_py
from benchmarks.kernelbench import shared_gpu
from benchmarks.kernelbench.in_parts import in_parts
from benchmarks.kernelbench.problem import Problem, load
from benchmarks.peers.autotuning_turns import tune_in_turns
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
Call = Callable[..., Any]

_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
_TRIALS = 5
_WARM, _FEWEST, _REPEATS = 3, 5, 20
_TIMING_S = 3.0
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
    capacity = torch.cuda.get_device_properties(0).total_memory
    wanted = shared_gpu.shares_of(elements_of(problem), dtype.itemsize, capacity)
    tune_in_turns()
    waits = time.monotonic()
    with shared_gpu.memory(Path(options["folder"]), wanted):
        row: Json = {"memory_shares": wanted, "waited_s": round(time.monotonic() - waits, 1)}
        return row | _beside_torch(problem, options, dtype)


def elements_of(problem: Problem) -> int:
    """How many elements parameters, inputs and results have, without making any."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, inputs = load(problem)
        every = [*model.parameters(), *model.buffers(), *inputs]
        # Some cannot be computed without data: their results are about as large as their inputs.
        with contextlib.suppress(Exception):
            every += pytree.tree_leaves(model(*inputs))
    return sum(x.numel() for x in every if isinstance(x, torch.Tensor))


def _beside_torch(problem: Problem, options: Json, dtype: torch.dtype) -> Json:
    with torch.device("cuda"):
        model, inputs = load(problem)
    model = model.cuda().to(dtype)
    inputs = [_moved(x, dtype) for x in inputs]
    served = mirage_py.superoptimize(copy.deepcopy(model), budget=options["budget"])
    candidates: dict[str, Call] = {
        "ours": served,
        "eager": model,
        "compile": torch.compile(copy.deepcopy(model), dynamic=False),
        # A graph would copy all inputs of a call, which are large here.
        "max_autotune": torch.compile(
            copy.deepcopy(model), dynamic=False, mode="max-autotune-no-cudagraphs"
        ),
    }
    row: Json = {"status": "taken", "first_call_s": {}, "faults": {}}
    for name, call in list(candidates.items()):
        begin = time.monotonic()
        try:
            call(*inputs)
            torch.cuda.synchronize()
            row["first_call_s"][name] = round(time.monotonic() - begin, 1)
        # A peer that fails is shown as such, and the others are measured.
        except Exception as error:
            if name in ("ours", "eager"):
                raise
            row["faults"][name] = f"{type(error).__name__}: {error}"[:200]
            del candidates[name]
    with turn():
        row["correct"] = _correct(served, model, inputs, options["dtype"])
    row["served"] = str(served.dispatch_table()).strip().splitlines()[-1]
    row["us"] = _microseconds(candidates, inputs)
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


def _microseconds(candidates: Mapping[str, Call], inputs: list[Any]) -> dict[str, float]:
    """The median of calls, each between two events on an idle stream, and of all candidates by
    turns: a clock that falls does so for all.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    with turn():
        begun = time.monotonic()
        for repeat in range(_WARM + _REPEATS):
            if repeat > _WARM + _FEWEST and time.monotonic() - begun > _TIMING_S:
                break
            for name, call in candidates.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                start.record()
                call(*inputs)
                end.record()
                torch.cuda.synchronize()
                if repeat >= _WARM:
                    times[name].append(1e3 * start.elapsed_time(end))
    return {name: round(sorted(found)[len(found) // 2], 2) for name, found in times.items()}
