"""A problem on a GPU, in a worker process that takes many: checked and timed against PyTorch.

``prepare`` and ``measure`` are services of benchmarks/farm/farm.py. Each process has cores of its
own, and says in a file what it is at: a run that ends early has that of problems it cut short.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.kernelbench import distances, shared_gpu
from benchmarks.kernelbench.document import NOT_OF_THIS_TYPE
from benchmarks.kernelbench.footprint import footprint_of
from benchmarks.kernelbench.problem import Problem, load
from benchmarks.suite.row_worker import prepare as prepared
from mirage_py.errors import LostGpuError, MirageError
from mirage_py.frontend.searches import CallOptions, cached_report
from mirage_py.frontend.superoptimized_module import SuperoptimizedModule
from mirage_py.pipeline.cached_pipeline import optimizer_for
from mirage_py.runtime.base import stages
from mirage_py.runtime.base.gpu_context import require_gpu
from mirage_py.runtime.base.gpu_memory import is_out_of_memory, make_room
from mirage_py.runtime.eager.compiled import MODES
from mirage_py.runtime.timing.autotuning_turns import tune_in_turns
from mirage_py.runtime.timing.turns import turn

Json = dict[str, Any]
Task = Mapping[str, Any]
Call = Callable[..., Any]
Note = Callable[[str], None]

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
# In which PyTorch refuses types.
_WORDS_OF_TYPES = ("dtype", "not implemented for", "type of input", "Input type", "scalar type")
_TRIALS = 5
# Elements that are compared at a time.
_PIECE = 1 << 26
_WARM, _FEWEST, _REPEATS, _MOST_REPEATS = 3, 8, 20, 60
_TIMING_S = 4.0
_SPREAD = 1.02
# A reference in float64 of another row takes the GPU for a second or two: times that two rounds, so
# far apart, agree on are of a GPU that was free.
_ROUNDS, _APART_S = 4, 1.5
# Of the calls that are timed as one, as eager makes them.
_A_TIME_US, _MOST_CALLS = 1500.0, 30
# How much longer than it ever took the host is given to launch them; clock cycles of a second.
_HOST_NOISE, _MOST_AHEAD_S, _MOST_HZ = 1.5, 0.1, 2e9
# A folder in which workers find cores of their own, and how many workers there are.
FOLDER, JOBS = "KERNELBENCH_FOLDER", "KERNELBENCH_JOBS"
_HELD: list[int] = []
# Where a row says that something ran out of memory.
_SAID = "reason", "why", "faults", "notes", "fell", "served", "no_float64"


def prepare(task: Task) -> dict[str, Any]:
    """Take cores and the GPU, and import what every problem needs."""
    _begin()
    importlib.import_module("torch._inductor.compile_fx")
    return prepared(task)


@cache
def _begin() -> None:
    """What a worker does once, one that replaces another with its first problem."""
    _take_cores(Path(os.environ[FOLDER]), int(os.environ[JOBS]))
    tune_in_turns()


def _take_cores(folder: Path, jobs: int) -> None:
    """Stay on a share of the cores that no other worker has: all that counts cores counts these."""
    cores = sorted(os.sched_getaffinity(0))
    for number in range(jobs):
        handle = os.open(folder / f"cores-{number}", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        _HELD.append(handle)  # given back when this process ends
        each = max(1, len(cores) // jobs)
        mine = [cores[(number * each + n) % len(cores)] for n in range(each)]
        os.sched_setaffinity(0, mine)
        return


def measure(task: Task) -> Json:
    """The row of the problem in the file ``path`` of ``level``."""
    _begin()
    problem = Problem(task["level"], Path(task["path"]))
    started = time.monotonic()
    folder = Path(os.environ[FOLDER])
    said: list[tuple[float, str]] = []

    def note(stage: str) -> None:
        stages.enter(stage)
        # Of counters, as how many plans of a part have compiled, the first is enough.
        if said and _named(said[-1][1]) == _named(stage):
            return
        said.append((round(time.monotonic() - started, 1), stage))
        with (folder / f"{problem.key}-{task['dtype']}.stages").open("a", encoding="utf-8") as file:
            file.write(f"{said[-1][0]} {stage}\n")

    row: Json = {"problem": problem.path.stem}
    with torch.no_grad():
        row |= _outcome(lambda: _measured(problem, task, folder, note))
    if any(map(is_out_of_memory, (row.get(key) for key in _SAID))):
        row["short_of_memory"] = True
    return {**row, "seconds": round(time.monotonic() - started, 1), "stages": said}


def _named(stage: str) -> list[str]:
    """The part, if it is of one, and the first word of what is done."""
    *part, what = stage.split(": ")
    return [*part, *what.split()[:1]]


def _outcome(make: Callable[[], Json]) -> Json:
    """What is made, or why not. Raises LostGpuError, as this process can measure nothing any more:
    nineteen problems behind one that read beyond a table had its error for a row.
    """
    try:
        return make()
    except LostGpuError:
        raise
    except MirageError as error:
        return {"status": "refused", "reason": error.what, "why": error.why}
    except Exception as error:  # noqa: BLE001  whatever a problem does is its row
        require_gpu("the problem", error)
        return {"status": "crashed", "reason": f"{type(error).__name__}: {error}"[:300]}


def _measured(problem: Problem, task: Task, folder: Path, note: Note) -> Json:
    """Checked by KernelBench's rule, and timed beside what torch has."""
    note("its size")
    dtype = TYPES[task["dtype"]]
    properties = torch.cuda.get_device_properties(0)
    takes = footprint_of(problem).bytes(dtype.itemsize)
    wanted = shared_gpu.shares_of(takes, properties.total_memory, int(os.environ[JOBS]))
    if task.get("alone"):
        wanted = shared_gpu.SHARES
    note("waiting for memory")
    waits = time.monotonic()
    with shared_gpu.memory(folder, wanted):
        row: Json = {"memory_shares": wanted, "waited_s": round(time.monotonic() - waits, 1)}
        row |= _outcome(lambda: _beside_torch(problem, task, dtype, note))
        # The next one may have the memory when there is nothing of this row left in it: no error,
        # whose frames hold tensors, and no cache.
        torch.compiler.reset()
        make_room()
    return row


