"""Families whose splits are combined in clusters: found, and verified like all others."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import clusters
import pytest
import several_kernels
from oracles.known_forms.registry import forms_of, forms_of_ugraph
from unit.search.kernels import FACTORED, block_of, of_kind

from mirage_py.axioms.proof.prove import prove
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.clusters.clusters import clustered, in_a_cluster, without_cluster
from mirage_py.search.enumerate.family_tables import families_from_json, families_to_json
from mirage_py.search.enumerate.search import SearchResult, search
from mirage_py.search.extract.family import ATOMIC, CLUSTER, SPLIT
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.operators import REDUCE, operator
from mirage_py.ugraph.text.text_form import format_ugraph
from mirage_py.verify.field_test.families import FamilyTests

LIMITS = replace(FACTORED, max_cluster_blocks=16)
PROGRAMS = {
    "attention": clusters.attention_program(),
    "rms_norm_matmul": clusters.rms_norm_matmul_program(),
    "lora": clusters.lora_program(),
}


@cache
def found(name: str) -> SearchResult:
    return search(normalise(PROGRAMS[name]), limits=LIMITS)


# -- families --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_has_some_and_each_is_a_split_one(name):
    families = of_kind(found(name), CLUSTER)
    assert families
    assert {clustered(f).ugraph.digest for f in of_kind(found(name), SPLIT) if clustered(f)} == {
        f.ugraph.digest for f in families
    }
    for family in families:
        validate_ugraph(family.ugraph)
        block = block_of(family)
        assert len(block.cluster_dims) == 1
        assert not family.ugraph.intermediates
        assert len(family.origins) == 2
        ending = [block.nodes[n] for n in block.sections[-1].nodes]
        reduced = [n for n in ending if operator(n.op).kind == REDUCE]
        assert any(d in n.reduced for n in reduced for d in block.cluster_dims)


def test_without_clusters_there_are_none():
    assert not of_kind(search(normalise(PROGRAMS["lora"]), limits=FACTORED), CLUSTER)


def test_what_blocks_added_in_memory_clusters_add_up():
    families = found("lora")
    assert of_kind(families, ATOMIC)
    sums = [
        [n.op for n in block_of(f).nodes if n.op == "store_add"] for f in of_kind(families, CLUSTER)
    ]
    assert not any(sums)


def test_forms_have_names():
    attention = [forms_of(f) for f in of_kind(found("attention"), CLUSTER)]
    assert any("split-KV attention in a cluster" in names for names in attention)
    assert not any("split-K in a cluster" in names for names in attention)
    for family in of_kind(found("rms_norm_matmul"), CLUSTER):
        assert "split-K in a cluster" in forms_of(family)
    assert "split-KV attention in a cluster" in forms_of_ugraph(clusters.cluster_attention().ugraph)
    assert not any("cluster" in form for f in of_kind(found("lora"), SPLIT) for form in forms_of(f))


def test_tables_keep_the_axes():
    families = found("attention").families
    again = families_from_json(families_to_json(families), "here", validated=False)
    assert [f.ugraph for f in again] == [f.ugraph for f in families]


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_are_equal_in_the_field_and_by_the_laws(name):
    program = normalise(PROGRAMS[name])
    tests = FamilyTests(program, trials=1, seed=0)
    stable = [stabilized(f.ugraph) for f in of_kind(found(name), CLUSTER)]
    assert not any(s.faults for s in stable)
    graphs = [s.ugraph for s in stable]
    for graph in graphs[:4]:
        assert tests.run(graph).require().equal
    assert prove(program, graphs[0]) is not None


# -- the rewrite -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["split_rms_norm_matmul", "split_attention", "split_causal_attention"]
)
def test_hand_made_kernels_come_together_and_apart(name):
    program, graph = several_kernels.program(name), several_kernels.ugraph(name)
    joined = in_a_cluster(graph)
    validate_ugraph(joined)
    tests = FamilyTests(normalise(program), trials=1, seed=0)
    assert tests.run(joined).require().equal
    two = without_cluster(joined)
    validate_ugraph(two)
    assert in_a_cluster(two).kernels[0].nodes == joined.kernels[0].nodes


def test_the_maxima_of_parts_are_stabilised():
    (one, *_) = of_kind(found("attention"), CLUSTER)
    text = format_ugraph(stabilized(one.ugraph).ugraph)
    assert "max[s_part]" in text
    assert not stabilized(one.ugraph).faults


def test_a_loop_over_the_parts_is_straightened():
    looped = (
        several_kernels.ATTENTION_KERNELS.split("kernel combine")[0]
        + """
kernel combine {
  grid q by 8, h by 1
  loop s_part by 2 {
    %0 = load M[s_part, h, q]
    %1 = max[s_part] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = load L[s_part, h, q]
    %6 = mul %5, %4
    %7 = sum[s_part] %6
    %8 = accum_rescaled[1] %7, %2
    %9 = load A[s_part, h, q, e]
    %10 = matmul[s_part] %9, %4
    %11 = accum_rescaled[1] %10, %2
  }
  %12 = div %11, %8
  store O[h, q, e] = %12
}
"""
    )
    program = several_kernels.program("split_attention")
    graph = several_kernels.over(several_kernels.ugraph("split_attention").program, looped)
    validate_ugraph(graph)
    joined = in_a_cluster(graph)
    assert [s.loop for s in joined.kernels[0].sections] == [None, "s", None]
    assert "matmul[s_part]" not in format_ugraph(joined).partition("kernel")[2]
    assert FamilyTests(normalise(program), trials=1, seed=0).run(joined).require().equal


@pytest.mark.parametrize("grid", ["q by 8, h by 1, e by 8", "q by 8, h by 1"])
def test_the_end_may_have_fewer_blocks(grid):
    text = several_kernels.ATTENTION_KERNELS.replace("grid q by 8, h by 1", f"grid {grid}")
    graph = several_kernels.over(several_kernels.ugraph("split_attention").program, text)
    assert in_a_cluster(graph) is not None


def test_what_does_not_come_together():
    split = several_kernels.ugraph("split_attention")
    first, last = split.kernels
    assert in_a_cluster(several_kernels.ugraph("split_matmul_added")) is None
    assert in_a_cluster(several_kernels.ugraph("library_epilogue")) is None
    # The first kernel has e whole, the second one shares it out.
    whole = replace(first, grid=tuple(a for a in first.grid if a.dim != "e"))
    apart_along_e = replace(last, grid=(*last.grid, replace(first.grid[1], dim="e")))
    assert in_a_cluster(replace(split, kernels=(whole, last))) is not None
    assert in_a_cluster(replace(split, kernels=(whole, apart_along_e))) is None
    # The second one reduces what blocks of the first one share out.
    text = several_kernels.ATTENTION_KERNELS.replace("sum[s_part] %9", "sum[s_part, q] %9")
    over_rows = text.replace("grid q by 8, h by 1", "grid h by 1")
    assert in_a_cluster(several_kernels.over(split.program, over_rows)) is None
    # It reads splits in another order than they are stored in.
    turned = several_kernels.ATTENTION_KERNELS.replace(
        "%5 = load L[s_part, h, q]", "%5 = load L[3 - s_part, h, q]"
    )
    assert in_a_cluster(several_kernels.over(split.program, turned)) is None
