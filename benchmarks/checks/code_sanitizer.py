"""compute-sanitizer against the checker of emitted code, on a GPU: kernels with and without planted
faults.

``python -m benchmarks.checks.code_sanitizer OUT.json [--backend triton] [--kernels N] [--each N]``
needs a GPU of compute capability 9.0, some minutes. Kernels of Triton with tensor descriptors are
left out. Every text runs in a process of its own under racecheck,
memcheck and synccheck, since a fault may hang or break the GPU's context. Where a tool reports what
the checker calls clean, one of them is wrong, and the command ends with 1. The tools do not see all
that the checker does: no fences of proxies, no registers of products, and only the order that
happens.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.checks.code_faults import Named, faults_of, kernels, measured_plans
from benchmarks.report.provenance import commit
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.runtime.code_check.ptx.ptx import parse
from mirage_py.runtime.launch.cuda_driver import CudaDriver, cuda_driver
from mirage_py.runtime.launch.launch_cuda import ConfiguredLaunch, Places, launcher
from mirage_py.ugraph.ir.program import Tensor

TOOLS = ("racecheck", "memcheck", "synccheck")
_MOST_EVENTS = 1_600
_TIMEOUT_S = 40
_PORTABLE_CLUSTER = 8
_BARS = "========="
_REPORTS = ("Error", "Warning", "Invalid", "Race", "Barrier", "Misaligned")


@dataclass(frozen=True, slots=True)
class TritonLaunch:
    """A kernel of Triton as the driver launches it: behind its tensors, ``parameters`` counts them
    all, come pointers to scratch memory, which it does not use.
    """

    name: str
    pointers: tuple[Tensor, ...]
    blocks: int
    threads: int
    smem_bytes: int
    parameters: int


def launch_of(named: Named) -> CudaKernel | TritonLaunch:
    """What a process needs to launch it."""
    kernel = named.kernel
    if isinstance(kernel, CudaKernel):
        return kernel
    known, count = named.launch(named.text), len(parse(named.text, kernel.name).parameters)
    shape = known.blocks, known.threads, known.smem_bytes
    return TritonLaunch(kernel.name, tuple(kernel.pointers), *shape, count)


def launch(kernel: CudaKernel | TritonLaunch, text: str) -> None:
    """Launch a kernel, its code made of this PTX, on random numbers."""
    import torch

    torch.manual_seed(0)
    memory = [_tensor(t) for t in kernel.pointers]
    driver = cuda_driver()
    driver.enter(0)
    function = driver.load(text.encode() + b"\0", kernel.name)
    if kernel.smem_bytes:
        driver.allow_smem(function, kernel.smem_bytes)
    stream = torch.cuda.current_stream().cuda_stream
    if isinstance(kernel, TritonLaunch):
        values = (ctypes.c_uint64 * kernel.parameters)(*(t.data_ptr() for t in memory))
        first = ctypes.addressof(values)
        places = (ctypes.c_void_p * kernel.parameters)()
        places[:] = [first + 8 * n for n in range(kernel.parameters)]
        shape = (kernel.blocks, 1, 1, kernel.threads, 1, 1, kernel.smem_bytes)
        start = ConfiguredLaunch(driver, function, shape, ctypes.addressof(places), uses_pdl=False)
        if status := start(stream):
            raise SystemExit(f"the launch fails: {driver.words(status)}")
    else:
        _launch_cuda(kernel, driver, function, memory, stream)
    torch.cuda.synchronize()
    print("launched", flush=True)


def _launch_cuda(
    kernel: CudaKernel, driver: CudaDriver, function: int, memory: list[Any], stream: int
) -> None:
    if kernel.cluster > _PORTABLE_CLUSTER:
        driver.allow_any_cluster(function)
    places = {t.name: n for n, t in enumerate(kernel.pointers)}
    maps = [(places[m.tensor], kernel.pointers[places[m.tensor]].dtype) for m in kernel.tensor_maps]
    launcher(kernel, driver, function, 0, Places(range(len(memory)), maps))(memory, stream)


def _tensor(tensor: Any) -> Any:
    import torch

    steps = zip(tensor.shape, tensor.element_strides, strict=True)
    elements = 1 + sum((n - 1) * s for n, s in steps)
    kind = getattr(torch, tensor.dtype.torch_name)
    return (0.25 * torch.randn(elements)).to(kind).cuda()


def small_kernels(backend: str) -> Iterator[Named]:
    """Those of the fastest measured plans."""
    for named in kernels(measured_plans(backend)):
        kernel = named.kernel
        described = isinstance(kernel, TritonKernel) and kernel.text.tiles
        if not named.name.startswith("causal") and not described:
            yield named


def cases(backend: str, count: int, each: int) -> Iterator[tuple[Named, str, str, str]]:
    """Kernel, kind of fault (empty: none), text, what the checker says."""
    left = count
    for named in small_kernels(backend):
        report = named.checked(named.text)
        if not left or not report.clean or not 100 < report.events <= _MOST_EVENTS:
            continue
        left -= 1
        yield named, "", named.text, "clean"
        kinds: dict[str, list[str]] = {}
        for fault in faults_of(named):
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
            path.with_suffix(".kernel").write_bytes(pickle.dumps(launch_of(named)))
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
    parser.add_argument("--backend", choices=("cuda", "triton"), default="cuda")
    parser.add_argument("--kernels", type=int, default=6)
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--launch", type=Path)
    asked = parser.parse_args()
    if asked.launch:
        kernel = pickle.loads(asked.launch.with_suffix(".kernel").read_bytes())
        launch(kernel, asked.launch.read_text(encoding="utf-8"))
        return 0
    rows = compared(tuple(cases(asked.backend, asked.kernels, asked.each)), asked.workers)
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
