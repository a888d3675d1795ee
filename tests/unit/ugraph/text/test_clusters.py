"""Axes of a cluster in the IR: forms, rules, and their interpretation."""

from __future__ import annotations

import json
from dataclasses import replace

import clusters
import numpy as np
import pytest
from several_kernels import over

from mirage_py.errors import FormatError, ValidationError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import GridAxis, UGraph
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.ugraph.text.json_form import dump_text, from_json, load_text, to_json
from mirage_py.ugraph.text.mermaid import format_mermaid
from mirage_py.ugraph.text.svg import format_svg, outline
from mirage_py.ugraph.text.text_form import format_ugraph, parse_ugraph
from mirage_py.ugraph.text.tiles_text import tiles_of

CASES = {
    "attention": (clusters.attention_program(), clusters.cluster_attention()),
    "causal attention": (
        clusters.attention_program(causal=True),
        clusters.cluster_attention(causal=True),
    ),
    "rms_norm_matmul": (clusters.rms_norm_matmul_program(), clusters.cluster_rms_norm_matmul()),
    "lora": (clusters.lora_program(), clusters.cluster_lora()),
}


def with_grid(plan: Plan, *axes: GridAxis) -> UGraph:
    block = plan.ugraph.kernels[0]
    return replace(plan.ugraph, kernels=(replace(block, grid=axes),))


