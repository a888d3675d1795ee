"""The CPU cost of a cached call before its kernel runs, against a bare Triton launch in the same
process.

    python -m benchmarks.calibration.launch_overhead [-o OUT.json]

``table`` writes the rows of docs/how-to/torch_ops.md from such a file.

The kernel is so small that the processor that launches it is what is measured: thousands of calls
in a row, waited for once. Each row is a way to call it; all but the first and ``addresses known``
allocate their result. ``bare triton_op`` is the same kernel as an operator that torch makes, to be
compared with ``torch op``. Without a GPU the launch itself is left out: what remains is the Python
part of each way, in time of the thread.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import click
import torch

from benchmarks.report.provenance import commit
from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction
from mirage_py.frontend.superoptimized_module import SuperoptimizedModule
from mirage_py.frontend.torch.trace import trace
from mirage_py.reasons import Code, Reason
from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.eager.compiled import CompiledFunction
from mirage_py.runtime.launch import launch
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.launch.launch_triton import triton_launcher
from mirage_py.runtime.sized.sized_launch import SizedRunner
from mirage_py.runtime.store.artifact import OriginalProgram
from mirage_py.torch_ops.register import as_torch_op
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph

_CALLS = 2000
_REPEATS = 15
_ROWS, _COLUMNS = 32, 64
# The row that the others are compared with.
_FLOOR = "bare Triton launch"

Call = Callable[[], Any]


def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The function that is called."""
    return x * w


def plan_of(program: Program) -> Plan:
    """Blocks of 16 rows."""
    (output,) = program.outputs
    rows, _ = program.dim_names
    store = Node("store", (output.node,), Access(output.tensor.name, output.index),
                 program.dim_names)  # fmt: skip
    nodes = (*program.nodes, store)
    block = BlockGraph("scaled", (GridAxis(rows, 16),), nodes, (Section(tuple(range(len(nodes)))),))
    return Plan(UGraph(program, (block,)), (LaunchConfig(1),))


def ways(device: str) -> Iterator[tuple[str, Call]]:
    """Every way to call the kernel, the bare ones first where there is a GPU."""
    x = torch.randn(_ROWS, _COLUMNS, device=device).half()
    w = torch.randn(_COLUMNS, device=device).half()
    program = trace(scaled, x, w)
    plan = plan_of(program)
    sized_plan = with_run_time_sizes(plan, program.dim_names[:1])
    runner = PlanRunner(plan)
    if device == "cuda":
        yield from _bare(runner, x, w)
        sized = SizedRunner(sized_plan)
    else:
        runner._launches[None] = (lambda memory, stream: None,)  # type: ignore[index]  # noqa: SLF001
        sized = SizedRunner(sized_plan, lambda *_: lambda *_: None)
    yield "function itself", lambda: scaled(x, w)
    yield "loaded artifact", lambda: runner(x, w)
    yield "decorated function", _decorated(runner, x, w)
    yield "loaded artifact, size at run time", lambda: sized(x, w)
    dynamic = SuperoptimizedFunction(
        scaled, CallOptions(dynamic={"x": {0: "rows"}}), lambda *_: runner, lambda *_: sized
    )
    yield "decorated function, size at run time", lambda: dynamic(x, w)
    yield from _originals(runner, x, w)
    if device == "cuda":
        op = as_torch_op("mirage_py_benchmarks::scaled", program, plan).default
        yield "torch op", lambda: op(x, w)
        sized_op = as_torch_op("mirage_py_benchmarks::sized", program, sized_plan).default
        yield "torch op, size at run time", lambda: sized_op(x, w)
        compiled = PlanRunner(replace(plan, backend="cuda"))
        yield "loaded artifact, CUDA", lambda: compiled(x, w)
        yield "decorated function, CUDA", _decorated(compiled, x, w)


def _decorated(runner: PlanRunner, x: torch.Tensor, w: torch.Tensor) -> Call:
    function = SuperoptimizedFunction(scaled, CallOptions(), lambda *_: runner)
    return lambda: function(x, w)


