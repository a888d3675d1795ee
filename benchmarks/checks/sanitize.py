"""The best kernels of every example under compute-sanitizer: memory, races, barriers.

    python -m benchmarks.checks.sanitize_plans DIR            # where egglog is
    python -m benchmarks.checks.sanitize DIR -o OUT           # where the GPU is: compile, launch,
    check python -m benchmarks.checks.sanitize DIR --dry-run        # compile for sm_90, run nothing

One process for each tool launches every plan once; the tools run side by side. Each writes its log
to OUT/TOOL.txt, and OUT/summary.json counts what they found, kernels of libraries apart, and says
which plans have which forms of CUDA kernels (``kernel_forms.py``).

Plans that do not compile, as the compiler refuses what the assembler has spoilt, are left out.
Every tensor is an allocation of its own (PYTORCH_NO_CUDA_MEMORY_CACHING), so that memcheck sees its
end; outputs and intermediates are left as they are allocated, so that initcheck sees what is read
before it is written. Library products are computed in float32 there: cuBLAS's kernels for halves
store by bulk copies, which initcheck does not follow. Inputs are made on the host: no kernel but
ours and those of libraries runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.checks.sanitize_plans import Checked, covered, read
from benchmarks.report.provenance import commit
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.launch import library
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.verify.evaluate.labels import label_ranges

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_CAPABILITY = 90
# Taken where this version of the tool knows them.
_OPTIONS = (
    ("--destroy-on-device-error", "kernel"),
    ("--show-backtrace", "device"),
    ("--print-limit", "2000"),
    ("--launch-timeout", "120"),
)
_OPTIONS_OF = {"memcheck": (("--padding", "256"),)}
_LAUNCHING = "launching "
_DONE = "launched "


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that a tool complains about; ``kernel`` is empty where it names none."""

    plan: str
    kernel: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one tool said: ``ours`` are reports in emitted kernels, ``others`` all the rest."""

    tool: str
    launched: int
    failed: int
    ours: tuple[Report, ...]
    others: tuple[Report, ...]
    summary: str
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether it saw every plan and found nothing in our kernels."""
        return self.launched > 0 and not self.failed and not self.ours and bool(self.summary)


# -- launching, inside the checker ---------------------------------------------------------------


def launch_all(plans: Sequence[Checked], seconds: float, *, twice: bool) -> int:
    """Launch every plan once, or ``twice`` and compare; the number of those that went wrong.

    What has not begun after ``seconds`` is left out.
    """
    import torch

    started = time.monotonic()
    launched = failed = 0
    for checked in plans:
        if time.monotonic() - started > seconds:
            break
        print(f"{_LAUNCHING}{checked.name}", flush=True)
        launched += 1
        try:
            fault = _launch(checked, twice=twice)
        except Exception as error:  # noqa: BLE001
            # One kernel that the checker stopped must not hide the others.
            fault = f"{type(error).__name__}: {error}".splitlines()[0]
        if fault:
            failed += 1
            print(f"FAILED {checked.name}: {fault}", flush=True)
    torch.cuda.synchronize()
    print(
        f"{_DONE}{launched} of {len(plans)} plans, {failed} failed, "
        f"{time.monotonic() - started:.1f} s",
        flush=True,
    )
    return failed


@contextlib.contextmanager
def plainly_stored() -> Iterator[None]:
    """While it lasts, library products are computed in float32 and stored by a plain kernel."""
    import torch

    before = library.library_function

    def function_of(op: str) -> Callable[..., Any]:
        if op != "matmul":
            return before(op)

        def call(a: Any, b: Any, *, out: Any) -> None:
            # Kernels for float32 store without bulk copies; halves are exact in it.
            out.copy_(torch.matmul(a.float(), b.float()))

        return call

    library.library_function = function_of
    try:
        yield
    finally:
        library.library_function = before


