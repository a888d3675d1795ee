"""Stores that lack a grid axis: the first block writes, or all blocks add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import samples

from mirage_py.errors import ValidationError
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.block import BlockRun
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.mermaid import format_mermaid
from mirage_py.ugraph.text.svg import outline
from mirage_py.ugraph.text.text_form import format_ugraph, parse_ugraph

GATED, ADDED = "residual_gated", "split_matmul_added"


def stores_of(name: str) -> dict[str, Node]:
    return {n.access.tensor: n for _, n in samples.ugraph(name).kernels[0].stores()}


def agrees(graph: UGraph) -> bool:
    """With its program, in floats and in a field."""
    arrays = samples.float_inputs(graph.program)
    want = evaluate_program(graph.program, arrays, FloatMeaning())
    got = evaluate_ugraph(graph, arrays, FloatMeaning())
    if not all(np.allclose(want[n], got[n], rtol=1e-9) for n in want):
        return False
    meaning = FieldMeaning(FieldOps(FIELDS[0], 3))
    residues = samples.field_inputs(graph.program, meaning.ops)
    exact = evaluate_program(graph.program, residues, meaning)
    found = evaluate_ugraph(graph, residues, meaning)
    return all(meaning.ops.equal(exact[n], found[n]) for n in exact)


def test_which_blocks_store():
    gated, added = (samples.ugraph(name).kernels[0] for name in (GATED, ADDED))
    assert gated.predicated_axes(stores_of(GATED)["H"]) == ("f",)
    assert gated.predicated_axes(stores_of(GATED)["Y"]) == ()
    assert gated.added_tensors == ()
    assert added.summed_axes(stores_of(ADDED)["Y"]) == ("p",)
    assert added.predicated_axes(stores_of(ADDED)["Y"]) == ()
    assert added.summed_axes(stores_of(ADDED)["S"]) == ("p",)
    assert added.predicated_axes(stores_of(ADDED)["S"]) == ("n",)
    assert added.added_tensors == ("Y", "S")


def test_the_text_says_which_blocks_store():
    text = format_ugraph(samples.ugraph(ADDED))
    assert "  store_add Y[b, n] = %3  # b -> grid 2, n -> grid 0, sum over p\n" in text
    assert "  store_add S[b] = %7  # b -> grid 2, sum over p, first of n\n" in text
    assert "    store H[b, d] = %2  # b -> grid 1, d -> loop, first of f\n" in format_ugraph(
        samples.ugraph(GATED)
    )


def test_an_addition_keeps_its_number_where_it_is_not_its_line():
    graph = samples.ugraph(ADDED)
    (block,) = graph.kernels
    loop, rest = block.sections
    turned = replace(rest, nodes=(5, 6, 7, 4, 8))
    moved = replace(graph, kernels=(replace(block, sections=(loop, turned)),))
    assert "%4 = store_add Y[b, n] = %3" in format_ugraph(moved)
    assert parse_ugraph(format_ugraph(moved)) == moved
    assert load_text(dump_text(moved), "moved") == moved


def test_pictures_name_the_store():
    assert 'k0_n4["%4 store_add Y[b, n]"]' in format_mermaid(samples.ugraph(ADDED))
    kernel = outline(samples.ugraph(ADDED)).parts[-1]
    assert "store_add S[b] = %7" in kernel.parts[-1].parts


def test_only_the_first_block_writes():
    graph = samples.ugraph(GATED)
    (block,) = graph.kernels
    arrays = samples.float_inputs(graph.program)
    want = evaluate_program(graph.program, arrays, FloatMeaning())
    for start, missing in ((0, 0), (4, 84), (12, 84)):
        buffers = {n: FloatMeaning().buffer(t.shape) for n, t in graph.tensors.items()}
        run = BlockRun(block, graph.program.sizes, arrays, buffers, FloatMeaning())
        run.run({"f": [start]})
        assert buffers["H"].missing() == missing
        assert np.allclose(
            buffers["Y"].read()[:, start : start + 4], want["Y"][:, start : start + 4]
        )


def test_an_axis_that_nothing_depends_on_changes_nothing():
    """Each block along it would add the same: one does."""
    grid = ("grid n by 4, p by 2, b by 4", "grid n by 4, p by 2, b by 4, extra by 2")
    graph = samples.edited(ADDED, grid, ("dim n = 13", "dim n = 13\ndim extra = 5"))
    validate_ugraph(graph)
    assert agrees(graph)


def test_a_tile_that_covers_all_parts_is_summed_too():
    graph = samples.edited(ADDED, ("p by 2", "p by 3"))
    assert agrees(graph)


def test_additions_in_a_loop_go_to_its_own_places():
    """The column sums of a matrix, looping over the columns."""
    graph = parse_ugraph(
        """
        ugraph column_sums
        dim b = 7
        dim d = 10
        input X[7, 10] : f32
        output Y[10] : f32
        program {
          %0 = load X[b, d]
          %1 = sum[b] %0
          return Y[d] = %1
        }
        kernel k {
          grid b by 2
          loop d by 4 {
            %0 = load X[b, d]
            store_add Y[d] = %0
          }
        }
        """
    )
    validate_ugraph(graph)
    assert agrees(graph)


def test_each_tensor_may_be_added_to_by_a_kernel_of_its_own():
    squares = """}
kernel squares {
  grid b by 4, p by 1
  %0 = load X[b, p * 5 + d]
  %1 = square %0
  %2 = sum[d] %1
  store_add S[b] = %2
}"""
    graph = samples.edited(ADDED, ("  store_add S[b] = %7\n}", squares))
    validate_ugraph(graph)
    assert agrees(graph)


@pytest.mark.parametrize(
    ("name", "change", "word"),
    [
        (ADDED, ("store_add Y[b, n]", "store Y[b, n]"), "do not say where p goes"),
        (GATED, ("store Y[b, f] = %21", "store Y[b, 0] = %21"), "do not say where f goes"),
        # All columns added up in the first one.
        (ADDED, ("store_add Y[b, n] = %3", "store_add Y[b, 0] = %3"), "7 writes to 91 elements"),
    ],
)
def test_what_the_grid_cuts_must_have_a_place(name, change, word):
    with pytest.raises(ValidationError, match=word):
        validate_ugraph(samples.edited(name, change))


def test_one_kernel_makes_all_additions_to_a_tensor():
    graph = samples.ugraph(ADDED)
    (block,) = graph.kernels
    again = replace(graph, kernels=(block, replace(block, name="again")))
    with pytest.raises(ValidationError) as caught:
        validate_ugraph(again)
    assert "'Y' is written by store_add in split_k, store_add in again" in str(caught.value)
    assert "zeroed right before its kernel" in str(caught.value)


def test_overlapping_additions_are_refused_when_they_run():
    graph = samples.edited(ADDED, ("store_add S[b] = %7", "store_add S[b // 2] = %7"))
    with pytest.raises(ValidationError, match="3 elements are written more than once"):
        validate_ugraph(graph)
    with pytest.raises(ValidationError, match="twice, with different values"):
        evaluate_ugraph(graph, samples.float_inputs(graph.program), FloatMeaning())


def test_shifts_are_shared_by_blocks_that_compute_the_same():
    """The maximum of a row is stored by the first block along e and used by all: in a field, where
    shifts are drawn at random, they have to be the same.
    """
    text = samples.TEXTS["split_attention"].replace(
        "grid h by 1, p by 1", "grid h by 1, p by 1, e by 2"
    )
    graph = parse_ugraph(text)
    validate_ugraph(graph)
    assert agrees(graph)
