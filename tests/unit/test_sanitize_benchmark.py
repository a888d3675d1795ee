"""The input of a memory checker, and the parser of its output."""

from __future__ import annotations

from dataclasses import replace

import pytest
import several_kernels
import torch
from clusters import cluster_attention
from plans import rms_plan

from benchmarks.checks import sanitize_plans
from benchmarks.checks.kernel_forms import with_other_texts
from benchmarks.checks.sanitize import plainly_stored, verdict
from benchmarks.checks.sanitize_plans import (
    VARIANTS,
    Checked,
    at_size,
    covered,
    examples,
    other_texts,
    read,
    write,
)
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.launch import library
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# As compute-sanitizer 2025.3 prints it, between lines of the program under it.
LOG = """
========= COMPUTE-SANITIZER
launching softmax/one_kernel/tails
========= Invalid __global__ read of size 2 bytes
=========     at softmax+0x1a0 in softmax.py:31
=========     by thread (96,0,0) in block (2,0,0)
=========     Access at 0x7f0 is out of bounds
=========
launching lora/library/tails
========= Error: Race reported between Write access at ampere_h16816gemm+0x10
=========     and Read access at ampere_h16816gemm+0x40 [16 hazards]
=========
FAILED lora/library/tails: RuntimeError: CUDA error
launched 2 of 3 plans, 1 failed, 4.0 s
========= ERROR SUMMARY: 2 errors
"""


def test_reports_are_told_apart_by_kernel():
    found = verdict("memcheck", LOG, ["softmax", "lora_last"], 4.0)
    assert (found.launched, found.failed, found.summary) == (2, 1, "ERROR SUMMARY: 2 errors")
    (ours,), (other,) = found.ours, found.others
    assert (ours.plan, ours.kernel) == ("softmax/one_kernel/tails", "softmax")
    assert ours.text.splitlines()[-1] == "Access at 0x7f0 is out of bounds"
    assert other.text.startswith("Error: Race reported")
    assert not found.clean


def test_a_run_that_says_nothing_is_not_clean():
    quiet = "launched 2 of 2 plans, 0 failed, 4.0 s\n========= ERROR SUMMARY: 0 errors\n"
    assert verdict("memcheck", quiet, ["softmax"], 1.0).clean
    assert not verdict("memcheck", "Killed\n", ["softmax"], 1.0).clean
    assert not verdict("memcheck", quiet.splitlines()[0], ["softmax"], 1.0).clean


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", [*several_kernels.NAMES, "rms"])
def test_small_sizes_keep_the_tiles(name, variant):
    plan = rms_plan(64, 4096, 512) if name == "rms" else several_kernels.plan(name)
    small = at_size(plan, variant)
    assert [k.source.count("tl.load") for k in emit_kernels(small)] == [
        k.source.count("tl.load") for k in emit_kernels(plan)
    ]
    sizes, before = small.ugraph.program.sizes, plan.ugraph.program.sizes
    assert all(sizes[d] <= before[d] for d in before)


def test_tails_leave_no_dimension_as_it_was():
    plan = rms_plan(64, 4096, 512)
    sizes = at_size(plan, "tails").ugraph.program.sizes
    assert dict(sizes) == {"b": 41, "d": 353, "n": 81}
    assert dict(at_size(plan, "whole").ugraph.program.sizes) == {"b": 32, "d": 320, "n": 64}


def test_plans_are_read_as_they_were_written(tmp_path):
    kept = Checked("rms", "one kernel", "tails", at_size(rms_plan(), "tails"), ("producer",))
    write([kept], tmp_path / "rms.json")
    assert list(read(tmp_path)) == [kept]
    assert kept.name == "rms/one_kernel/tails"
    assert kept.plan.options == (LaunchConfig(4, (3, 3)),)


def test_library_products_are_stored_plainly_while_they_have_to_be():
    before = library.library_function
    with plainly_stored():
        out = torch.empty(2, 2).half()
        library.library_function("matmul")(
            torch.ones(2, 3).half(), torch.ones(3, 2).half(), out=out
        )
        assert out.tolist() == [[3.0, 3.0], [3.0, 3.0]]
        assert library.library_function is not before
    assert library.library_function is before


def test_every_example_is_looked_at():
    assert {"softmax", "transformer_block"} <= {p.stem for p in examples()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_clusters_keep_a_number_of_blocks_that_can_be_one(variant):
    plan = cluster_attention(rows=128, keys=4096, parts=8, tiles=(64, 64, 64))
    small = at_size(plan, variant)
    (kernel,) = emit_kernels(small)
    assert kernel.cluster == 4
    assert small.ugraph.program.sizes["s_part"] == 4
    is_odd = small.ugraph.program.sizes["s"] % 64 > 0
    assert is_odd == (variant == "tails")


def test_what_is_covered_names_a_plan_of_each_example():
    plan = rms_plan()
    rows = [("rms", "one kernel"), ("rms", "split"), ("lora", "split")]
    checked = [Checked(name, kind, "whole", plan, ("producer",)) for name, kind in rows]
    (line,) = covered([*checked, Checked("rms", "library", "whole", plan)])
    assert line.split("plans")[0].split() == ["producer", "3"]
    assert line.endswith("lora/split/whole, rms/one_kernel/whole")


def test_texts_are_different_and_details_few(monkeypatch):
    monkeypatch.setattr(sanitize_plans, "VARIANTS", ("whole",))
    monkeypatch.setattr(sanitize_plans, "_EACH", 1)
    plan = replace(rms_plan(64, 256, 128, (64, 64, 64)), backend="cuda")
    one, other = (
        replace(plan, options=(LaunchConfig(n, (3, 3)).with_flag("arch", "sm_90a"),))
        for n in (4, 8)
    )
    checked = list(other_texts("rms", {"one": one, "again": one, "other": other}))
    kinds = [c.kind for c in checked]
    assert {"one producer", "one stay", "other producer"} <= set(kinds)
    assert "other stay" not in kinds
    assert not any(kind.startswith("again") for kind in kinds)
    assert "blocks that stay" in checked[kinds.index("one stay")].forms


def test_a_cuda_plan_comes_with_its_other_texts():
    plan = rms_plan(64, 256, 128, (64, 64, 64))
    assert list(with_other_texts(plan)) == []
    cuda = replace(plan, backend="cuda", options=(plan.options[0].with_flag("arch", "sm_90a"),))
    found = dict(with_other_texts(cuda))
    texts = [k.source for p in (cuda, *found.values()) for k in emit_kernels(p)]
    assert {"engine", "producer"} <= set(found)
    assert "plain copies" not in found
    assert len(set(texts)) == len(texts)
