"""Sums of products become contractions, whatever the shape of the product."""

from __future__ import annotations

import numpy as np

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32

SIZES = "B = 2, D = 3, N = 4\nX[B, D], W[D, N] : f32\nlet p0[b, d] = X[b, d]\n"


def test_factors_are_contracted_from_left_to_right():
    builder = ProgramBuilder("chain")
    for dim, size in (("b", 2), ("d", 3), ("k", 5), ("n", 4)):
        builder.dim(dim, size)
    for name, dims in (("X", "bd"), ("W", "dk"), ("U", "kn")):
        builder.input(name, [builder.sizes[d] for d in dims], F32)
    x, w, u = (builder.load(n, list(d)) for n, d in (("X", "bd"), ("W", "dk"), ("U", "kn")))
    product = builder.apply("mul", x, builder.apply("mul", w, u))
    result = builder.nodes[builder.sum(product, ["d", "k"])]
    assert (result.op, result.reduced) == ("matmul", ("k",))
    assert [builder.nodes[a].op for a in result.args] == ["load", "matmul"]


def test_a_product_squared_many_times_is_summed_in_no_time():
    lets = "".join(f"let p{n + 1}[b, d] = p{n}[b, d] * p{n}[b, d]\n" for n in range(60))
    program = parse(f"{SIZES}{lets}Y[b, n] = sum[d](p60[b, d] * W[d, n])")
    assert len(program.nodes) < 200
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.choice([-1.0, 1.0], t.shape) for t in program.inputs}
    (value,) = evaluate_program(program, inputs, FloatMeaning()).values()
    np.testing.assert_array_equal(value, np.ones((2, 3)) @ inputs["W"])


def test_a_product_of_the_two_before_is_summed_in_no_time():
    lets = "".join(f"let p{n + 2}[b, d] = p{n}[b, d] * p{n + 1}[b, d]\n" for n in range(60))
    text = f"{SIZES}let p1[b, d] = -X[b, d]\n{lets}Y[b, n] = sum[d](p61[b, d] * W[d, n])"
    assert [n.op for n in parse(text).nodes].count("matmul") == 1
