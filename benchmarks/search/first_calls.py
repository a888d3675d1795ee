"""First calls of the decorator on a GPU, one at a time: seconds, and where they go.

python -m benchmarks.search.first_calls -o OUT.json [--only NAMES] [--budget S] [--tree SHARE]

Each call is in a process of its own that has imported torch and made its inputs, without anything
in a cache but the packages' bytecode. Names are keys of the suite's paper rows, ``wild:NAME``, or
their beginnings. What serves is timed once more beside the fastest plan of the committed
measurements: from one session to another a plan of 2 us took 15 % longer. With ``--tree`` the call
tree of the calling thread is shown, by samples, as far as a function takes this share of the whole.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.report.provenance import commit
from benchmarks.search.bytecode import with_bytecode
from benchmarks.search.fresh_process import in_fresh_process

if TYPE_CHECKING:
    from mirage_py.pipeline.selection.selection import Ranking
    from mirage_py.result import Result
    from mirage_py.ugraph.ir.plan import Plan

Json = dict[str, Any]
Stack = tuple[str, ...]

# Where something was slow once, and what stands for every family of the catalogue.
WILD = (
    "swiglu", "llama_mlp_block", "capped_attention", "alibi_attention", "shifted_cross_entropy",
    "residual_block", "scan_by_loop", "softmax_router", "llama_attention_block",
)  # fmt: skip
_EVERY_S = 0.02
_SHOWN = 6
_UNTIMED = 12
_REPS = 31
_STAGES = (
    "searching", "ranking", "verifying", "compiled", "waiting", "checking", "timing",
)  # fmt: skip


def names() -> list[str]:
    """All that is measured."""
    from benchmarks.workloads.workloads import suites

    return [*(w.key for w in suites()["paper"]), *(f"wild:{name}" for name in WILD)]


def call_of(name: str) -> tuple[Callable[..., Any], list[Any]]:
    """A function, and arguments of it on the GPU."""
    import torch

    if name.startswith("wild:"):
        from benchmarks.wild.catalogue import program_at

        program = program_at(name.removeprefix("wild:"))
        return program.function, program.arguments(real=True, device="cuda")
    from benchmarks.workloads.workloads import cells
    from mirage_py.frontend.spec import parse_file

    workload = cells()[name]
    inputs = parse_file(workload.spec, sizes=workload.sizes).inputs
    made = [torch.randn(t.shape, device="cuda") for t in inputs]
    types = [getattr(torch, t.dtype.torch_name) for t in inputs]
    return workload.torch_function(), [x.to(t) for x, t in zip(made, types, strict=True)]


class Sampler:
    """Samples the stack of the main thread: of frames of this project and the calls out of it."""

    def __init__(self) -> None:
        self.stacks: Counter[Stack] = Counter()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample during the block, by a signal: another thread would keep frames, and what is in
        them, beyond their end.
        """
        before = signal.signal(signal.SIGALRM, self._take)
        signal.setitimer(signal.ITIMER_REAL, _EVERY_S, _EVERY_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def _take(self, _signal: int, frame: FrameType | None) -> None:
        self.stacks[_names(frame)] += 1

    def tree(self, total_s: float, share: float) -> list[str]:
        """Lines of seconds and functions, callers before callees."""
        inclusive: Counter[Stack] = Counter()
        for stack, count in self.stacks.items():
            for depth in range(1, len(stack) + 1):
                inclusive[stack[:depth]] += count
        unit = total_s / max(1, sum(self.stacks.values()))
        kept = {s: n for s, n in inclusive.items() if n * unit >= share * total_s}

        def walk(prefix: Stack) -> Iterator[str]:
            below = [s for s in kept if len(s) == len(prefix) + 1 and s[: len(prefix)] == prefix]
            for stack in sorted(below, key=lambda s: -kept[s]):
                yield f"{'  ' * len(prefix)}{kept[stack] * unit:6.1f}  {stack[-1]}"
                yield from walk(stack)

        return list(walk(()))


def _names(frame: FrameType | None) -> Stack:
    found: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        here = "mirage_py" in path.parts or "search" in path.parts or "codegen" in path.parts
        if here or not found:
            found.append(f"{path.stem}.{frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(found))


def by_stage(timeline: Sequence[tuple[float, str]], end: float) -> Json:
    """Seconds of each stage that progress told of."""
    found: dict[str, float] = {"before": timeline[0][0] if timeline else end}
    ends = [*(at for at, _ in timeline[1:]), end]
    for (at, text), until in zip(timeline, ends, strict=False):
        words = text.rpartition(": ")[2].split()
        stage = next((w for w in words if w in _STAGES), "other")
        found[stage] = found.get(stage, 0.0) + until - at
    return {stage: round(s, 1) for stage, s in found.items()}


def fallen(result: Result) -> Json:
    """What was tried and did not stay: how many candidates for each reason."""
    reasons = (str(c.reason) for c in result.candidates if c.reason is not None)
    return dict(Counter(reasons).most_common())


def timed(result: Result) -> Json:
    """How many plans there were and how many have a time, of which structures, and the fastest."""
    found = [c for c in result.candidates if c.timing.time_us < inf]
    found.sort(key=lambda c: c.timing.time_us)
    fastest = [f"{c.timing.time_us:.2f} {c.timing.name}: {c.kind}" for c in found[:_SHOWN]]
    return {
        "plans": len(result.candidates),
        "timed": len(found),
        "structures": dict(Counter(c.kind for c in found).most_common()),
        "fastest": fastest,
    }


def tried(result: Result) -> list[str]:
    """A line for each plan in the order of trial: place, microseconds or what is wrong, structure,
    kernels; of those without a time the first few.
    """
    lines, untimed = [], 0
    for number, candidate in enumerate(result.candidates):
        has_time = candidate.timing.time_us < inf
        untimed += not has_time
        if candidate.plan is None or (not has_time and untimed > _UNTIMED):
            continue
        why = candidate.reason
        said = f"{candidate.timing.time_us:.2f}" if has_time else "-"
        said += f" {why.name}" if why is not None else ""
        lines.append(f"{number} {said} {candidate.kind}: {brief(candidate.plan)}")
    return lines


def brief(plan: Plan) -> str:
    """Tiles, loops, warps, stages and flags of each kernel, as ``t64 s_part1/s128 w4 n3 start``."""
    from benchmarks.suite.plan_format import described

    return f"{plan.backend[:1]} " + " | ".join(map(_brief_kernel, described(plan)))


def _brief_kernel(kernel: Json) -> str:
    if "library" in kernel:
        return str(kernel["library"])
    grid = " ".join(f"{dim}{tile}" for dim, tile in kernel["grid"].items())
    loops = "".join(f"/{dim}{tile}" for dim, tile in kernel["loops"])
    stages = ",".join(map(str, dict.fromkeys(kernel["num_stages"])))
    launched = [f"w{kernel['num_warps']}", *([f"n{stages}"] if stages else [])]
    flags = (f"{k}={v}" for k, v in kernel["flags"].items() if k != "arch")
    return " ".join((grid + loops, *launched, *flags))


def ranked(ranking: Ranking) -> dict[str, list[int]]:
    """Of each structure: plans that were ranked, their families, and how many of those were
    verified.
    """
    found: dict[str, list[int]] = {}
    for name in dict.fromkeys(i.name for i in ranking.ranked):
        digests = [i.family.digest for i in ranking.ranked if i.name == name]
        families = dict.fromkeys(digests)
        found[name] = [len(digests), len(families), sum(d in ranking.verified for d in families)]
    return found


def beside(name: str, served: Plan | None, arguments: Sequence[Any]) -> Json:
    """Microseconds of what serves and of the fastest committed plan, in one run; empty where there
    is none, or what serves takes other tensors than the call.
    """
    from benchmarks.calibration.calibrate import read
    from benchmarks.calibration.learn import RUNS
    from mirage_py.runtime.launch.launch import PlanRunner
    from mirage_py.runtime.timing.timing import rotation_sets, time_interleaved
    from mirage_py.targets import H200

    known = [m for path in RUNS for m in read(path, [name])]
    shapes = [tuple(x.shape) for x in arguments]
    if served is None or not known:
        return {}
    if [t.shape for t in served.ugraph.program.inputs] != shapes:
        return {}
    plans = {"served": served, "committed": min(known, key=lambda m: m.us).plan}
    count = rotation_sets(sum(x.nbytes for x in arguments), H200.l2_bytes)
    sets = [tuple(x.clone() for x in arguments) for _ in range(count)]
    runners = {which: PlanRunner(plan) for which, plan in plans.items()}
    entries = {w: lambda number, runner=r: runner(*sets[number]) for w, r in runners.items()}
    timed = time_interleaved(entries, count, reps=_REPS)
    return {which: round(found.median_us, 3) for which, found in timed.items()}


def measured_call(name: str, budget: float | None, share: float) -> Json:
    """The row of one call, in this process."""
    import torch

    from mirage_py.frontend.decorator import superoptimize
    from mirage_py.pipeline import pipeline
    from mirage_py.pipeline.selection import record

    function, arguments = call_of(name)
    torch.zeros(1, device="cuda").sum().item()
    results: list[Any] = []
    rankings: list[Any] = []
    run, rank_plans = pipeline.run, pipeline.rank_plans

    def kept(*args: Any) -> Any:
        results.append(run(*args))
        return results[-1]

    def ranking(*args: Any) -> Any:
        rankings.append(rank_plans(*args))
        return rankings[-1]

    sampler = Sampler()
    begun, begun_cpu = time.perf_counter(), time.process_time()
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        patch.object(pipeline, "run", kept),
        patch.object(pipeline, "rank_plans", ranking),
        patch.object(record, "_STAGES", sys.maxsize),
    ):
        warnings.simplefilter("ignore")
        with sampler.running():
            superoptimize(budget=budget)(function)(*arguments)
            torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    row: Json = {"first_call_s": round(seconds, 1)}
    row["cpu_s"] = round(time.process_time() - begun_cpu, 1)
    for result in results:
        known = result.record
        row["run_s"] = known["seconds"]
        row["stages"] = by_stage(known["timeline"], known["seconds"])
        row["tuner"] = known.get("seconds_of", {})
        row["served_us"] = round(result.best.time_us, 2)
        row["served"] = result.best.name
        row["not_served"] = fallen(result)
        row |= timed(result)
        row["notes"] = list(result.notes)
        row["ranked"] = [ranked(r) for r in rankings]
        row["tried"] = tried(result)
        with torch.no_grad():
            row["beside_us"] = beside(name, result.plan, arguments)
        row["timeline"] = [[at, text] for at, text in known["timeline"] if "compiled" not in text]
    if share:
        row["tree"] = sampler.tree(seconds, share)
    return row


def measured(name: str, budget: float | None, share: float) -> Json:
    """The row of one call, in a process of its own with empty caches."""
    row: Json = in_fresh_process(measured_call, name, budget, share)
    return row


def suite_us() -> dict[str, float]:
    """The times of the suite's results, which tried many more plans."""
    path = Path(__file__).parents[1] / "results/h200-suite.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {f"{row['workload']}-b{row['batch']}": row["result_us"] for row in rows}


def main(arguments: Sequence[str]) -> None:
    """Measure, and write after each call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="result file")
    parser.add_argument("--only", default="", help="names or their beginnings, by comma")
    parser.add_argument("--budget", type=float, help="seconds of a search; by default the effort's")
    parser.add_argument("--tree", type=float, default=0.0, help="show functions of this share")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after this")
    chosen = parser.parse_args(arguments)
    every = names()
    asked = [name for name in chosen.only.split(",") if name] or [""]
    # In the order in which they are asked for: what there is no time for is at the end.
    listed = dict.fromkeys(
        n for start in asked for n in ([start] if start in every else every) if n.startswith(start)
    )
    command = f"python -m benchmarks.search.first_calls {' '.join(arguments)}"
    document: Json = {"commit": commit(), "command": command, "budget_s": chosen.budget, "rows": {}}
    begun = time.monotonic()
    with with_bytecode() as made:
        document["bytecode"] = "made before the first call" if made else "as installed"
        for name in listed:
            if time.monotonic() - begun > chosen.seconds:
                break
            document["rows"][name] = row = measured(name, chosen.budget, chosen.tree)
            _show(name, row)
            chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _show(name: str, row: Json) -> None:
    known = suite_us()
    if name in known and "served_us" in row:
        row["suite_us"] = known[name]
    said = " ".join(f"{s} {x}" for s, x in row.get("stages", {}).items())
    tuned = " ".join(f"{s} {x}" for s, x in row.get("tuner", {}).items())
    head = row.get("fault") or f"{row['first_call_s']:6.1f} s  cpu {row['cpu_s']:5.1f}"
    us = f"{row.get('served_us', '')} us ({row.get('suite_us', '')})"
    print(f"{name:28s} {head}  {us}  | {said} | {tuned}", flush=True)
    if row.get("beside_us"):
        print(f"    beside each other: {row['beside_us']}", flush=True)
    for why, count in row.get("not_served", {}).items():
        print(f"    {count} x {why}", flush=True)
    print(f"    {row.get('timed')} of {row.get('plans')} timed: {row.get('fastest')}", flush=True)
    for line in row.get("tree", ()):
        print(f"    {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