def _beside_torch(problem: Problem, task: Task, dtype: torch.dtype, note: Note) -> Json:
    note("loading")
    with torch.device("cuda"):
        model, inputs = load(problem)
    model = model.cuda().to(dtype)
    inputs = [_moved(x, dtype) for x in inputs]
    options = CallOptions(budget=task["budget"])
    # What is raced against is what is timed beside.
    asked = replace(options.request, progress=note)
    optimize = optimizer_for(asked, modes=task["peers"])
    served = SuperoptimizedModule(copy.deepcopy(model), options, optimize)
    candidates: dict[str, Call] = {"eager": model, "ours": served}
    for name in task["peers"]:
        candidates[name] = torch.compile(copy.deepcopy(model), dynamic=False, mode=MODES[name])
    row: Json = {"status": "taken", "first_call_s": {}, "faults": {}}
    for name, call in list(candidates.items()):
        note(f"first call of {name}")
        begin = time.monotonic()
        try:
            call(*inputs)
            torch.cuda.synchronize()
            row["first_call_s"][name] = round(time.monotonic() - begin, 1)
        # A peer that fails is shown as such, and the others are measured.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            if name == "eager" and isinstance(error, RuntimeError) and _is_of_types(error):
                return {"status": NOT_OF_THIS_TYPE, "reason": reason}
            if name in ("ours", "eager"):
                raise
            row["faults"][name] = reason
            del candidates[name]
    note("KernelBench's check")
    row["correct"] = _correct(served, model, inputs, task["dtype"])
    if not row["correct"]:
        note("distances from float64")
        row |= distances.judged(candidates, model, inputs, _TOLERANCE[task["dtype"]])
    row["served"] = str(served.dispatch_table()).strip().splitlines()[-1]
    # A row is one without it, too.
    with contextlib.suppress(Exception):
        row |= _reported(served, options, inputs)
    note("timing")
    row["us"] = _microseconds(candidates, inputs)
    return row


