"""compute-sanitizer beside the checker of emitted code, on a GPU: kernels as they are, and with
faults.

``python -m benchmarks.checks.code_sanitizer OUT.json [--kernels N] [--each N]`` needs a GPU of
compute capability 9.0, some minutes. Every text runs in a process of its own under racecheck,
memcheck and synccheck, since a fault may hang or break the GPU's context. Where a tool reports what
the checker calls clean, one of them is wrong, and the command ends with 1. The tools do not see all
that the checker does: no fences of proxies, no registers of products, and only the order that
happens.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.checks.code_faults import Named, kernels, measured_plans
from benchmarks.checks.planted_code import planted
from benchmarks.report.provenance import commit
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.runtime.launch.cuda_driver import cuda_driver
from mirage_py.runtime.launch.launch_cuda import Places, launcher

TOOLS = ("racecheck", "memcheck", "synccheck")
_MOST_EVENTS = 1_600
_TIMEOUT_S = 40
_PORTABLE_CLUSTER = 8
_BARS = "========="
_REPORTS = ("Error", "Warning", "Invalid", "Race", "Barrier", "Misaligned")


def launch(kernel: CudaKernel, text: str) -> None:
    """Launch a kernel, its code made of this PTX, on random numbers."""
    import torch

    places = {t.name: n for n, t in enumerate(kernel.pointers)}
    torch.manual_seed(0)
    memory = [_tensor(t) for t in kernel.pointers]
    driver = cuda_driver()
    driver.enter(0)
    function = driver.load(text.encode() + b"\0", kernel.name)
    if kernel.smem_bytes:
        driver.allow_smem(function, kernel.smem_bytes)
    if kernel.cluster > _PORTABLE_CLUSTER:
        driver.allow_any_cluster(function)
    maps = [(places[m.tensor], kernel.pointers[places[m.tensor]].dtype) for m in kernel.tensor_maps]
    action = launcher(kernel, driver, function, 0, Places(range(len(memory)), maps))
    action(memory, torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    print("launched", flush=True)


def _tensor(tensor: Any) -> Any:
    import torch

    steps = zip(tensor.shape, tensor.element_strides, strict=True)
    elements = 1 + sum((n - 1) * s for n, s in steps)
    kind = getattr(torch, tensor.dtype.torch_name)
    return (0.25 * torch.randn(elements)).to(kind).cuda()


def small_kernels() -> Iterator[Named]:
    """Those of the fastest measured plans."""
    for named in kernels(measured_plans()):
        if not named.name.startswith("causal"):
            yield named


def cases(count: int, each: int) -> Iterator[tuple[Named, str, str, str]]:
    """Kernel, kind of fault (empty: none), text, what the checker says."""
    left = count
    for named in small_kernels():
        report = named.checked(named.text)
        if not left or not report.clean or not 100 < report.events <= _MOST_EVENTS:
            continue
        left -= 1
        yield named, "", named.text, "clean"
        kinds: dict[str, list[str]] = {}
        for fault in planted(named.text):
            kinds.setdefault(fault.kind, []).append(fault.text)
        chosen = random.Random(left).sample(sorted(kinds), min(each, len(kinds)))
        for kind in chosen:
            text = random.Random(left).choice(kinds[kind])
            found = named.checked(text)
            yield named, kind, text, found.faults[0].kind if found.faults else "clean"


def sanitized(path: Path, tool: str) -> str:
    """What one tool says: nothing, its first report, or that the launch does not end."""
    module = "benchmarks.checks.code_sanitizer"
    command = ["compute-sanitizer", "--tool", tool, sys.executable, "-m", module]
    try:
        done = subprocess.run(
            [*command, "-", "--launch", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return "does not end"
    lines = [x for x in done.stdout.splitlines() if x.startswith(_BARS)]
    reports = [x.removeprefix(_BARS).strip() for x in lines]
    said = [x for x in reports if x.startswith(_REPORTS)]
    if said:
        return said[0][:120]
    last = (done.stderr.splitlines() or [""])[-1]
    return "" if "launched" in done.stdout else f"fails: {last[:90]}"


def compared(chosen: Sequence[tuple[Named, str, str, str]], workers: int) -> list[dict[str, Any]]:
    """A row for each text."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        waiting = []
        for n, (named, kind, text, ours) in enumerate(chosen):
            path = Path(folder) / f"{n}.ptx"
            path.write_text(text, encoding="utf-8")
            path.with_suffix(".kernel").write_bytes(pickle.dumps(named.kernel))
            tools = {t: pool.submit(sanitized, path, t) for t in TOOLS}
            waiting.append(({"kernel": named.name, "fault": kind, "checker": ours}, tools))
        for row, tools in waiting:
            rows.append(row | {tool: future.result() for tool, future in tools.items()})
            said = [f"{t}: {rows[-1][t]}" for t in TOOLS if rows[-1][t]] or ["nothing"]
            print(f"{row['kernel']:40s} {row['fault'] or '-':32s} {row['checker']:22s} {said[0]}")
    return rows


def main() -> int:
    """1 where a tool reports what the checker calls clean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernels", type=int, default=6)
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--launch", type=Path)
    asked = parser.parse_args()
    if asked.launch:
        kernel = pickle.loads(asked.launch.with_suffix(".kernel").read_bytes())
        launch(kernel, asked.launch.read_text(encoding="utf-8"))
        return 0
    rows = compared(tuple(cases(asked.kernels, asked.each)), asked.workers)
    faulty = [r for r in rows if r["checker"] != "clean"]
    both = [r for r in faulty if any(r[t] for t in TOOLS)]
    alone = [r for r in rows if r["checker"] == "clean" and any(r[t] for t in TOOLS)]
    print(f"{len(rows)} texts: the checker finds {len(faulty)}, the tools see {len(both)} of them;")
    print(f"of {len(rows) - len(faulty)} that it calls clean the tools report {len(alone)}")
    asked.out.write_text(
        json.dumps({"schema": 1, "commit": commit(), "rows": rows}, indent=1) + "\n",
        encoding="utf-8",
    )
    return int(bool(alone))


if __name__ == "__main__":
    raise SystemExit(main())