def rejects(ugraph: UGraph, *words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        validate_ugraph(ugraph)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_forms_read_back(name):
    plan = CASES[name][1]
    validate_ugraph(plan.ugraph)
    assert parse_ugraph(format_ugraph(plan.ugraph)) == plan.ugraph
    assert load_text(dump_text(plan), name) == plan
    assert plan.ugraph.kernels[0].cluster_dims in (("s_part",), ("d_part",))


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_gives_what_the_program_does(name):
    program, plan = CASES[name]
    draw = np.random.default_rng(0)
    inputs = {t.name: draw.normal(size=t.shape) / 4 for t in program.inputs}
    want = evaluate_program(program, inputs, FloatMeaning())
    got = evaluate_ugraph(plan.ugraph, inputs, FloatMeaning())
    for output in want:
        np.testing.assert_allclose(got[output], want[output], rtol=1e-9, atol=1e-12)


def test_where_the_cluster_shows():
    plan = clusters.cluster_attention()
    text = format_ugraph(plan.ugraph)
    assert "grid q by 16, e by 32, s_part by 1 in cluster, h by 1" in text
    assert "%14 = max[s_part] %6 : [h, q]  # s_part: the cluster" in text
    assert "s_part <- cluster 2" in text
    assert "s_part by 1 in cluster" in tiles_of(plan)
    assert "s_part by 1 in cluster" in format_mermaid(plan.ugraph)
    assert "s_part by 1 in cluster" in format_svg(plan.ugraph)
    assert any("in cluster" in part.title for part in outline(plan.ugraph).parts[-1:])


def test_json_says_it_of_axes_in_a_cluster_only():
    plan = clusters.cluster_attention()
    grid = to_json(plan)["ugraph"]["kernels"][0]["grid"]
    assert [axis.get("cluster") for axis in grid] == [None, None, True, None]
    data = json.loads(dump_text(plan))
    data["ugraph"]["kernels"][0]["grid"][2]["cluster"] = 1
    with pytest.raises(FormatError, match="true or false"):
        from_json(data)
    data["ugraph"]["kernels"][0]["grid"][2]["cluster"] = False
    with pytest.raises(FormatError, match="which the grid splits"):
        from_json(data)


def test_a_dimension_may_be_called_cluster():
    text = (
        "ugraph p\ndim cluster = 4\ndim by = 4\ninput X[4, 4] : f32\noutput Y[4] : f32\n"
        "program {\n%0 = load X[cluster, by]\n%1 = sum[by] %0\nreturn Y[cluster] = %1\n}\n"
        "kernel k {\ngrid cluster by 1, by by 1 in cluster\n"
        "%0 = load X[cluster, by]\n%1 = sum[by] %0\nstore Y[cluster] = %1\n}\n"
    )
    graph = parse_ugraph(text)
    validate_ugraph(graph)
    assert graph.kernels[0].grid == (GridAxis("cluster", 1), GridAxis("by", 1, cluster=True))
    assert parse_ugraph(format_ugraph(graph)) == graph


def test_digests_of_graphs_without_clusters_are_what_they_were():
    assert repr(GridAxis("b", 16)) == "GridAxis(dim='b', tile=16)"
    assert repr(GridAxis("b", None, cluster=True)) == "GridAxis(dim='b', tile=None, cluster=True)"


def test_stores_are_those_of_one_large_block():
    block = clusters.cluster_attention().ugraph.kernels[0]
    (store,) = (node for _, node in block.stores())
    assert [axis.dim for axis in block.split_axes] == ["q", "e", "h"]
    assert block.predicated_axes(store) == ()
    assert block.summed_axes(store) == ()


def test_at_most_sixteen_blocks():
    plan = clusters.cluster_rms_norm_matmul(parts=16, d=960)
    validate_ugraph(plan.ugraph)
    rejects(
        clusters.cluster_rms_norm_matmul(parts=20, d=960).ugraph,
        "a cluster of 20 blocks",
        "at most 16",
        "use larger tiles",
    )
    n, d, b = (a.dim for a in plan.ugraph.kernels[0].grid)
    in_cluster = [GridAxis(n, 128, True), GridAxis(d, 1, True)]
    rejects(
        with_grid(plan, *in_cluster, GridAxis(b, 16)), "a cluster of 32 blocks, along n, d_part"
    )
    # While a tile is open, nobody knows.
    validate_ugraph(with_grid(plan, GridAxis(n, None, True), in_cluster[1], GridAxis(b, 16)))


def test_a_reduction_over_the_cluster_waits_for_the_end_of_the_loop():
    program = parse("B = 4, D = 40\nX[B, D] : f16\nY[b] = sum[d](X[b, d]^2)")
    kernel = """
kernel k {
  grid b by 1, d_part by 1 in cluster
  loop d by 5 {
    %0 = load X[b, d_part * 10 + d]
    %1 = square %0
    %2 = sum[d] %1
    %3 = accum_sum %2
  }
  %4 = sum[d_part] %3
  store Y[b] = %4
}
"""
    split = split_dim(program, "d", 4)
    validate_ugraph(over(split, kernel))
    inside = kernel.replace("sum[d] %1", "sum[d, d_part] %1").replace("sum[d_part] %3", "neg %3")
    rejects(
        over(split, inside),
        "it reduces d_part, which a cluster shares, inside a loop",
        "reduce it after the loop",
    )


def test_products_do_not_contract_over_the_cluster():
    text = (
        "ugraph p\ndim b = 4\ndim k = 8\ndim n = 4\ninput X[4, 8] : f16\ninput W[8, 4] : f16\n"
        "output Y[4, 4] : f16\nprogram {\n%0 = load X[b, k]\n%1 = load W[k, n]\n"
        "%2 = matmul[k] %0, %1\nreturn Y[b, n] = %2\n}\n"
        "kernel k0 {\ngrid k by 4 in cluster\n%0 = load X[b, k]\n%1 = load W[k, n]\n"
        "%2 = matmul[k] %0, %1\nstore Y[b, n] = %2\n}\n"
    )
    rejects(parse_ugraph(text), "it contracts k, which a cluster shares", "over the cluster")
    validate_ugraph(parse_ugraph(text.replace(" in cluster", "").replace("grid k", "grid b")))


def test_additions_in_memory_do_not_sum_over_a_cluster():
    program = clusters.rms_norm_matmul_program()
    kernel = clusters.RMS_NORM_MATMUL_KERNEL.format(tile_n=64, tile_b=16, tile_d=64, part=240)
    added = kernel.replace("%18 = div %9, %17", "%18 = div %5, %17").replace(
        "store Y", "store_add Y"
    )
    rejects(over(split_dim(program, "d", 4), added), "where d_part goes", "not along a cluster")


def test_a_cluster_is_no_loop():
    program = clusters.rms_norm_matmul_program()
    kernel = clusters.RMS_NORM_MATMUL_KERNEL.format(tile_n=64, tile_b=16, tile_d=64, part=240)
    both = kernel.replace("grid n by 64", "grid d by 64 in cluster, n by 64")
    rejects(over(split_dim(program, "d", 4), both), "a grid axis and a loop")