def _reported(served: SuperoptimizedModule, options: CallOptions, inputs: list[Any]) -> Json:
    """What the optimisation says of itself: where kernels were lost is looked for there."""
    entry = served.served().entry(*inputs)
    report = getattr(entry.kernel, "record", None)
    if not report and entry.traced is not None:
        # Of a plan that serves, the cache has it.
        report = cached_report(entry.traced.program, options, entry.traced.words)
    report = report or {}
    record = report.get("record", {})
    candidates = report.get("candidates", [])
    return {
        "notes": list(report.get("notes", []))[:12],
        "seconds_of": record.get("seconds_of"),
        "fell": [str(c.get("reason", ""))[:160] for c in candidates if not c.get("passed")][:3],
        "candidates": len(candidates),
        # Microseconds in the race, with a cold L2.
        "raced_us": {c["name"][:60]: c["time_us"] for c in _fastest(candidates)},
        "baseline": report.get("baseline"),
    }


def _fastest(candidates: list[Json]) -> list[Json]:
    timed = [c for c in candidates if c.get("passed") and c.get("time_us")]
    return sorted(timed, key=lambda c: c["time_us"])[:3]


def _moved(x: Any, dtype: torch.dtype) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    return x.cuda().to(dtype) if x.is_floating_point() else x.cuda()


def _is_of_types(error: RuntimeError) -> bool:
    """Whether PyTorch refuses the types of the operands, as where a model makes some in float32."""
    return any(word in str(error) for word in _WORDS_OF_TYPES)


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
        if not all(_close(a, b, tolerance) for a, b in pairs):
            return False
    return True


def _close(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> bool:
    """``torch.allclose``, in memory that does not grow with the tensors."""
    if one.shape != other.shape:
        return False
    a, b = one.reshape(-1), other.reshape(-1)
    parts = (slice(n, n + _PIECE) for n in range(0, a.numel(), _PIECE))
    return all(torch.allclose(a[p], b[p], atol=tolerance, rtol=tolerance) for p in parts)


def _microseconds(candidates: Mapping[str, Call], inputs: list[Any]) -> dict[str, float]:
    """The time of a call: the least of rounds some time apart, until two in a row agree."""
    least: dict[str, float] = {}
    for number in range(_ROUNDS):
        if number:
            time.sleep(_APART_S)
        found = _round_us(candidates, inputs)
        agree = bool(least) and all(_near(us, least[name]) for name, us in found.items())
        least = {name: min(us, least.get(name, us)) for name, us in found.items()}
        if agree:
            break
    return least


def _near(one: float, other: float) -> bool:
    return max(one, other) <= _SPREAD * min(one, other)


def _round_us(candidates: Mapping[str, Call], inputs: list[Any]) -> dict[str, float]:
    """The time of a call, of all candidates by turns: a clock that falls does so for all. Others
    launch kernels out of turn, so it is the least of each candidate's, and there are more where
    times spread.

    The GPU waits until the host has launched the calls, which a busy host takes long for, so what
    is timed is their kernels and nothing else.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    host_s = dict.fromkeys(candidates, 0.0)
    calls, repeat = 1, 0
    with turn():
        begun = time.monotonic()
        while repeat < _WARM + _MOST_REPEATS:
            if repeat >= _WARM + _REPEATS and not any(map(_spreads, times.values())):
                break
            if repeat > _WARM + _FEWEST and time.monotonic() - begun > _TIMING_S:
                break
            for name, call in candidates.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                ahead_s = min(_MOST_AHEAD_S, _HOST_NOISE * host_s[name] * calls)
                sleep = torch.cuda._sleep  # noqa: SLF001  no public one
                sleep(int(ahead_s * _MOST_HZ))  # type: ignore[no-untyped-call]
                start.record()
                launched = time.monotonic()
                for _ in range(calls):
                    call(*inputs)
                took_s = time.monotonic() - launched
                end.record()
                torch.cuda.synchronize()
                if repeat > 0:  # the first call after others may compile or load
                    host_s[name] = max(host_s[name], took_s / calls)
                us = 1e3 * start.elapsed_time(end) / calls
                if repeat >= _WARM:
                    times[name].append(us)
                elif repeat == _WARM - 1 and name == "eager":
                    calls = max(1, min(_MOST_CALLS, int(_A_TIME_US / us)))
            repeat += 1
    return {name: round(min(found), 2) for name, found in times.items()}


def _spreads(found: list[float]) -> bool:
    return sorted(found)[len(found) // 2] > _SPREAD * min(found)
