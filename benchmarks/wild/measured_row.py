"""A row on a GPU: a program at its real sizes, both ways of ours beside eager and torch.compile.

``measure`` is a service of ``benchmarks/farm/farm.py``. First calls are what a user waits for, with
whatever caches there are. A program that writes to its arguments goes on from what it wrote.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.peers.compiled import compiled
from benchmarks.wild.agreement import Yardstick, copied
from benchmarks.wild.catalogue import program_at
from benchmarks.wild.program import WildProgram
from benchmarks.wild.race import race_of
from benchmarks.wild.sdpa import sdpa_form
from benchmarks.wild.summary import WAYS
from mirage_py.dynamo.backend import mirage_py
from mirage_py.frontend.decorator import superoptimize
from mirage_py.runtime.base import stages
from mirage_py.runtime.timing.timing import rotation_sets, time_interleaved

Json = dict[str, Any]
Task = Mapping[str, Any]
Call = Callable[..., Any]

_REPS = 15
# At most so many sets of arguments, which together exceed the L2 as those of the tuner do.
_SETS = 64
# Of the GPU's memory, for all sets of arguments.
_SETS_BYTES = 6 * 2**30


def measure(task: Task) -> Json:
    """The row of a task: ``{"row": ...}``."""
    program = program_at(task["program"])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"row": measured_row(program, task, stages.enter)}


def measured_row(program: WildProgram, task: Task, note: Callable[[str], None]) -> Json:
    """Times, differences from eager, seconds of each first call, and what serves the decorator."""
    given = program.arguments(real=True, device="cuda")
    yardstick = Yardstick(program.function, given)
    decorated = superoptimize(effort=task["effort"], budget=task["budget"])(program.function)
    candidates: dict[str, Call] = {
        "eager": program.function,
        "compile": compiled(program.function),
        "compile_max_autotune": compiled(program.function, mode="max-autotune-no-cudagraphs"),
        "decorator": decorated,
        "backend": compiled(
            program.function,
            backend=mirage_py,
            options={"effort": task["effort"], "budget": task["budget"]},
        ),
    }
    if (form := sdpa_form(program.function.__name__)) is not None:
        candidates |= {"sdpa": form, "sdpa_compile": compiled(form)}
    first_s: Json = {}
    faults: Json = {}
    for name, call in list(candidates.items()):
        note(name)
        begin = time.perf_counter()
        try:
            arguments = copied(given)
            found = call(*arguments)
            torch.cuda.synchronize()
            first_s[name] = round(time.perf_counter() - begin, 1)
            words = yardstick.difference(found, arguments)
        # One that fails is shown as such, and the others are measured.
        except Exception as error:  # noqa: BLE001
            words = f"{type(error).__name__}: {error}"[:300]
        if words:
            faults[name] = words
            del candidates[name]
    note("timing")
    times = _times(candidates, given, task["timing_s"])
    peers = {name: us for name, us in times.items() if name not in WAYS}
    ours = {name: us for name, us in times.items() if name in WAYS}
    best = min(ours.values(), default=None)
    entry = decorated.entry(*copied(given))
    return {
        "program": program.name,
        "family": program.family,
        "ours_us": best,
        "times_us": times,
        "against_best": round(min(peers.values()) / best, 3) if best and peers else None,
        "faults": faults,
        "first_call_s": first_s,
        "served": str(entry.served)[:400],
        "race": race_of(decorated, entry),
    }


def _times(candidates: Mapping[str, Call], given: list[Any], seconds: float) -> dict[str, float]:
    size = sum(x.nbytes for x in given if isinstance(x, torch.Tensor))
    l2_bytes = torch.cuda.get_device_properties().L2_cache_size
    most = max(1, min(_SETS, _SETS_BYTES // max(1, size)))
    sets = [copied(given) for _ in range(min(most, rotation_sets(size, l2_bytes)))]

    def entry(call: Call) -> Callable[[int], Any]:
        return lambda number: call(*sets[number])

    found = time_interleaved(
        {name: entry(call) for name, call in candidates.items()},
        len(sets),
        reps=_REPS,
        deadline=time.monotonic() + seconds,
    )
    return {name: round(timed.median_us, 2) for name, timed in found.items() if timed.ran}
