"""Products of warp groups, tiles by the copy engine, a warp that fetches: sm_90a alone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cuda_plans import for_cuda, kernel_of, planned
from plans import attention_plan, rms_plan

from mirage_py.codegen.cuda.analysis.warp_roles import WarpRoles
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, F16
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph
from mirage_py.ugraph.text.json_form import from_json, to_json

PIPELINED = {"producer": "warps", "overlap": "on"}
ACROSS = {"producer": "warps", "overlap": "across"}


def for_hopper(plan: Plan, warps: int = 4, stages: int = 2, **flags: str) -> Plan:
    return for_cuda(plan, num_warps=warps, num_stages=stages, **{"arch": "sm_90a"} | flags)


def rows_of_keys(plan: Plan) -> Plan:
    """The same attention with keys row by row, in bfloat16."""

    def changed(x: object) -> object:
        if isinstance(x, dict):
            if x.get("name") == "K" and "shape" in x:
                h, d, s = x["shape"]
                x = {**x, "shape": [h, s, d]}
            return {k: changed(v) for k, v in x.items()}
        if isinstance(x, list):
            return [changed(v) for v in x]
        return {"K[h, d, s]": "K[h, s, d]", "f16": "bf16"}.get(x, x) if isinstance(x, str) else x

    found = from_json(changed(to_json(plan)))
    assert isinstance(found, Plan)
    return found


def gated_plan(b: int, d: int, n: int) -> Plan:
    """Y = (X @ W1) * (X @ W2), tiles of 64 along every dimension."""
    builder = ProgramBuilder("gated")
    for name, size in (("b", b), ("d", d), ("n", n)):
        builder.dim(name, size)
    for name, shape in (("X", (b, d)), ("W1", (d, n)), ("W2", (d, n))):
        builder.input(name, shape, F16)
    x = builder.load("X", ("b", "d"))
    weights = [builder.load(w, ("d", "n")) for w in ("W1", "W2")]
    one, two = (builder.sum(builder.apply("mul", x, w), ("d",)) for w in weights)
    builder.output("Y", builder.apply("mul", one, two), ("b", "n"), F16)
    program, bn = builder.build(), ("b", "n")
    b_, d_, n_ = (ix.dim(name) for name in ("b", "d", "n"))
    nodes = (
        Node("load", (), Access("X", (b_, d_)), ("b", "d")),
        Node("load", (), Access("W1", (d_, n_)), ("d", "n")),
        Node("load", (), Access("W2", (d_, n_)), ("d", "n")),
        Node("matmul", (0, 1), ("d",), bn),
        Node("accum_sum", (3,), None, bn),
        Node("matmul", (0, 2), ("d",), bn),
        Node("accum_sum", (5,), None, bn),
        Node("mul", (4, 6), None, bn),
        Node("store", (7,), Access("Y", (b_, n_)), bn),
    )
    sections = (Section((0, 1, 2, 3, 4, 5, 6), "d", 64), Section((7, 8)))
    block = BlockGraph("gated", (GridAxis("b", 64), GridAxis("n", 64)), nodes, sections)
    return Plan(UGraph(program, (block,), ()), (LaunchConfig(4, (3,)),))


ATTENTION = attention_plan(1, 70, 328, 64, tiles=(64, 64))
CASES = {
    "cp.async": for_hopper(ATTENTION),
    "copy engine": for_hopper(ATTENTION, stages=3, copies="descriptors", overlap="on"),
    "producer, keys in rows": for_hopper(rows_of_keys(ATTENTION), **PIPELINED),
    "two groups": for_hopper(attention_plan(1, 128, 192, 64, (128, 64)), 8, 2, **PIPELINED),
    "two groups, across": for_hopper(attention_plan(1, 128, 192, 64, (128, 64)), 8, 2, **ACROSS),
    "gated": for_hopper(gated_plan(70, 328, 72), stages=3, **PIPELINED),
    "epilogue": for_hopper(rms_plan(70, 200, 80, (64, 64, 64), BF16), copies="descriptors"),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_float64(name: str) -> None:
    plan = CASES[name]
    assert "wgmma_m64" in kernel_of(plan).body
    judged = check_emulated(plan.ugraph.program, plan, seed=3)
    assert judged.passed, judged.reason


def test_warps_alone_where_rows_are_few_or_asked_for():
    few = for_hopper(attention_plan(1, 32, 64, 64, (32, 64)))
    for plan in (few, for_hopper(ATTENTION, products="mma"), for_hopper(ATTENTION, arch="sm_80")):
        assert [m.uses_wgmma for m in planned(plan).layouts.mmas.values()] == [False, False]


def test_what_cp_async_brought_is_published_before_tensor_cores_read_it():
    body = kernel_of(CASES["cp.async"]).body
    assert re.search(r"cp_async_wait<0>\(\);\s*fence_async_shared\(\);\s*__syncthreads", body)


def test_boxes_of_the_copy_engine():
    plan = planned(CASES["copy engine"])
    boxes = {plan.facts.block.nodes[n].access.tensor: n for n in plan.pipeline.boxes}
    assert set(boxes) == {"K", "V"}
    assert plan.pipeline.boxes[boxes["K"]].points[:2] == (64, 64)
    assert plan.staged[boxes["K"]].tile.swizzle_bytes == 128
    maps = {m.tensor: m for m in kernel_of(CASES["copy engine"]).tensor_maps}
    assert maps["K"].box[:2] == (64, 64)
    assert maps["K"].swizzle_bytes == 128


def test_a_loop_with_rows_that_the_copy_engine_cannot_reach_goes_by_cp_async():
    plan = for_hopper(rms_plan(70, 200, 33, (64, 64, 64)), copies="descriptors")
    assert {m.tensor for m in kernel_of(plan).tensor_maps} == {"X"}


def test_a_producer_and_who_meets():
    four = kernel_of(for_hopper(ATTENTION, **PIPELINED))
    assert four.threads == 160
    behind = four.body[four.body.index("return;") :]
    assert "__syncthreads" not in behind
    assert planned(CASES["two groups"]).pipeline.roles == WarpRoles(8, has_producer=True)
    eight = kernel_of(CASES["two groups"])
    assert eight.threads == 384
    assert "registers_decrease<40>" in eight.body
    assert "__launch_bounds__(384, 1)" in eight.body


def test_registers_of_warp_roles() -> None:
    """An SM has 65,536, which it gives in eights."""
    assert WarpRoles(4, has_producer=True).registers is None
    assert WarpRoles(4, True, has_work=True).registers == (40, 216)
    assert WarpRoles(8, has_producer=True).registers == (40, 232)
    assert WarpRoles(12, has_producer=True).registers == (24, 160)
    assert WarpRoles(12).registers is None
    assert [WarpRoles(8, p).threads for p in (False, True)] == [256, 384]
    assert WarpRoles(4, True).threads == 160


def test_the_text_of_an_overlapped_kernel(golden) -> None:  # type: ignore[no-untyped-def]
    golden.check(
        kernel_of(CASES["producer, keys in rows"]).body, "cuda/overlapped_attention.cu.txt"
    )


def test_the_text_of_a_kernel_by_the_copy_engine(golden) -> None:  # type: ignore[no-untyped-def]
    golden.check(kernel_of(CASES["epilogue"]).body, "cuda/rmsnorm_by_copy_engine.cu.txt")


def test_sums_of_products_are_under_way_from_one_iteration_to_the_next():
    body = kernel_of(CASES["gated"]).body
    assert "wgmma_wait<2>" in body
    assert (
        body.index("wgmma_wait<2>") < body.index("mbarrier_arrive(") < body.index("wgmma_wait<0>")
    )


def test_late_products_are_waited_for_at_the_head_of_the_next_iteration():
    """ptxas moves a wait up inside of straight code, in front of the exponentials."""
    body = kernel_of(CASES["two groups, across"]).body
    loop = body[body.index("for (int s_start = 64") :]
    head = loop[: loop.index("wgmma_fence")]
    assert head.index("wgmma_wait<0>") < head.index("pack_f16") < head.index("mbarrier_wait(")
    between = loop[loop.index("wgmma_wait<1>") : loop.index("The products of the last")]
    assert "exp2_fast" in between
    assert "wgmma_wait<0>" not in between
    assert "pack_f16" not in between


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_products_run_side_by_side(tmp_path: Path) -> None:
    """ptxas says so where it makes them wait for one another (C7510 and its neighbours)."""
    for number, name in enumerate(("copy engine", "two groups", "two groups, across", "gated")):
        file = tmp_path / f"{number}.cu"
        file.write_text(kernel_of(CASES[name]).source)
        code = "-gencode=arch=compute_90a,code=sm_90a"
        command = ["nvcc", code, "-cubin", "-Werror=all-warnings", "-Xptxas", "-v", str(file)]
        done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "C75" not in done.stderr
        assert " 0 bytes spill stores" in done.stderr
