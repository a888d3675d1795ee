"""Sources of an index's extent, and forms of a left side."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.frontend.spec import parse


def test_from_the_axes_they_stand_on():
    program = parse("X[3, 4], W[4, 5] : f32\nY[a, c] = sum[b](X[a, b] * W[b, c])")
    assert dict(program.sizes) == {"a": 3, "c": 5, "b": 4}


def test_from_a_declaration(values, random):
    x = random(4, 8)
    got = values("X[4, 8] : f32\nindex i < 16, j < 2 * 2\nY[i, j] = X[i // 4, 2 * j + 1]", X=x)["Y"]
    np.testing.assert_array_equal(got, np.repeat(x, 4, axis=0)[:, 1::2])


def test_from_a_declared_output(values, random):
    x = random(2, 8)
    got = values("H = 8\nX[2, 8], Y[H, 8] : f32\nY[h, d] = X[h // 4, d] * 2", X=x)["Y"]
    np.testing.assert_array_equal(got, np.repeat(x, 4, axis=0) * 2)


def test_from_an_intermediate_tensor():
    program = parse("X[3] : f32\nlet t[a] = X[a] * 2\nY[b] = t[b] + t[2 - b]")
    assert dict(program.sizes) == {"b": 3}


def test_a_declared_range_reads_a_part(values, random):
    x = random(10)
    got = values("X[10] : f32\nindex i < 4\nY[i] = X[i] + X[9 - i]", X=x)["Y"]
    np.testing.assert_allclose(got, x[:4] + x[::-1][:4])


def test_one_name_is_one_dimension_over_the_spec(error):
    text = "X[3], Z[4] : f32\nlet t[i] = X[i]^2\nY[i] = Z[i]^2 + sum[j](t[j])"
    assert "two extents, 3 and 4" in error(text).what


def test_equal_extents_are_two_dimensions():
    assert parse("X[4, 4] : f32\nY[i, j] = X[j, i]^2").dim_names == ("i", "j")


def test_a_conflict_names_both_places(error):
    caught = error("B = 16, D = 64, N = 32\nX[B, D] : f16\nW[N, D] : f16\nY[b, n] = X @ W")
    assert caught.what == "index 'd' has two extents, 64 and 32"
    assert "axis 2 of 'X' (declared on line 2, column 1)" in caught.why
    assert "axis 1 of 'W' (declared on line 3, column 1)" in caught.why


@pytest.mark.parametrize(
    ("equation", "what"),
    [
        ("Y[i] = X[i + 1]", "unknown name 'i'"),
        ("index i < 8\nY[i] = X[i + 1]", "index 'i + 1' runs from 1 to 8"),
        ("index i < 4\nY[i] = X[i - 1]", "index 'i - 1' runs from -1 to 2"),
        ("index i < 9\nY[i] = X[i]", "index 'i' runs to 9, but axis 1 of 'X'"),
        ("Y[i] = X[i] + X[8]", "index '8' runs from 8 to 8"),
        ("Y[i] = X[i] + X[2.0]", "this cannot stand in an index"),
        ("Y[i] = X[i] + X[X[i]]", "this cannot stand in an index"),
        ("Y[i] = X[i] + X[i * i]", "this is no position"),
        ("Y[i] = X[i] + X[i / 2]", "this is no position"),
        ("Y[i] = X[i] + X[i // 0]", "this is no position"),
        ("Y[i] = X[i] + X[i // -2]", "this is no position"),
        ("index i < 0\nY[i] = X[i]", "index 'i' has no values"),
        ("index i > 4\nY[i] = X[i]", "written with '>'"),
        ("index i < 8, i < 9\nY[i] = X[i]", "'i' is defined twice"),
        ("index X < 8\nY[i] = X[i]", "'X' is defined twice"),
        ("Y[X] = X[X]", "'X' is a tensor and cannot be an index"),
        ("Y[pi] = X[pi]", "'pi' is a constant and cannot be an index"),
        ("Y[exp] = X[exp]", "'exp' is a function and cannot be an index"),
        ("Y[N] = X[N]", "'N' is a size (8), not an index"),
        ("Y[i, i] = X[i]", "stands twice"),
        ("Y[i // 4, i % 4] = X[i]", "stands twice"),
        ("Y[i // 4] = X[i]", "every element one place"),
        ("Y[i + 1] = X[i]", "the elements below 1"),
        ("Y[2 * i] = X[i]", "'i' is multiplied by 2"),
        ("Y[-i] = X[i]", "'i' is multiplied by -1"),
        ("Y[i] = sum[j](X[i])", "does not depend on it"),
        ("Y[0] = sum[N](X[i])", "'N' is a size"),
        ("Y[0] = sum[i, i](X[i])", "stands twice"),
        ("Y[0] = sum[2 * i](X[i])", "plain indices"),
        ("Y[0] = sum[](X[i])", "does not say over which index"),
        ("Y[0] = X[i]", "neither summed over nor on the left side"),
        ("Y[i, j] = X[i]", "unknown name 'j'"),
        ("index j < 3\nY[i, j] = X[i]", "on the left side only"),
    ],
)
def test_indices_that_cannot_be(equation: str, what: str, error):
    assert what in error("N = 8\nX[N] : f32\n" + equation).what


def test_merged_axes(values, random):
    x = random(3, 4, 5)
    head = "X[3, 4, 5] : f32\n"
    got = values(head + "Y[b, h * 5 + d] = X[b, h, d] * 2", X=x)["Y"]
    np.testing.assert_array_equal(got, x.reshape(3, 20) * 2)
    got = values(head + "Y[d * 12 + b + h * 3] = X[b, h, d] * 2", X=x)["Y"]
    np.testing.assert_array_equal(got, x.transpose(2, 1, 0).reshape(60) * 2)


def test_merged_intermediates_are_read_anywhere(values, random):
    x = random(4, 5)
    text = "X[4, 5] : f32\nlet t[h * 5 + d] = X[h, d]^2\nindex k < 19\nY[k] = t[k + 1] - t[k]"
    flat = x.reshape(20) ** 2
    np.testing.assert_allclose(values(text, X=x)["Y"], flat[1:] - flat[:-1])


def test_a_declared_output_checks_its_shape(error):
    assert (
        "has 8 values, the axis of 'Y' has 9"
        in error("X[2, 4], Y[9] : f32\nY[h * 4 + d] = X[h, d]^2").what
    )
    assert "2 axes but is given 1 index" in error("X[8], Y[8, 1] : f32\nY[i] = X[i]^2").what
    assert "two extents" in error("X[8], Y[9] : f32\nY[i] = X[i]^2").what


def test_outputs_of_one_element(values):
    assert values("X[3] : f32\nY[0] = sum[i](X[i])", X=[1, 2, 3])["Y"] == [6]