def _originals(runner: PlanRunner, x: torch.Tensor, w: torch.Tensor) -> Iterator[tuple[str, Call]]:
    """A module, and a function that torch.compile or eager serves. What is compiled is the graph as
    it is: Inductor's own code is not this repository's.
    """

    def as_it_is(module: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        return module.forward

    module = SuperoptimizedModule(_Scaled(w), CallOptions(), lambda *_: runner)
    yield "decorated module", lambda: module(x)
    compiled = CompiledFunction(scaled, backend=as_it_is)
    yield "torch.compile, without Inductor", lambda: compiled(x, w)
    for by, name in (("compile", "torch.compile"), ("eager", "eager")):
        held = {"baseline": by, **Reason(Code.NONE_VERIFIED).document()}
        kernel = OriginalProgram({"eager": scaled, "compile": compiled}, {"served": held})
        served = SuperoptimizedFunction(scaled, CallOptions(), lambda *_, kernel=kernel: kernel)
        yield f"decorated function, served by {name}", lambda served=served: served(x, w)


class _Scaled(torch.nn.Module):
    def __init__(self, w: torch.Tensor) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(w, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(x, self.w)


def _bare(runner: PlanRunner, x: torch.Tensor, w: torch.Tensor) -> Iterator[tuple[str, Call]]:
    (kernel,) = runner.steps
    assert isinstance(kernel, TritonKernel)
    function = getattr(load_module(kernel.source, kernel.name), kernel.name)
    names = {x.dim(): x, w.dim(): w}
    out = torch.empty_like(x)
    grid, warps = (kernel.text.grid,), kernel.options.num_warps
    written = kernel.pointers[-1].name

    def arguments(result: torch.Tensor) -> list[torch.Tensor]:
        return [result if t.name == written else names[len(t.shape)] for t in kernel.pointers]

    def through_torch(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        given = {2: x, 1: w}
        result = torch.empty_like(x)
        launch = torch.library.wrap_triton(function)[grid]
        launch(*(result if t.name == written else given[len(t.shape)] for t in kernel.pointers),
               num_warps=warps)  # fmt: skip
        return result

    through_torch.__annotations__ = dict.fromkeys(("x", "w", "return"), torch.Tensor)
    held = arguments(out)
    yield _FLOOR, lambda: function[grid](*held, num_warps=warps)
    yield (
        "bare Triton launch and its result",
        lambda: function[grid](*arguments(torch.empty_like(x)), num_warps=warps),
    )
    torch.library.triton_op("mirage_py_benchmarks::bare", through_torch, mutates_args=())
    op = torch.ops.mirage_py_benchmarks.bare.default
    yield "bare triton_op", lambda: op(x, w)
    start = triton_launcher(kernel, (), x.device.index)
    addresses = [t.data_ptr() for t in held]
    yield "compiled Triton kernel, addresses known", lambda: start(grid[0], 0, addresses)


def measured(call: Call, *, on_gpu: bool) -> dict[str, float]:
    """Microseconds of one call: the median and the least of the repeats."""
    clock = time.perf_counter if on_gpu else time.thread_time
    for _ in range(100):
        call()
    found = []
    for _ in range(_REPEATS):
        if on_gpu:
            torch.cuda.synchronize()
        start = clock()
        for _ in range(_CALLS):
            call()
        # The queue is not waited for: launches that fill it would be those of the GPU.
        found.append((clock() - start) / _CALLS * 1e6)
    return {"median_us": round(statistics.median(found), 3), "least_us": round(min(found), 3)}


@contextlib.contextmanager
def fake_driver(on_gpu: bool) -> Iterator[None]:
    """Without a GPU: what the launcher asks of one answers at once."""
    if on_gpu:
        yield
        return
    nothing, nowhere = (lambda *_: None), (lambda: lambda _: 0)  # quicker than mocks
    with (
        mock.patch.object(launch, "check_device", nothing),
        mock.patch.object(launch, "stream_function", nowhere),
        mock.patch.object(torch.cuda, "current_device", nothing),
    ):
        yield


def table(document: Mapping[str, Any]) -> str:
    """The rows of a file as a table in Markdown, beside the bare Triton launch."""
    floor = document["rows"][_FLOOR]["median_us"]
    rows = [
        f"| {name} | {row['median_us']:.1f} | {row['median_us'] - floor:+.1f} |"
        for name, row in document["rows"].items()
    ]
    return "\n".join(["| a call by way of | us | beside the first |", "|---|---|---|", *rows])


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a JSON file.")
def main(output: Path | None) -> None:
    """Measure every way and print them, with what each takes more than a bare launch."""
    on_gpu = torch.cuda.is_available()
    rows: dict[str, dict[str, float]] = {}
    with fake_driver(on_gpu), torch.no_grad():
        for name, call in ways("cuda" if on_gpu else "cpu"):
            rows[name] = measured(call, on_gpu=on_gpu)
    floor = rows.get(_FLOOR, {}).get("median_us")
    for name, row in rows.items():
        more = "" if floor is None else f"  {row['median_us'] - floor:+7.2f} us"
        print(f"{name:40s} {row['median_us']:7.2f} us{more}")
    if output is not None:
        machine = torch.cuda.get_device_name() if on_gpu else "no GPU: the Python part alone"
        document = {
            "schema": 1,
            "commit": commit(),
            "machine": machine,
            "torch": torch.__version__,
            "rows": rows,
        }
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