def _launch(checked: Checked, *, twice: bool) -> str:
    import torch

    runner = PlanRunner(checked.plan)
    inputs = _inputs(checked.plan.ugraph.program)
    first = _outputs(runner, inputs)
    if not all(bool(torch.isfinite(x.float()).all()) for x in first):
        return "a result is not finite"
    adds = any(k.added_tensors for k in checked.plan.ugraph.kernels if isinstance(k, BlockGraph))
    if twice and not adds:
        again = _outputs(runner, inputs)
        if not all(torch.equal(a, b) for a, b in zip(first, again, strict=True)):
            return "two launches differ"
    return ""


def _outputs(runner: PlanRunner, inputs: Sequence[Any]) -> list[Any]:
    """On the host: what nobody wrote is found when it is copied."""
    got = runner(*inputs)
    return [x.cpu() for x in (got if isinstance(got, tuple) else (got,))]


def _inputs(program: Program) -> list[Any]:
    import torch

    labels = label_ranges(program)
    generator = torch.Generator().manual_seed(0)
    inputs = []
    for tensor in program.inputs:
        dtype = getattr(torch, tensor.dtype.torch_name)
        if tensor.dtype.is_float:
            values = 0.25 * torch.randn(tensor.shape, generator=generator)
        else:
            low, high = (0, 1) if tensor.dtype == BOOL else labels.get(tensor.name, (-8, 8))
            values = torch.randint(low, high + 1, tensor.shape, generator=generator)
        inputs.append(values.to(dtype).cuda())
    return inputs


# -- the checkers --------------------------------------------------------------------------------


