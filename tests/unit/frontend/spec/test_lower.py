"""Values of each construct, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32

X = np.array([-2.5, -1.0, -0.25, 0.5, 1.0, 3.0])
Z = np.array([1.5, 0.5, 2.0, 0.25, 3.0, 1.0])


def erf(x):
    return np.vectorize(math.erf)(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


N = np.arange(6)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("X[n] + Z[n] * 2 - 1", X + Z * 2 - 1),
        ("-X[n] / Z[n]", -X / Z),
        ("X[n]^2 + Z[n]^-1 + Z[n]^0.5", X**2 + 1 / Z + np.sqrt(Z)),
        ("Z[n]^X[n]", Z**X),
        ("Z[n]^1.7 + pow(Z[n], 3)", Z**1.7 + Z**3),
        ("2^(-n) + X[n]", 2.0 ** -N + X),
        ("exp(X[n]) + log(Z[n])", np.exp(X) + np.log(Z)),
        ("sqrt(Z[n]) + rsqrt(Z[n])", Z**0.5 + Z**-0.5),
        ("square(X[n]) + abs(X[n]) + relu(X[n])", X**2 + abs(X) + np.maximum(X, 0)),
        ("sigmoid(X[n]) + silu(Z[n]) + tanh(X[n])", sigmoid(X) + Z * sigmoid(Z) + np.tanh(X)),
        ("gelu(X[n]) + erf(Z[n])", 0.5 * X * (1 + erf(X / 2**0.5)) + erf(Z)),
        ("max(X[n], Z[n])", np.maximum(X, Z)),
        ("min(X[n], Z[n], 0)", np.minimum(np.minimum(X, Z), 0)),
        ("clamp(X[n], -1, 2)", np.clip(X, -1, 2)),
        ("clamp(X[n], -inf, 2) + clamp(X[n], -1, inf)", np.minimum(X, 2) + np.maximum(X, -1)),
        ("clamp(X[n], -Z[n], Z[n])", np.clip(X, -Z, Z)),
        ("where(X[n] > 0, X[n], Z[n])", np.where(X > 0, X, Z)),
        ("where(n < 3, X[n], Z[n])", np.where(N < 3, X, Z)),
        ("where(1 < n <= 3 | n == 5, X[n], 0)", np.where(((N > 1) & (N <= 3)) | (N == 5), X, 0)),
        ("where(not (n == 2) & X[n] < 1, X[n], 7)", np.where((N != 2) & (X < 1), X, 7)),
        ("where(X[n] < 1 | Z[n] >= 2, X[n], 7)", np.where((X < 1) | (Z >= 2), X, 7)),
        ("where(not X[n] < 1, X[n], 7)", np.where(X >= 1, X, 7)),
        ("where(2 > 1, X[n], 2 * X[n])", X),
        ("(n != 3) * X[n] + (X[n] > Z[n])", (N != 3) * X + (X > Z)),
        ("X[n] + n * 0.1 + (n - 3) * 2", X + N * 0.1 + (N - 3) * 2),
        ("X[n] + n // 2 + n % 3", X + N // 2 + N % 3),
        ("X[n] + n / 2", X + N / 2),
        ("X[n] * pi", X * math.pi),
        ("cast(X[n], f16)", X),
        ("X[n] / sum[k](Z[k])", X / Z.sum()),
        ("X[n] - mean[n](X[n]) + max[n](X[n]) + min[n](X[n])", X - X.mean() + X.max() + X.min()),
        ("softmax[n](X[n])", np.exp(X) / np.exp(X).sum()),
        ("rms_norm[n](X[n])", X / np.sqrt((X**2).mean() + 1e-6)),
        ("rms_norm[n](Z[n], eps=0.1)", Z / np.sqrt((Z**2).mean() + 0.1)),
        ("layer_norm[n](X[n], 1e-3)", (X - X.mean()) / np.sqrt(X.var() + 1e-3)),
        ("l2_norm[n](X[n])", X / np.sqrt((X**2).sum())),
        ("sum[a, c](X[a] * Z[c] * Z[n])", X.sum() * Z.sum() * Z),
        ("X[5 - n] + Z[n // 2] + Z[(n + 1) % 6]", X[5 - N] + Z[N // 2] + Z[(N + 1) % 6]),
    ],
)  # fmt: skip
def test_values(expression: str, expected: np.ndarray, values):
    used = {name: x for name, x in (("X", X), ("Z", Z)) if f"{name}[" in expression}
    text = ", ".join(f"{name}[6]" for name in used) + f" : f32\nindex n < 6\nY[n] = {expression}"
    np.testing.assert_allclose(values(text, **used)["Y"], expected, rtol=1e-12)


def test_masks_of_indices_are_masks_of_nodes():
    program = parse("X[6, 6] : f32\nY[q, s] = where(s <= q & q - s < 3 | not s == 0, X[q, s], 0)")
    assert [str(n.attr) for n in program.nodes if n.op == "mask"] != []
    assert not any(n.op in ("lt", "le", "eq") for n in program.nodes)


def test_lets_are_read_at_other_indices(values, random):
    x = random(4, 3)
    text = """
    X[4, 3] : f32
    let norm[b] = sqrt(sum[d](X[b, d]^2))
    let c = 2 + 1
    let sim[b, i] = sum[d](X[b, d] * X[i, d])
    Y[i, d] = sim[i, 3 - i] / norm[i] / norm[3 - i] * c + X[i, d]
    """
    norm = np.sqrt((x**2).sum(1))
    sim = np.diag((x @ x.T)[:, ::-1])
    expected = (sim / norm / norm[::-1] * 3)[:, None] + x
    np.testing.assert_allclose(values(text, X=x)["Y"], expected)


def test_an_index_of_a_sum_is_not_captured(values, random):
    x = random(4, 4)
    text = "X[4, 4] : f32\nlet t[b] = sum[d](X[b, d] * d)\nY[d] = t[d] + t[3 - d]"
    t = x @ np.arange(4)
    np.testing.assert_allclose(values(text, X=x)["Y"], t + t[::-1])


def test_outputs_may_be_read(values):
    got = values("X[3] : f32\nY[i] = X[i] + 1\nU[j] = Y[j] * 2", X=[1, 2, 3])
    assert got["U"].tolist() == [4, 6, 8]


def test_a_sum_of_products_is_a_contraction():
    program = parse("X[4, 5], G[5], W[5, 6] : f32\nY[b, n] = sum[d](X[b, d] * G[d] * W[d, n])")
    assert [n.op for n in program.nodes].count("matmul") == 1


@pytest.mark.parametrize(
    ("declarations", "output", "dtype"),
    [
        ("X[4], Z[4] : f16", "Y[i]", F16),
        ("X[4] : f16, Z[4] : bf16", "Y[i]", F32),
        ("X[4] : f16, Z[4] : i32", "Y[i]", F16),
        ("X[4], Z[4] : i8", "Y[i]", F32),
        ("X[4], Z[4] : f16", "Y[i] : bf16", BF16),
        ("X[4], Z[4] : float16", "Y[i]", F16),
        ("X[4], Z[4] : f16, Y[4] : bf16", "Y[i]", BF16),
        ("X[4], Z[4] : f16, Y[4] : bf16", "Y[i] : bf16", BF16),
    ],
)
def test_element_types(declarations: str, output: str, dtype: object):
    assert parse(f"{declarations}\n{output} = X[i] + Z[i]").outputs[0].tensor.dtype == dtype


def test_boolean_inputs_are_conditions(values):
    text = "X[3] : f32, M[3], K[3] : bool\nY[i] = where(M[i] & not K[i], X[i], 0)"
    got = values(text, X=[1, 2, 3], M=[1, 1, 0], K=[0, 1, 0])["Y"]
    assert got.tolist() == [1, 0, 0]


def test_names_and_order():
    program = parse("B = 2\nX[B], A[B] : f32\nY[b] = A[b] + X[b]", name="two")
    assert program.name == "two"
    assert [t.name for t in program.inputs] == ["X", "A"]
    assert parse("X[2] : f32\nY[i] = X[i]^2", file="dir/some.math").name == "some"


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("X[n] / 0", "division by zero"),
        ("X[n] / (1 - 1)", "division by zero"),
        ("X[n] // 2", "'//' works on indices only"),
        ("X[n] % 2", "'%' works on indices only"),
        ("X[n] & n < 3", "a number where a condition is needed"),
        ("not X[n]", "a number where a condition is needed"),
        ("cast(X[n], f17)", "unknown element type 'f17'"),
        ("cast(X[n], 16)", "the second argument of cast is a type"),
        ("cast(X[n])", "'cast' takes 2 arguments, not 1"),
        ("exp()", "'exp' takes 1 argument, not 0"),
        ("exp(X[n], 2)", "'exp' takes 1 argument, not 2"),
        ("max(X[n])", "'max' takes 2 or more arguments, not 1"),
        ("softmax(X[n])", "'softmax' does not say over which index"),
        ("exp[n](X[n])", "'exp' works on each element and takes no index"),
        ("exp(x=X[n])", "'exp' has no argument named 'x'"),
        ("sum[n](X[n], 3)", "'sum' is given 2 arguments"),
        ("sum[n]()", "'sum' is given 0 arguments"),
        ("rms_norm[n](X[n], eps=X[n])", "eps must be a number"),
        ("rms_norm[n](X[n], eps=1, eps=2)", "'rms_norm' is given 3 arguments"),
        ("sum[n]", "'sum' needs its argument"),
        ("X[n, 0]", "'X' has 1 axis but is given 2 indices"),
        ("X[n] + c[0]", "'c' has 0 axes but is given 1 index"),
        ("foo(X[n])", "unknown function 'foo'"),
        ("Xn(2)", "unknown function 'Xn'"),
        ("X[n](2)", "'X' is a tensor, not a function"),
        ("Z[n]", "unknown tensor 'Z'"),
        ("alpha * X[n]", "unknown name 'alpha'"),
        ("exp * X[n]", "'exp' is a function and cannot be an index"),
    ],
)
def test_expressions_that_cannot_be(expression: str, what: str, error):
    assert what in error(f"X[6] : f32\nlet c = 1\nY[n] = {expression}").what


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the spec defines no output"),
        ("# only this", "the spec defines no output"),
        ("X[6] : f32", "the spec defines no output"),
        ("X[6] : f32\nlet t[n] = X[n]^2", "the spec defines no output"),
        ("X[6] : f32\nlet t[n] = X[n]^2\nY[n] = X[n]^2", "intermediate tensor 't' is never read"),
        ("X[6], Z[6] : f32\nY[n] = X[n]^2", "input 'Z' is never read"),
        ("X[6] : f32\nX[n] = X[n]^2", "'X' is read before it is defined"),
        ("X[6] : f32\nlet X[n] = 2", "'X' is defined twice"),
        ("X[6], Y[6] : f32\nY[n] = X[n]^2\nY[n] = X[n]", "'Y' is defined twice"),
        ("X[6], Y[6] : f32\nY[n] : f16 = X[n]^2", "'Y' has two element types"),
        ("X[6], Z[] : f32\nY[n] = X[n]^2", "'Z' has no axes"),
        ("X[6] : f32\nY[] = sum[n](X[n])", "'Y' has no axes"),
        ("X[0] : f32\nY[n] = X[n]", "has extent 0"),
        ("X[6] : f99\nY[n] = X[n]", "unknown element type 'f99'"),
        ("X[6] : f32\nf32[n] = X[n]", "'f32' is an element type"),
        ("X[6] : f32\ninf[n] = X[n]", "'inf' is a constant"),
    ],
)
def test_specs_that_cannot_be(text: str, what: str, error):
    assert what in error(text).what


def test_deep_chains_of_lets_are_refused_not_fatal(error):
    steps = [f"let t{i}[n] = t{i - 1}[7 - n] + 1" for i in range(1, 600)]
    text = "X[8] : f32\nlet t0[n] = X[n]\n" + "\n".join(steps) + "\nY[n] = t599[n]"
    assert "too deeply" in error(text).what


def test_unsupported_stays_unsupported_and_says_where(monkeypatch):
    def refuse(*_: object) -> int:
        raise UnsupportedError("no such thing", repair="none")

    monkeypatch.setattr("mirage_py.ugraph.building.builder.ProgramBuilder.apply", refuse)
    with pytest.raises(UnsupportedError) as caught:
        parse("X[8] : f32\nY[n] = exp(X[n])", file="a.math")
    assert caught.value.where == "a.math:2:8"
