from __future__ import annotations

import numpy as np
import pytest
import samples

from mirage_py.errors import InputError, UnsupportedError, ValidationError
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_at, evaluate_nodes, evaluate_program
from mirage_py.ugraph.interpret.meaning import FieldMeaning, FloatMeaning
from mirage_py.ugraph.ir.program import Dim, Program
from mirage_py.ugraph.text.text_form import parse_program


def real_size():
    return parse_program(
        """
        program rms_norm_matmul
        dim b = 16
        dim d = 4096
        dim n = 6144
        input X[16, 4096] : f16
        input G[4096] : f16
        input W[4096, 6144] : f16
        output Y[16, 6144] : f16
        %0 = load X[b, d]
        %1 = load G[d]
        %2 = mul %0, %1
        %3 = load W[d, n]
        %4 = matmul[d] %2, %3
        %5 = square %0
        %6 = sum[d] %5
        %7 = size d
        %8 = div %6, %7
        %9 = const 1e-06
        %10 = add %8, %9
        %11 = sqrt %10
        %12 = div %4, %11
        return Y[b, n] = %12
        """
    )


def test_real_sizes_in_floats():
    program = real_size()
    inputs = samples.float_inputs(program)
    found = evaluate_program(program, inputs, FloatMeaning())["Y"]
    x = inputs["X"]
    norm = np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
    assert np.allclose(found, (x * inputs["G"]) @ inputs["W"] / norm)


def test_real_sizes_at_points_in_the_field():
    program = real_size()
    meaning = FieldMeaning(FieldOps(FIELDS[0], 5))
    inputs = samples.field_inputs(program, meaning.ops)
    points = {"b": (3, 5), "n": np.array([0, 100, 6143])}
    sample = evaluate_at(program, inputs, meaning, points)["Y"]
    assert sample.values.shape == (2, 1, 3)
    assert sample.elements[1].reshape(-1, 3)[0].tolist() == [0, 100, 6143]
    one = evaluate_at(program, inputs, meaning, {"b": (4, 5), "n": (100, 101)})["Y"]
    assert one.values.p.item() == sample.values.p[1, 0, 1]


def test_points_of_a_reduced_dimension_of_the_output():
    # The denominator needs the whole row although the output is asked for at two columns.
    program = samples.ugraph("softmax").program
    inputs = samples.float_inputs(program)
    whole = evaluate_program(program, inputs, FloatMeaning())["Y"]
    sample = evaluate_at(program, inputs, FloatMeaning(), {"s": np.array([2, 9])})["Y"]
    assert np.allclose(sample.values, whole[:, [2, 9]])
    assert np.array_equal(whole[sample.elements], sample.values)


def test_at_points_a_read_needs_those_of_dimensions_in_place_and_others_whole():
    program = parse_program(
        """
        program p
        dim b = 5
        dim s = 6
        dim k = 3
        input X[5, 6] : f32
        output Y[5, 3] : f32
        output Z[5, 6] : f32
        %0 = load X[b, s]
        %1 = square %0
        %2 = read %1[b, k * 2]
        %3 = read %1[4 - b, s]
        %4 = sub %3, %0
        return Y[b, k] = %2
        return Z[b, s] = %4
        """
    )
    inputs = samples.float_inputs(program)
    whole = evaluate_program(program, inputs, FloatMeaning())
    asked: list[tuple[int, ...]] = []

    class Counted(FloatMeaning):
        def apply(self, op, attr, args):
            asked.append(args[0].shape)
            return super().apply(op, attr, args)

    for at in ((1, 3), np.array([4, 1])):
        for name, sample in evaluate_at(program, inputs, Counted(), {"b": at}).items():
            assert np.array_equal(whole[name][sample.elements], sample.values), name
    assert asked.count((2, 6, 1)) == 4
    assert asked.count((5, 6, 1)) == 2


@pytest.mark.parametrize("where", [(0, 8), (3, 3), (-1, 2)])
def test_points_outside(where):
    program = samples.ugraph("softmax").program
    with pytest.raises(InputError, match=r"outside 0\.\.6"):
        evaluate_at(program, samples.float_inputs(program), FloatMeaning(), {"b": where})


def test_points_of_no_dimension():
    program = samples.ugraph("softmax").program
    with pytest.raises(InputError, match="no dimension 'z'"):
        evaluate_at(program, samples.float_inputs(program), FloatMeaning(), {"z": (0, 1)})


def test_node_values_are_full_rank():
    program = samples.ugraph("softmax").program
    inputs = samples.float_inputs(program)
    values = evaluate_nodes(program, inputs, FloatMeaning())
    assert [values[n].shape for n in range(4)] == [(7, 13), (7, 13), (7, 1), (7, 13)]
    assert list(evaluate_nodes(program, inputs, FloatMeaning(), wanted=[2])) == [2]


def test_overrides_replace_a_value_everywhere():
    program = samples.ugraph("softmax").program
    inputs = samples.float_inputs(program)
    ones = np.ones((7, 13))
    values = evaluate_nodes(program, inputs, FloatMeaning(), overrides={1: ones})
    assert values[1] is ones
    assert np.allclose(values[3], 1 / 13)


def test_a_shift_is_free_in_the_field():
    text = """
    program p
    dim b = 4
    dim s = 6
    input X[4, 6] : f32
    output Y[4, 6] : f32
    %0 = load X[b, s]
    %1 = max[s] %0
    %2 = shift %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[s] %4
    %6 = div %4, %5
    return Y[b, s] = %6
    """
    ops = FieldOps(FIELDS[0], 1)
    stable, plain = parse_program(text), samples.ugraph("softmax").program
    inputs = samples.field_inputs(stable, ops)
    with pytest.raises(InputError):
        evaluate_program(plain, inputs, FieldMeaning(ops))
    nodes = evaluate_nodes(stable, inputs, FieldMeaning(ops))
    assert not ops.equal(nodes[1], nodes[2])
    exponential = ops.exp(inputs["X"])
    expected = ops.div(exponential, ops.sum(exponential, 1, keepdims=True))
    found = evaluate_program(stable, inputs, FieldMeaning(ops))["Y"]
    assert ops.equal(found, expected)


def test_powers_by_a_constant_keep_their_laws():
    text = """
    program p
    dim b = 4
    input X[4] : f32
    output Y[4] : f32
    %0 = load X[b]
    %1 = const 1.5
    %2 = pow %0, %1
    %3 = sqrt %0
    %4 = mul %0, %3
    %5 = sub %2, %4
    return Y[b] = %5
    """
    program = parse_program(text)
    ops = FieldOps(FIELDS[0], 1)
    found = evaluate_program(program, samples.field_inputs(program, ops), FieldMeaning(ops))["Y"]
    assert not found.p.any()


def test_an_output_that_leaves_holes_is_refused():
    program = parse_program(
        """
        program p
        dim b = 4
        input X[4] : f32
        output Y[7] : f32
        %0 = load X[b]
        return Y[b * 2] = %0
        """
    )
    with pytest.raises(ValidationError, match="3 of 7 elements"):
        evaluate_program(program, {"X": np.ones(4)}, FloatMeaning())


def test_more_dimensions_than_numpy_has_axes():
    program = samples.ugraph("softmax").program
    many = tuple(Dim(f"d{n}", 2) for n in range(33))
    crowded = Program("p", (*program.dims, *many), *_rest(program))
    with pytest.raises(UnsupportedError, match="35 dimensions"):
        evaluate_program(crowded, samples.float_inputs(crowded), FloatMeaning())


def _rest(program):
    return program.inputs, program.nodes, program.outputs
