from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import samples

from mirage_py.errors import InputError, ValidationError
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning
from mirage_py.ugraph.ir.ugraph import GridAxis, LibraryCall, Section
from mirage_py.ugraph.text.text_form import parse_ugraph

NAMES = sorted(samples.TEXTS)


def agrees_in_field(graph, seed=1):
    meaning = FieldMeaning(FieldOps(FIELDS[seed % 2], seed))
    inputs = samples.field_inputs(graph.program, meaning.ops)
    expected = evaluate_program(graph.program, inputs, meaning)
    found = evaluate_ugraph(graph, inputs, meaning)
    return all(meaning.ops.equal(expected[name], found[name]) for name in expected)


def agrees_in_floats(graph, scale=1.0):
    inputs = {n: x * scale for n, x in samples.float_inputs(graph.program).items()}
    expected = evaluate_program(graph.program, inputs, FloatMeaning())
    found = evaluate_ugraph(graph, inputs, FloatMeaning())
    return all(np.allclose(expected[name], found[name], rtol=1e-9) for name in expected)


@pytest.mark.parametrize("name", NAMES)
def test_samples_equal_their_programs_in_floats(name):
    assert agrees_in_floats(samples.ugraph(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_samples_equal_their_programs_in_the_field(name, seed):
    assert agrees_in_field(samples.ugraph(name), seed)


def retiled(graph, tile):
    """Every grid axis and loop of the graph with another tile."""
    kernels = []
    for kernel in graph.kernels:
        if isinstance(kernel, LibraryCall):
            kernels.append(kernel)
            continue
        sections = tuple(
            Section(s.nodes, s.loop, tile if s.loop else None) for s in kernel.sections
        )
        grid = tuple(GridAxis(a.dim, tile) for a in kernel.grid)
        kernels.append(replace(kernel, grid=grid, sections=sections))
    return replace(graph, kernels=tuple(kernels))


@pytest.mark.parametrize("tile", [1, 2, 3, 100])
@pytest.mark.parametrize("name", NAMES)
def test_tiles_do_not_matter(name, tile):
    graph = retiled(samples.ugraph(name), tile)
    assert agrees_in_floats(graph)
    assert agrees_in_field(graph)


def test_online_softmax_survives_large_scores():
    graph = samples.ugraph("softmax")
    inputs = {"X": samples.float_inputs(graph.program)["X"] * 1e4}
    found = evaluate_ugraph(graph, inputs, FloatMeaning())["Y"]
    assert np.isfinite(found).all()
    assert np.allclose(found.sum(1), 1.0)


def test_a_masked_infinity_is_zero():
    graph = samples.ugraph("attention")
    inputs = samples.float_inputs(graph.program)
    inputs["K"][:, -1] = 1e200  # the scores of the last key overflow; no row but the last sees it
    inputs["Q"] = np.abs(inputs["Q"])
    found = evaluate_program(graph.program, inputs, FloatMeaning())["O"]
    assert np.isfinite(found[:, :6]).all()


WRONG = {
    "a sum without its rescaling": (
        "attention",
        ("accum_rescaled[1] %16, %9", "accum_sum %16"),
    ),
    "neither sum rescaled": (
        "softmax",
        ("accum_rescaled[1] %5, %2", "accum_sum %5"),
    ),
    "rescaled by the wrong degree": (
        "attention",
        ("accum_rescaled[1] %16, %9", "accum_rescaled[2] %16, %9"),
    ),
    "the shift does not cancel": ("softmax", ("%10 = div %9, %6", "%10 = div %9, %9")),
    "shifted by the maximum of the tile alone": ("softmax", ("sub %0, %2", "sub %0, %1")),
    "a maximum as a result": ("row_maximum", ("accum_max %2", "accum_max[shift] %2")),
    "another mask": ("attention", ("%5 = mask (s <= t + 6)", "%5 = mask (s < t + 6)")),
    "the mask left out": ("attention", ("mul %5, %11", "add %11, %11")),
    "another scale": ("rms_norm_matmul", ("%11 = const 1e-06", "%11 = const 1e-05")),
    "the wrong extent": ("rms_norm_matmul", ("%9 = size d", "%9 = size n")),
    "another element": ("rotary", ("%0 = load X[b, (x + 5) % 10]", "%0 = load X[b, x]")),
}


def last_edit(name, old, new):
    """Change the kernel and not the program: the last place where the text stands."""
    head, found, tail = samples.TEXTS[name].rpartition(old)
    assert found
    return parse_ugraph(head + new + tail, name)


@pytest.mark.parametrize("case", sorted(WRONG))
def test_wrong_graphs_differ_in_the_field(case):
    name, (old, new) = WRONG[case]
    assert not agrees_in_field(last_edit(name, old, new))


def test_commuted_operands_do_not_differ():
    assert agrees_in_field(last_edit("split_attention", "%4, %9", "%9, %4"))


def test_a_value_that_died_is_refused():
    graph = samples.edited("attention", ("div %17, %14", "div %16, %14"))
    inputs = samples.float_inputs(graph.program)
    with pytest.raises(ValidationError, match=r"%16 has no value here"):
        evaluate_ugraph(graph, inputs, FloatMeaning())


def test_a_whole_dimension_meets_a_tile_of_it():
    whole = ("loop s by 4 {\n    %0 = load X[b, s]", "%0 = load X[b, s]\n  loop s by 4 {")
    mixed = ("store Y[b, s] = %10", "%11 = add %10, %0\n    store Y[b, s] = %11")
    graph = samples.edited("softmax", whole, mixed)
    with pytest.raises(ValidationError, match="do not broadcast"):
        evaluate_ugraph(graph, samples.float_inputs(graph.program), FloatMeaning())


def test_elements_never_written_are_refused():
    graph = samples.edited("softmax_whole_row", ("store Y[b, s]", "store Y[(b // 2) * 2, s]"))
    inputs = {"X": np.ones((7, 13))}
    with pytest.raises(ValidationError, match="39 elements of 'Y'"):
        evaluate_ugraph(graph, inputs, FloatMeaning())


@pytest.mark.parametrize("domain", ["floats", "field"])
def test_an_element_written_twice_with_two_values_is_refused(domain):
    graph = samples.edited("softmax_whole_row", ("store Y[b, s]", "store Y[b // 2, s]"))
    ops = FieldOps(FIELDS[0], 1)
    meaning = FloatMeaning() if domain == "floats" else FieldMeaning(ops)
    inputs = (
        samples.float_inputs(graph.program)
        if domain == "floats"
        else samples.field_inputs(graph.program, ops)
    )
    with pytest.raises(ValidationError, match=r"twice, with different values") as caught:
        evaluate_ugraph(graph, inputs, meaning)
    assert "kernel one_pass, %7 = store Y[b // 2, s]" in str(caught.value)


def test_open_tiles_have_no_value():
    graph = samples.edited("softmax", ("loop s by 5", "loop s by ?"))
    with pytest.raises(ValidationError, match="tile of dimension 's' is open"):
        evaluate_ugraph(graph, samples.float_inputs(graph.program), FloatMeaning())


def test_inputs_are_checked():
    graph = samples.ugraph("softmax")
    with pytest.raises(InputError, match="no value for input 'X'"):
        evaluate_ugraph(graph, {}, FloatMeaning())
    with pytest.raises(InputError, match=r"shape \[13, 7\], not \[7, 13\]"):
        evaluate_ugraph(graph, {"X": np.ones((13, 7))}, FloatMeaning())


def test_kernels_in_the_wrong_order_are_refused():
    graph = samples.ugraph("split_attention")
    inputs = samples.float_inputs(graph.program)
    with pytest.raises(ValidationError, match="elements of 'M' are not written"):
        evaluate_ugraph(replace(graph, kernels=graph.kernels[::-1]), inputs, FloatMeaning())
    with pytest.raises(ValidationError, match="36 elements of 'O'"):
        evaluate_ugraph(replace(graph, kernels=graph.kernels[:1]), inputs, FloatMeaning())


def test_library_calls_broadcast():
    graph = parse_ugraph(
        """
        ugraph batched
        dim b = 2
        dim h = 3
        dim m = 4
        dim k = 5
        dim n = 6
        input A[2, 1, 4, 5] : f32
        input B[3, 5, 6] : f32
        input C[6] : f32
        output Y[2, 3, 4, 6] : f32
        tensor P[2, 3, 4, 6] : f32
        program {
          %0 = load A[b, 0, m, k]
          %1 = load B[h, k, n]
          %2 = matmul[k] %0, %1
          %3 = load C[n]
          %4 = add %2, %3
          return Y[b, h, m, n] = %4
        }
        library k0 = matmul(A, B) -> P
        library k1 = add(P, C) -> Y
        """
    )
    assert agrees_in_floats(graph)
    assert agrees_in_field(graph)
