"""The checker of emitted code on the suite's kernels, and on faults planted into them.

``python -m benchmarks.checks.code_faults [-o OUT.json] [--backend triton] [--plans DIR] [--each
N]`` needs nvcc or NVRTC for CUDA, and no GPU. The kernels are those of the back end's fastest plan
of each row that was measured, at its real sizes, and with ``--plans`` what ``sanitize_plans``
found. A planted fault that is not found is run in random interleavings (``code_interleavings.py``):
where all reads see what they saw, and all accesses are the same, it makes no other kernel; where
they see other data, but the same in all runs, the order is right and a value is wrong: the float
gate's matter.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.checks.code_interleavings import Run, differs
from benchmarks.checks.planted_code import OF_NVCC, Planted, planted
from benchmarks.checks.planted_triton import OF_TRITON
from benchmarks.checks.sanitize_plans import read as read_plans
from benchmarks.report.provenance import commit
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import CompileError
from mirage_py.runtime.base.emission import EmittedKernel, emit_kernels
from mirage_py.runtime.code_check.check import (
    HOPPER,
    CodeReport,
    Effort,
    check_code,
    traced,
)
from mirage_py.runtime.code_check.compile_ptx import Compiled, compiled
from mirage_py.runtime.code_check.events import Launch, UnsupportedError
from mirage_py.runtime.code_check.ptx.ptx import parse
from mirage_py.runtime.code_check.ptx.thread_bits import stored_bits
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.text.json_form import from_json

Json = dict[str, Any]
_MEASURED = Path(__file__).parents[1] / "results/h200-measurements.jsonl.gz"
_RUNS = 16
# Kernels with more events than this are checked, and no faults are planted into them.
_MOST_EVENTS = 1_600
# A wrong value, but the same in every order: not what this checker is for.
_IN_ORDER = "other data, the same in every run,"
# What random runs do not know of, and why a fault may make no other kernel.
_ARGUED = {
    "wgmma fence left out": "no register of the product is written since the fence before",
    "proxy fence left out": "another fence lies on every way to the read",
}


@dataclass(frozen=True, slots=True)
class Named:
    """One kernel of a plan, with its PTX."""

    name: str
    compiled: Compiled
    program: Program
    block: BlockGraph

    @property
    def text(self) -> str:
        """Its PTX."""
        return self.compiled.text

    @property
    def kernel(self) -> EmittedKernel:
        """As it was emitted."""
        return self.compiled.kernel

    def launch(self, text: str) -> Launch:
        """For this PTX."""
        return self.compiled.launch(parse(text, self.kernel.name), self.program, self.block)

    def checked(self, text: str, effort: Effort | None = None) -> CodeReport:
        """The report on this PTX."""
        return check_code(text, self.kernel.name, lambda _: self.launch(text), effort)


def measured_plans(backend: str = "cuda") -> Iterator[tuple[str, Plan]]:
    """The fastest plan of each row that a back end made."""
    best: dict[str, Json] = {}
    with gzip.open(_MEASURED, "rt", encoding="utf-8") as file:
        for line in map(json.loads, file):
            is_its = line["plan"].get("backend") == backend
            known = best.get(line["key"])
            if is_its and line["us"] and (known is None or line["us"] < known["us"]):
                best[line["key"]] = line
    for key, line in sorted(best.items()):
        plan = from_json(line["plan"])
        assert isinstance(plan, Plan)
        yield key, plan


def kernels(plans: Iterator[tuple[str, Plan]], capability: int = HOPPER) -> Iterator[Named]:
    """Their kernels, those of Triton for sm_``capability``; no text comes twice."""
    seen: set[str] = set()
    for name, plan in plans:
        blocks = [k for k in plan.ugraph.kernels if isinstance(k, BlockGraph)]
        for kernel, block in zip(emit_kernels(plan), blocks, strict=True):
            if kernel.source in seen:
                continue
            seen.add(kernel.source)
            try:
                made = compiled(kernel, capability)
            except CompileError as error:
                print(f"{name}/{kernel.name} does not compile: {error.what}")
                continue
            yield Named(f"{name}/{kernel.name}", made, plan.ugraph.program, block)


def row_of(named: Named, report: CodeReport) -> Json:
    """For the table of kernels."""
    return {
        "kernel": named.name,
        "blocks": report.blocks,
        "kinds_of_blocks": report.classes,
        "events": report.events,
        "accesses": report.accesses,
        "seconds": round(report.seconds, 2),
        "verdict": "clean" if report.clean else str(report),
    }


class Oracle:
    """What random runs of one kernel say of faults in it."""

    def __init__(self, named: Named) -> None:
        self.named = named
        self.launch = named.launch(named.text)
        entry = parse(named.text, named.kernel.name)
        self.program, self.traces = traced(entry, self.launch)
        first = range(self.launch.cluster)
        shared = max(16, self.program.shared_end)
        own = Run(self.traces, first, shared, len(self.traces), 0, 0.0, stored_bits(entry))
        self.seen = own.go().seen

    def differs(self, fault: Planted) -> str:
        """How the kernel with the fault differs from the one without; empty if in nothing."""
        try:
            entry = parse(fault.text, self.named.kernel.name)
            program, traces = traced(entry, self.launch)
        except UnsupportedError as error:
            return str(error)
        first, shared = range(self.launch.cluster), max(16, program.shared_end)
        stored = stored_bits(entry)
        own = Run(traces, first, shared, len(traces), 0, 0.0, stored).go()
        other = "the first run does not end" if own.stuck else ""
        other = other or differs(traces, first, shared, own.seen, _RUNS, stored)
        if other:
            return other
        if program.memory.digest != self.program.memory.digest:
            return f"{_IN_ORDER} from other places inside of the same tensors"
        wrong = [k for k, value in own.seen.items() if self.seen.get(k, value) != value]
        return f"{_IN_ORDER} in line {wrong[0][1]}" if wrong else ""


def faults_of(named: Named) -> Iterator[Planted]:
    """All that can be planted into its text."""
    return planted(named.text, OF_TRITON if isinstance(named.kernel, TritonKernel) else OF_NVCC)


def judged(named: Named, fault: Planted, oracle: Oracle) -> tuple[str, str]:
    """``found``, ``refused`` as not checked, ``same``, ``in order`` or ``missed``, and why."""
    report = named.checked(fault.text)
    if report.faults:
        return "found", report.faults[0].kind
    if report.unsupported:
        return "refused", report.unsupported
    other = oracle.differs(fault)
    if other.startswith(_IN_ORDER):
        return "in order", other
    if other:
        return "missed", other
    return "same", _ARGUED.get(fault.kind, f"{_RUNS} random runs read the same")


def plant(chosen: Sequence[Named], each: int, seed: int, seconds: float) -> list[Json]:
    """A row for each planted fault; ends after about so long."""
    rows: list[Json] = []
    rng = random.Random(seed)
    started = time.perf_counter()
    for named in chosen:
        oracle = Oracle(named)
        kinds: dict[str, list[Planted]] = {}
        for fault in faults_of(named):
            kinds.setdefault(fault.kind, []).append(fault)
        for kind, faults in kinds.items():
            if time.perf_counter() - started > seconds:
                return rows
            for fault in rng.sample(faults, min(each, len(faults))):
                verdict, why = judged(named, fault, oracle)
                line = {"kernel": named.name, "kind": kind, "line": fault.line, "was": fault.was}
                rows.append({**line, "verdict": verdict, "why": why})
                if verdict != "found":
                    print(f"{named.name}, {fault.name}: {verdict}, {why} ({fault.was[:70]})")
        print(f"{named.name}: {len(rows)} faults planted so far", flush=True)
    return rows


def table(rows: Sequence[Json]) -> Iterator[str]:
    """One line for each kind of fault."""
    counts = Counter((row["kind"], row["verdict"]) for row in rows)
    verdicts = ("found", "refused", "same", "in order", "missed")
    yield f"{'kind':40s} planted" + "".join(f"{v:>9s}" for v in verdicts)
    for kind in dict.fromkeys(row["kind"] for row in rows):
        numbers = [counts[kind, v] for v in verdicts]
        yield f"{kind:40s} {sum(numbers):7d}" + "".join(f"{n:9d}" for n in numbers)
    totals = [sum(row["verdict"] == v for row in rows) for v in verdicts]
    yield f"{'all':40s} {len(rows):7d}" + "".join(f"{n:9d}" for n in totals)


def main() -> int:
    """1 where a kernel is not clean or a fault was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--plans", type=Path, help="a folder that sanitize_plans has written")
    parser.add_argument("--backend", choices=("cuda", "triton", "none"), default="cuda")
    parser.add_argument("--capability", type=int, default=HOPPER, help="that Triton compiles for")
    parser.add_argument("--each", type=int, default=2, help="faults of a kind in a kernel")
    parser.add_argument("--kernels", type=int, default=24, help="so many have faults planted")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for planting")
    parser.add_argument("--only", default="", help="a part of a kernel's name")
    parser.add_argument("--skip", default="", help="a row that is left out")
    parser.add_argument("--events", type=int, default=2_000_000, help="at most, in a kernel")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sources = [] if asked.backend == "none" else [*measured_plans(asked.backend)]
    if asked.plans:
        sources += [(checked.name, checked.plan) for checked in read_plans(asked.plans)]
    found, fit, clean = [], [], 0
    chosen = ((n, p) for n, p in sources if asked.only in n and n != asked.skip)
    for named in kernels(chosen, asked.capability):
        report = named.checked(named.text, Effort(events=asked.events))
        found.append(row_of(named, report))
        clean += report.clean
        if report.clean and 100 < report.events <= _MOST_EVENTS:
            fit.append(named)
        print(f"{named.name}: {report} ({report.seconds:.1f} s)", flush=True)
    print(f"{clean} of {len(found)} kernels are clean", flush=True)
    step = max(1, len(fit) // max(1, asked.kernels))
    rows = plant(fit[::step][: asked.kernels], asked.each, asked.seed, asked.seconds)
    print("\n".join(table(rows)))
    if asked.out:
        document = {
            "schema": 1,
            "commit": commit(),
            "clean": clean,
            "kernels": found,
            "faults": rows,
        }
        asked.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(clean < len(found) or any(row["verdict"] == "missed" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
