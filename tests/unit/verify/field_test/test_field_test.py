from __future__ import annotations

from dataclasses import replace

import pytest
import samples
import torch
from naive import naive_plan

import mirage_py
from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.frontend.spec import parse
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import H200
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.ir.renaming import rename_dims
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.evaluate.work import peak_elements
from mirage_py.verify.field_test import field_test as field_test_module
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.intervals.real_test import MIN_DRAWS
from mirage_py.verify.sizes.flat_axes import with_flat_axes
from mirage_py.verify.sizes.shrink import shrink_ugraph


@pytest.mark.parametrize("name", sorted(samples.TEXTS))
def test_right_graphs_pass(name):
    graph = samples.ugraph(name)
    evidence = field_test(graph.program, graph, seed=5).require()
    assert evidence.equal
    assert evidence.trials == 4
    assert evidence.primes == (FIELDS[0].p, FIELDS[0].q, FIELDS[1].p, FIELDS[1].q)
    assert len(evidence.small_extents) == 4
    assert evidence.mismatch is None


def test_families_pass_too():
    graph = samples.ugraph("attention")
    family = shrink_ugraph(graph, {})
    assert all(a.tile is None for k in family.kernels for a in k.grid)
    assert field_test(graph.program, family, seed=1).equal


def test_the_same_seed_gives_the_same_evidence():
    graph = samples.ugraph("softmax")
    assert field_test(graph.program, graph, seed=3) == field_test(graph.program, graph, seed=3)


def test_a_wrong_graph_is_refused_with_a_place():
    wrong = samples.edited("softmax", ("%10 = div %9, %6", "%10 = mul %9, %6"))
    evidence = field_test(wrong.program, wrong, seed=1)
    assert not evidence.equal
    assert evidence.trials == 1
    assert evidence.error_bound is None
    assert evidence.mismatch is not None
    assert evidence.mismatch.output == "Y"
    assert len(evidence.mismatch.index) == 2
    with pytest.raises(VerificationError, match=r"Y\[0, 0\]") as refused:
        evidence.require()
    assert refused.value.exit_code == 4


def test_a_graph_that_reads_what_it_never_wrote_is_refused():
    graph = samples.ugraph("split_attention")
    wrong = replace(graph, kernels=graph.kernels[1:])
    evidence = field_test(graph.program, wrong, seed=1)
    assert not evidence.equal
    assert "cannot be read here" in str(evidence.mismatch)


def test_outputs_that_trade_places_are_refused():
    text = "N = 64\nX[N], U[N] : f32\nY[n] = X[n] * 2\nZ[n] = U[n] * 3"
    program = parse(text)
    right = naive_plan(program, {"n": 16}).ugraph
    first, second = program.outputs
    swapped = replace(
        program,
        outputs=(replace(first, node=second.node), replace(second, node=first.node)),
    )
    assert field_test(program, right, seed=1).equal
    assert not field_test(swapped, right, seed=1).equal


def test_a_mask_that_is_one_off_is_refused():
    wrong = samples.edited("attention", ("%5 = mask (s <= t + 6)", "%5 = mask (s <= t + 5)"))
    assert not field_test(wrong.program, wrong, seed=1).equal


def test_a_constant_that_stands_for_a_size_is_refused():
    wrong = samples.edited("rms_norm_matmul", ("%9 = size d", "%9 = const 12.0"))
    assert not field_test(wrong.program, wrong, seed=1).equal


def test_operators_without_algebra_are_named():
    program = parse("N = 64\nX[N] : f32\nY[n] = log(max(X[n], 2)) + erf(X[n]) + exp(exp(X[n]))")
    evidence = field_test(program, naive_plan(program, {"n": 16}).ugraph, seed=1)
    assert evidence.equal
    assert evidence.keyed == ("maximum", "log", "erf", "exp of an exponential")


def test_a_program_with_other_names_for_its_dimensions():
    graph = samples.ugraph("rms_norm_matmul")
    other = rename_dims(graph.program, {"b": "rows", "d": "inner", "n": "columns"})
    assert field_test(other, graph, seed=1).equal
    wrong = parse(
        "B = 7, D = 12, N = 13\nX[B, D], G[D], W[D, N] : f16\n"
        "Y[i, j] = sum[k](X[i, k] * G[k] * W[k, j])"
    )
    evidence = field_test(wrong, graph, seed=1)
    assert not evidence.equal
    assert evidence.small_extents


def test_a_program_and_its_shift_free_form():
    text = (
        "R = 64, N = 96\nX[R, N] : f32\nlet M[r] = max[k](X[r, k])\n"
        "let E[r, k] = exp(X[r, k] - M[r])\nY[r, k] = E[r, k] / sum[k](E[r, k])"
    )
    safe = parse(text)
    free = parse(text.replace(" - M[r]", "").replace("let M[r] = max[k](X[r, k])\n", ""))
    evidence = field_test(safe, naive_plan(free, {"r": 8}).ugraph, seed=1)
    assert evidence.equal
    assert evidence.error_bound is not None


def test_dividing_by_nothing_is_said_plainly():
    program = parse("N = 64\nX[N] : f32\nY[n] = X[n] / (X[n] - X[n])")
    with pytest.raises(UnsupportedError, match="divides by zero"):
        field_test(program, naive_plan(program, {"n": 16}).ugraph, seed=1)


def test_sizes_that_cannot_shrink_are_refused_before_the_work():
    text = "N = 65536\nX[N], U[N] : f32\nY[i, j] = X[(i + 1) // 2] * U[(j + 1) // 2] * X[i] * U[j]"
    program = parse(text)
    with pytest.raises(UnsupportedError, match="operations"):
        field_test(program, UGraph(program, ()), seed=1)


def test_too_many_dimensions_are_named_as_the_reason():
    names = "abcdefghijkl"
    sizes = ", ".join(f"{n.upper()} = 4" for n in names)
    axes, index = ", ".join(names.upper()), ", ".join(names)
    program = parse(f"{sizes}\nX[{axes}] : f16\nY[{index}] = relu(X[{index}])\n")
    (plan,) = rank(
        [search(program, limits=SearchLimits(max_kernels=1)).families[0].ugraph], H200, 1
    )
    with pytest.raises(UnsupportedError, match="operations") as caught:
        field_test(program, plan.family, seed=0)
    assert "each of its 12 dimensions" in str(caught.value)


def test_structured_inputs_of_many_dimensions_are_no_larger_than_those_of_few():
    """As intervals, in 24 draws, the values of a pool in three dimensions took gigabytes."""
    images = torch.empty(4, 8, 20, 20, 20)
    traced = mirage_py.trace(lambda x: torch.nn.functional.max_pool3d(x, 3, 2, 1, 3), images)
    program = with_flat_axes(traced, UGraph(traced, ()))[0]
    sizes = field_test_module._SmallSizes(program, UGraph(program, ()))
    small, _ = sizes.drawn(0)
    assert MIN_DRAWS * peak_elements(small) > field_test_module._MANY_NUMBERS
    few, _ = sizes.at(sizes.weighed(0, in_pairs=True)[1])
    assert MIN_DRAWS * peak_elements(few) <= field_test_module._MANY_NUMBERS
