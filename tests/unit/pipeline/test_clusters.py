"""Kernels that combine parts in a cluster, through verification."""

from __future__ import annotations

import clusters
import pytest

from mirage_py.axioms.proof.prove import prove
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.reduced import reduced
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.samples.sampled_test import sampled_test
from mirage_py.verify.sizes.shrink import shrink_ugraph

CASES = {
    "attention": (clusters.attention_program(), clusters.cluster_attention(parts=8)),
    "causal attention": (
        clusters.attention_program(causal=True),
        clusters.cluster_attention(causal=True),
    ),
    "rms_norm_matmul": (
        clusters.rms_norm_matmul_program(),
        clusters.cluster_rms_norm_matmul(parts=16),
    ),
    "lora": (clusters.lora_program(), clusters.cluster_lora()),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_in_the_field(name):
    program, plan = CASES[name]
    assert field_test(normalise(program), plan.ugraph, trials=2, seed=1).require().equal


@pytest.mark.parametrize("name", CASES)
def test_families_are_equal_in_the_field(name):
    program, plan = CASES[name]
    family = shrink_ugraph(plan.ugraph, {})
    assert family.kernels[0].cluster_dims == plan.ugraph.kernels[0].cluster_dims
    assert all(axis.tile is None for axis in family.kernels[0].grid)
    assert field_test(normalise(program), family, trials=2, seed=1).require().equal


@pytest.mark.parametrize("name", CASES)
def test_equal_at_real_sizes(name):
    program, plan = CASES[name]
    evidence = sampled_test(normalise(program), plan.ugraph, samples=3, seed=0).require()
    assert evidence.samples == 3
    assert not evidence.skipped


@pytest.mark.parametrize("name", CASES)
def test_the_laws_lead_there(name):
    program, plan = CASES[name]
    assert prove(normalise(program), plan.ugraph) is not None


@pytest.mark.parametrize("name", CASES)
def test_at_a_reduced_size_all_blocks_of_the_cluster_are_there(name):
    program, plan = CASES[name]
    small, reduced_plan = reduced(program, plan)
    validate_ugraph(reduced_plan.ugraph)
    assert reduced_plan.backend == "cuda"
    (dim,) = plan.ugraph.kernels[0].cluster_dims
    assert small.sizes[dim] == plan.ugraph.program.sizes[dim]
    assert small.dims == reduced_plan.ugraph.program.dims