def check(
    tool: str, arguments: Sequence[str], out: Path, names: Sequence[str], seconds: float
) -> Verdict:
    """Run one tool over the plans that ``arguments`` name, for at most about ``seconds``."""
    command = [
        *("compute-sanitizer", "--tool", tool, *_known_options(tool)),
        *(sys.executable, "-m", "benchmarks.checks.sanitize", *arguments, "--launch"),
        *("--seconds", str(seconds)),
        *(("--plain-stores",) if tool == "initcheck" else ()),
    ]
    log = out / f"{tool}.txt"
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        try:
            subprocess.run(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
                check=False,
                timeout=1.3 * seconds + 30,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            file.write(f"\n{error}\n")
    text = log.read_text(encoding="utf-8", errors="replace")
    return verdict(tool, text, names, time.monotonic() - started)


def _known_options(tool: str) -> Iterator[str]:
    """An option that a version does not know would end the run before it began."""
    try:
        done = subprocess.run(
            ["compute-sanitizer", "--help"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    for option in (*_OPTIONS, *_OPTIONS_OF.get(tool, ())):
        if option[0] in done.stdout:
            yield from option


def verdict(tool: str, log: str, names: Sequence[str], seconds: float) -> Verdict:
    """Read a tool's log; ``names`` are those of emitted kernels."""
    ours: list[Report] = []
    others: list[Report] = []
    for report in _reports(log, names):
        (ours if report.kernel else others).append(report)
    done = re.search(rf"^{_DONE}(\d+) of \d+ plans, (\d+) failed", log, re.MULTILINE)
    summaries = re.findall(r"^========= ((?:ERROR|RACECHECK) SUMMARY.*)$", log, re.MULTILINE)
    return Verdict(
        tool,
        int(done[1]) if done else log.count(f"\n{_LAUNCHING}"),
        int(done[2]) if done else 0,
        tuple(ours),
        tuple(others),
        "; ".join(summaries),
        round(seconds, 1),
    )


_NO_REPORT = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY")


def _reports(log: str, names: Sequence[str]) -> Iterator[Report]:
    """A report is a line behind the bar and the indented ones that follow."""
    known = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b") if names else None
    plan, lines = "", list[str]()

    def finished() -> Iterator[Report]:
        if lines:
            found = known.search("\n".join(lines)) if known else None
            yield Report(plan, found[0] if found else "", "\n".join(lines[:8]))
        lines.clear()

    for line in log.splitlines():
        if line.startswith(_LAUNCHING):
            yield from finished()
            plan = line.removeprefix(_LAUNCHING).strip()
        if not line.startswith("========="):
            continue
        text = line.removeprefix("=========")
        if text.startswith("     ") and lines:
            lines.append(text.strip())
            continue
        yield from finished()
        if text.strip() and not any(word in text for word in _NO_REPORT):
            lines.append(text.strip())
    yield from finished()


# -- the command ---------------------------------------------------------------------------------


def _compile(plans: Sequence[Checked], workers: int | None) -> list[Checked]:
    """Those that compile."""
    started = time.perf_counter()
    with CompilePool(workers) as pool:
        outcomes = pool.compile([c.plan for c in plans], _CAPABILITY)
    for checked, outcome in zip(plans, outcomes, strict=True):
        if not outcome.compiled:
            print(f"{checked.name} does not compile: {outcome.reason}")
    kernels = sum(len(o.facts) for o in outcomes)
    print(
        f"{len(plans)} plans, {kernels} kernels, {time.perf_counter() - started:.1f} s to compile",
        flush=True,
    )
    return [c for c, o in zip(plans, outcomes, strict=True) if o.compiled]


def _document(
    verdicts: Sequence[Verdict], plans: Sequence[Checked], commit: str
) -> dict[str, object]:
    version = subprocess.run(
        ["compute-sanitizer", "--version"], capture_output=True, text=True, check=False
    ).stdout
    return {
        "schema": 1,
        "command": "python -m benchmarks.checks.sanitize " + " ".join(sys.argv[1:]),
        "commit": commit,
        "sanitizer": version.strip().splitlines()[-1:],
        "plans": [c.name for c in plans],
        "forms": {
            form: [c.name for c in plans if form in c.forms]
            for form in dict.fromkeys(form for c in plans for form in c.forms)
        },
        "tools": [asdict(v) for v in verdicts],
    }


def main() -> int:
    """Compile, launch, check; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plans", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path())
    parser.add_argument("--dry-run", action="store_true", help="compile only")
    parser.add_argument("--launch", action="store_true", help="launch in this process, no checker")
    parser.add_argument(
        "--plain-stores", action="store_true", help="no bulk copies in library calls"
    )
    parser.add_argument("--without", default="", help="plans to leave out")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--only", default="", help="a part of a plan's name")
    parser.add_argument("--seconds", type=float, default=150.0, help="for each tool")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--commit", default="", help="the commit that is checked")
    chosen = parser.parse_args()
    plans = [c for c in read(chosen.plans) if chosen.only in c.name]
    # Tails first: should the time run out, they are the ones not to miss.
    plans.sort(key=lambda c: (c.variant != "tails", c.kind != "one kernel"))
    plans = [c for c in plans if c.name not in chosen.without.split(",")]
    if chosen.launch:
        with plainly_stored() if chosen.plain_stores else contextlib.nullcontext():
            return int(launch_all(plans, chosen.seconds, twice=False) > 0)
    compiled = _compile(plans, chosen.workers)
    if chosen.dry_run:
        return int(len(compiled) < len(plans))
    without = ",".join(c.name for c in plans if c not in compiled)
    failed = launch_all(compiled, chosen.seconds, twice=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    names = sorted({k.name for c in compiled for k in emit_kernels(c.plan)})
    tools = chosen.tools.split(",")
    arguments = [str(chosen.plans), f"--only={chosen.only}", f"--without={without}"]
    with ThreadPoolExecutor(len(tools)) as pool:
        verdicts = list(
            pool.map(lambda t: check(t, arguments, chosen.out, names, chosen.seconds), tools)
        )
    for v in verdicts:
        print(
            f"{v.tool:10s} {v.launched:4d} plans  {len(v.ours):4d} reports in our kernels  "
            f"{len(v.others):4d} elsewhere  {v.seconds:6.1f} s  {v.summary}"
        )
        for report in v.ours[:3]:
            print(f"    {report.plan}: {report.text.splitlines()[0]} ({report.kernel})")
    print("\n".join(covered(compiled)))
    text = json.dumps(_document(verdicts, compiled, commit(chosen.commit)), indent=1)
    (chosen.out / "summary.json").write_text(text + "\n", encoding="utf-8")
    return int(failed > 0 or not all(v.clean for v in verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
