"""``@`` and tensors without indices."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.frontend.spec import parse

HEAD = """
H = 3, T = 4, S = 5, D = 6, N = 7
X[T, D], W[D, N], Q[H, T, D], K[H, D, S], V[H, S, D], G[N], u[D], P[N, D] : f32
"""


@pytest.fixture
def tensors(random):
    sizes = {"H": 3, "T": 4, "S": 5, "D": 6, "N": 7}
    shapes = {
        "X": "TD",
        "W": "DN",
        "Q": "HTD",
        "K": "HDS",
        "V": "HSD",
        "G": "N",
        "u": "D",
        "P": "ND",
    }
    return {name: random(*(sizes[s] for s in shape)) for name, shape in shapes.items()}


def test_matrices(values, tensors):
    check(values, tensors, "Y[t, n] = X @ W", lambda X, W: X @ W)


def test_vectors(values, tensors):
    check(values, tensors, "Y[t] = X @ u", lambda X, u: X @ u)
    check(values, tensors, "Y[n] = u @ W", lambda W, u: u @ W)
    check(values, tensors, "Y[t] = (u @ u) * X @ u", lambda X, u: (u @ u) * (X @ u))


def test_batches_and_broadcasting(values, tensors):
    check(values, tensors, "Y[h, t, s] = Q @ K", lambda Q, K: Q @ K)
    check(values, tensors, "Y[h, t, n] = Q @ W + G", lambda Q, W, G: Q @ W + G)
    check(values, tensors, "Y[t, n] = (X @ W) * G", lambda X, W, G: (X @ W) * G)


def test_transposes(values, tensors):
    check(values, tensors, "Y[t, n] = X @ P'", lambda X, P: X @ P.T)
    check(values, tensors, "Y[t, n] = X @ P.T", lambda X, P: X @ P.T)
    check(values, tensors, "Y[n, t] = (X @ W)'", lambda X, W: (X @ W).T)
    check(values, tensors, "Y[h, s, t] = K' @ Q'", lambda Q, K: (Q @ K).transpose(0, 2, 1))


def test_with_indices(values, tensors):
    check(values, tensors, "Y[t, n] = X[t, d] @ W[d, n]", lambda X, W: X @ W)
    check(values, tensors, "Y[n, t] = X[t, d] @ W[d, n]", lambda X, W: (X @ W).T)
    check(values, tensors, "Y[t, n] = X[t, k] @ W", lambda X, W: X @ W)
    check(values, tensors, "Y[t, n] = X @ W[k, n]", lambda X, W: X @ W)
    check(values, tensors, "Y[t] = X @ u[k]", lambda X, u: X @ u)
    check(values, tensors, "Y[n] = u[k] @ W[k, n]", lambda W, u: u @ W)
    check(values, tensors, "Y[t, n] = (X[t, d] * u[d]) @ W[d, n]", lambda X, u, W: (X * u) @ W)


def test_chains(values, tensors):
    check(
        values,
        tensors,
        "Y[h, t, e] = softmax[s](Q @ K) @ V",
        lambda Q, K, V: softmax(Q @ K) @ V,
    )
    check(values, tensors, "Y[t, d] = X @ W @ P", lambda X, W, P: X @ W @ P)


def test_lets(values, tensors):
    check(values, tensors, "let a[t, n] = X @ W\nY[t, d] = a @ P", lambda X, W, P: X @ W @ P)
    check(values, tensors, "let c = u @ u\nY[t, d] = X * c", lambda X, u: X * (u @ u))


def test_the_summed_index_is_named_after_its_size():
    by_hand = parse(
        "T = 4, D = 6, N = 7\nX[T, D], W[D, N] : f32\n"
        "Y[t, n] = sum[d](X[t, d] * W[d, n]) / sqrt(mean[d](X[t, d]^2))"
    )
    short = parse(
        "T = 4, D = 6, N = 7\nX[T, D], W[D, N] : f32\nY[t, n] = X @ W / sqrt(mean[d](X[t, d]^2))"
    )
    assert short.digest == by_hand.digest


def test_the_summed_index_is_shared_between_products():
    program = parse(
        "T = 4, D = 6, N = 7\nX[T, D], W[D, N], U[D, N] : f32\nY[t, n] = (X @ W) * (X @ U)"
    )
    assert program.dim_names == ("t", "n", "d")


def test_the_summed_index_is_new_where_its_name_is_taken(values, random):
    a, b = random(6, 6), random(6, 6)
    text = "D = 6\nA[D, D], B[D, D] : f32\nY[c, d] = A @ B @ A"
    np.testing.assert_allclose(values(text, A=a, B=b)["Y"], a @ b @ a)
    # A letter that stands on another size's axis is taken too.
    text = "D = 6, N = 7\nA[N, D], B[D, N], C[N] : f32\nY[m, n] = A @ B + sum[d](C[d])"
    c = random(7)
    a, b = random(7, 6), random(6, 7)
    np.testing.assert_allclose(values(text, A=a, B=b, C=c)["Y"], a @ b + c.sum())


@pytest.mark.parametrize(
    ("equation", "what"),
    [
        ("Y[t] = X @ W", "more axes than the left side"),
        ("Y[t] = X * 2", "'X' has 2 axes, but only 1 is left"),
        ("Y[t, n] = u' @ W", "only a matrix"),
        ("Y[t, n] = X[t, d]' @ W", "only a matrix"),
        ("Y[t, n] = X[t, d + 0] @ W[d, n]", "sums over a plain index"),
        ("Y[t, n] = X[t, d] @ W[e, n]", "sums over 'd' on its left but 'e' on its right"),
        ("Y[t, n] = (X[t, d] * 2) @ (W[d, n] * 2)", "cannot tell over which index"),
        ("Y[t, n] = 2 @ W", "on which its left side does not depend"),
        ("Y[t, n] = 2 @ 3", "cannot tell over which index"),
        ("Y[t, n] = Nothing @ W", "on which its left side does not depend"),
        ("Y[t, n] = softmax[k](X @ W)", "does not depend on it"),
    ],
)
def test_products_that_cannot_be(equation: str, what: str, error):
    assert what in error(HEAD + equation).what


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def check(values, tensors, equation, reference):
    """The equation's Y is what ``reference`` makes of the tensors it names."""
    names = reference.__code__.co_varnames
    head = "H = 3, T = 4, S = 5, D = 6, N = 7\n"
    declared = {
        "X": "X[T, D]", "W": "W[D, N]", "Q": "Q[H, T, D]", "K": "K[H, D, S]", "V": "V[H, S, D]",
        "G": "G[N]", "u": "u[D]", "P": "P[N, D]",
    }  # fmt: skip
    text = head + ", ".join(declared[n] for n in names) + " : f32\n" + equation
    inputs = {n: tensors[n] for n in names}
    np.testing.assert_allclose(values(text, **inputs)["Y"], reference(**inputs), rtol=1e-12)
