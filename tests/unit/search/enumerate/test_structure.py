"""Structures of kernels that people write by hand, found by the search."""

from __future__ import annotations

import pytest
from unit.search.kernels import ALL, EXPANDED, alone, block_of, loops_of, ops_after_loops

from mirage_py.search.enumerate.search import search


@pytest.mark.parametrize("name", ALL)
def test_every_space_is_exhausted_with_little_work(name):
    result = alone(name)
    assert result.families
    assert result.exhausted
    assert result.saturated
    assert not result.reasons
    # Thousands of candidates would mean that the joins have become blind.
    assert result.counters.candidates < 1000
    assert [f.cost_us for f in result.families] == sorted(f.cost_us for f in result.families)


def test_rmsnorm_divides_after_the_contraction_and_sums_in_one_loop():
    body = ["accum_sum", "accum_sum", "load", "load", "load", "matmul", "mul", "square", "sum"]
    one_loop = [
        f for f in alone("rmsnorm_matmul").families if loops_of(block_of(f)) == [("d", body)]
    ]
    assert any("div" in ops_after_loops(block_of(f)) for f in one_loop)
    best = min(one_loop, key=lambda f: f.cost_us)
    assert ops_after_loops(block_of(best)).count("div") == 2  # by the size, and by the root
    assert [axis.dim for axis in block_of(best).grid] == ["b", "n"]


def test_rmsnorm_has_a_form_with_a_clean_loop_for_the_contraction():
    sums = ["accum_sum", "load", "square", "sum"]
    dots = ["accum_sum", "load", "load", "load", "matmul", "mul"]
    split = [f for f in alone("rmsnorm_matmul").families if f.arrangement == "split"]
    assert [("d", sums), ("d", dots)] in [loops_of(block_of(f)) for f in split]


def test_rmsnorm_has_a_form_that_normalises_before_the_contraction():
    def normalises(family):
        loops = loops_of(block_of(family))
        return (
            len(loops) == 2
            and "div" in loops[1][1]
            and "div" not in ops_after_loops(block_of(family))
        )

    assert any(normalises(f) for f in alone("rmsnorm_matmul").families)


def test_gated_mlp_has_both_products_in_one_loop():
    best = next(f for f in alone("gated_mlp").families if f.configuration.looped)
    body = ["accum_sum", "accum_sum", "load", "load", "load", "matmul", "matmul"]
    assert loops_of(block_of(best)) == [("d", body)]
    assert ops_after_loops(block_of(best)) == ["silu", "mul", "store"]


def test_lora_merges_its_weights_or_keeps_the_two_products():
    contractions = [
        sorted(n.dims for n in block_of(f).nodes if n.op == "matmul")
        for f in alone("lora").families
    ]
    assert [("b", "n"), ("b", "n"), ("b", "r")] in contractions
    assert [("b", "n"), ("d", "n")] in contractions


def test_attention_loops_over_the_keys_and_divides_once():
    looped = [f for f in alone("attention").families if f.configuration.looped == ("s",)]
    body = ["accum_sum", "accum_sum", "exp", "load", "load", "matmul", "matmul", "sum"]
    assert loops_of(block_of(looped[0])) == [("s", body)]
    assert ops_after_loops(block_of(looped[0])) == ["div", "store"]
    block = block_of(looped[0])
    assert [axis.dim for axis in block.grid] == ["h", "q", "e"]
    # The queries stay in the block over the whole loop.
    first = block.sections[0]
    assert first.loop is None
    assert [str(block.nodes[n].attr) for n in first.nodes] == ["Q[h, q, d]"]


def test_attention_loop_keeps_its_sums_together_when_both_need_the_scores():
    looped = [f for f in alone("attention").families if f.configuration.looped == ("s",)]
    assert all(f.arrangement == "fused" for f in looped)


def test_linear_attention_contracts_keys_and_values_first():
    best = alone("linear_attention").families[0]
    assert ("h", "d", "e") in [n.dims for n in block_of(best).nodes if n.op == "matmul"]


def test_softmax_stores_inside_its_last_loop():
    family = next(f for f in alone("softmax").families if f.configuration.looped)
    assert loops_of(block_of(family)) == [
        ("n", ["accum_sum", "exp", "load", "sum"]),
        ("n", ["div", "exp", "load", "store"]),
    ]


def test_layernorm_takes_three_loops_or_a_whole_row():
    counts = [len(loops_of(block_of(f))) for f in alone("layernorm_linear").families]
    assert {0, 3} <= {*counts}


def test_layernorm_takes_two_loops_when_products_are_multiplied_out():
    """One loop would do for a variance of squares, which loses its digits far from zero."""
    families = search(ALL["layernorm_linear"](), limits=EXPANDED).families
    assert min(len(loops_of(block_of(f))) for f in families if f.configuration.looped) == 2


def test_a_bias_is_loaded_where_it_is_added():
    for family in alone("layernorm_linear").families:
        block = block_of(family)
        (bias,) = [n for n, node in enumerate(block.nodes) if str(node.attr) == "C[n]"]
        (reader,) = [n for n, node in enumerate(block.nodes) if bias in node.args]
        assert block.section_of[bias] == block.section_of[reader]


def test_outputs_of_different_shapes_share_a_kernel():
    looped = next(f for f in alone("row_statistics").families if f.configuration.looped)
    block = block_of(looped)
    where = {
        node.access.tensor: block.sections[block.section_of[n]].loop for n, node in block.stores()
    }
    assert where == {"M": None, "V": None, "Y": "n"}


def test_a_looped_leaf_is_loaded_again_in_each_loop_that_reads_it():
    looped = next(f for f in alone("ntrans").families if f.configuration.looped)
    loads = [str(n.attr) for n in block_of(looped).nodes if n.op == "load"]
    assert loads.count("H[b, d]") == 3
    assert loads.count("X[b, d]") == 2


def test_two_dimensions_are_looped_one_after_the_other():
    family = next(
        f for f in alone("two_contractions").families if f.configuration.looped == ("d", "k")
    )
    body = ["accum_sum", "load", "load", "matmul"]
    assert loops_of(block_of(family)) == [("d", body), ("k", body)]


def test_the_operand_whose_dimension_comes_first_is_on_the_left():
    for name in ("rmsnorm_matmul", "attention", "lora"):
        for family in alone(name).families:
            block = block_of(family)
            for node in block.nodes:
                if node.op != "matmul":
                    continue
                left, right = (block.nodes[a].dims for a in node.args)
                own = [d for d in (*left, *right) if not (d in left and d in right)]
                assert own[0] in left
