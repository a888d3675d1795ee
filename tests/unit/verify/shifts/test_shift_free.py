from __future__ import annotations

import math

import pytest
import torch

from mirage_py.frontend.spec import parse
from mirage_py.frontend.torch import trace
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BOOL, F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.field_test.programs import compare_programs
from mirage_py.verify.shifts import shift_free
from mirage_py.verify.shifts.shift_free import remove_free_shifts

HEAD = "R = 64, N = 1000\nX[R, N] : f32\n"
FREE = HEAD + "let E[r, k] = exp(X[r, k])\nY[r, k] = E[r, k] / sum[k](E[r, k])"


def removed(text: str) -> tuple[Program, int]:
    program, what = remove_free_shifts(parse(text), seed=7)
    return program, len(what)


def operators(program: Program) -> list[str]:
    return [n.op for n in program.nodes]


@pytest.mark.parametrize(
    "exponent",
    [
        "X[r, k] - M[r]",
        "-1.0 * (M[r] - X[r, k])",
        "X[r, k] + -1.0 * M[r]",
        "X[r, k] - M[r] - 3",
        "X[r, k] - max(M[r], -1e30)",
        "(X[r, k] - M[r]) * 0.125",
    ],
)
def test_spellings_of_a_safe_softmax(exponent):
    text = (
        HEAD + "let M[r] = max[k](X[r, k])\n"
        f"let E[r, k] = exp({exponent})\nY[r, k] = E[r, k] / sum[k](E[r, k])"
    )
    program, count = removed(text)
    assert count >= 1
    assert "max" not in operators(program)
    assert "sub" not in operators(program)
    again, nothing = remove_free_shifts(program, seed=8)
    assert again == program
    assert nothing == ()


def test_both_spellings_become_one_program():
    text = (
        HEAD + "let M[r] = max[k](X[r, k])\nlet E[r, k] = exp(X[r, k] - M[r])\n"
        "Y[r, k] = E[r, k] / sum[k](E[r, k])"
    )
    free, _ = removed(FREE)
    safe, _ = removed(text)
    assert safe.nodes == free.nodes


def test_any_value_of_a_row_is_a_free_shift():
    text = (
        HEAD + "let M[r] = mean[k](X[r, k])\nlet E[r, k] = exp(X[r, k] - M[r])\n"
        "Y[r, k] = E[r, k] / sum[k](E[r, k])"
    )
    program, count = removed(text)
    assert count == 1
    assert "size" not in operators(program)


@pytest.mark.parametrize(
    "text",
    [
        # The maximum is a result too.
        "let M[r] = max[k](X[r, k])\nY[r] = M[r]",
        # exp alone keeps its scale.
        "let M[r] = max[k](X[r, k])\nY[r, k] = exp(X[r, k] - M[r])",
        # The log of a sum without what was taken out, or with it taken out twice.
        "let M[r] = max[k](X[r, k])\nY[r] = log(sum[k](exp(X[r, k] - M[r])))",
        "let M[r] = max[k](X[r, k])\nY[r] = log(sum[k](exp(X[r, k] - M[r]))) - M[r]",
        "let M[r] = max[k](X[r, k])\nY[r] = log(sum[k](exp(X[r, k] - M[r])^2)) + M[r]",
        "let M[r] = max[k](X[r, k])\nY[r] = log(1 + sum[k](exp(X[r, k] - M[r]))) + M[r]",
        # A centred value outside an exponential.
        "let M[r] = mean[k](X[r, k])\nY[r] = sum[k]((X[r, k] - M[r])^2)",
        # The shift varies along the sum.
        "Y[r, k] = exp(X[r, k]) / sum[k](exp(X[r, k] - max[r](X[r, k])))",
        # The scale does not cancel beside a constant.
        (
            "let M[r] = max[k](X[r, k])\nlet E[r, k] = exp(X[r, k] - M[r])\n"
            "Y[r, k] = E[r, k] / (sum[k](E[r, k]) + 1)"
        ),
    ],
)
def test_what_matters_stays(text):
    program = parse(HEAD + text)
    kept, what = remove_free_shifts(program, seed=3)
    assert what == ()
    assert kept == program


def test_a_maximum_with_two_uses_is_removed_from_one():
    text = (
        HEAD + "let M[r] = max[k](X[r, k])\nlet E[r, k] = exp(X[r, k] - M[r])\n"
        "Y[r, k] = E[r, k] / sum[k](E[r, k])\nZ[r] = M[r]"
    )
    program, count = removed(text)
    assert count == 1
    assert "max" in operators(program)
    assert "sub" not in operators(program)


def test_an_input_that_only_shifts_is_still_read():
    text = (
        "R = 8, N = 9\nX[R, N], B[R] : f32\nlet E[r, k] = exp(X[r, k] - B[r])\n"
        "Y[r, k] = E[r, k] / sum[k](E[r, k])"
    )
    program, count = removed(text)
    assert count == 0
    assert [t.name for t in program.inputs] == ["X", "B"]


def test_a_maximum_over_masked_values():
    b = ProgramBuilder("masked")
    b.dim("r", 64)
    b.dim("n", 96)
    b.input("X", (64, 96), F32)
    x = b.load("X", ["r", "n"])
    mask = b.mask(ix.compare("le", ix.dim("n"), ix.dim("r") + 32))
    masked = b.apply("where", mask, x, b.const(-math.inf))
    e = b.apply("exp", b.apply("sub", masked, b.max(masked, ["n"])))
    b.output("Y", b.apply("div", e, b.sum(e, ["n"])), ["r", "n"], F32)
    program, what = remove_free_shifts(lower_masks(b.build()), seed=1)
    assert len(what) == 1
    assert "max" not in operators(program)
    assert "where" not in operators(program)


def test_two_softmaxes_in_one_program():
    text = (
        "R = 8, N = 9, M = 10\nX[R, N], U[R, M] : f32\n"
        "let A[r, n] = exp(X[r, n] - max[n](X[r, n]))\n"
        "let B[r, m] = exp(U[r, m] - max[m](U[r, m]))\n"
        "Y[r, n, m] = A[r, n] / sum[n](A[r, n]) * B[r, m] / sum[m](B[r, m])"
    )
    program, count = removed(text)
    assert count == 2
    assert "max" not in operators(program)


def test_interface_and_strides_stay():
    b = ProgramBuilder("strided")
    b.dim("r", 6)
    b.dim("n", 7)
    b.input("X", (6, 7), F32, (1, 6))
    x = b.load("X", ["r", "n"])
    e = b.apply("exp", b.apply("sub", x, b.max(x, ["n"])))
    b.output("Y", b.apply("div", e, b.sum(e, ["n"])), ["n", "r"], F32)
    program = b.build()
    found, _ = remove_free_shifts(program, seed=1)
    assert found.inputs == program.inputs
    assert found.dims == program.dims
    assert [(o.tensor, o.index) for o in found.outputs] == [
        (o.tensor, o.index) for o in program.outputs
    ]


LSE = "Y[r] = log(sum[k](exp(X[r, k])))"


@pytest.mark.parametrize(
    ("spelled", "free"),
    [
        ("Y[r] = log(sum[k](exp(X[r, k] - M[r]))) + M[r]", LSE),
        ("Y[r] = M[r] + log(sum[k](exp(X[r, k] - M[r])))", LSE),
        (
            "let Z[r, k] = X[r, k] - M[r]\nY[r, k] = Z[r, k] - log(sum[k](exp(Z[r, k])))",
            "Y[r, k] = X[r, k] - log(sum[k](exp(X[r, k])))",
        ),
        (
            "let L[r] = log(sum[k](exp(X[r, k] - M[r]))) + M[r]\nY[0] = mean[r](L[r] - X[r, 0])",
            "Y[0] = mean[r](log(sum[k](exp(X[r, k]))) - X[r, 0])",
        ),
        (
            "let L[r] = log(sum[k](exp(X[r, k] - M[r])))\nY[r] = L[r] - (X[r, 0] - M[r])",
            "Y[r] = log(sum[k](exp(X[r, k]))) - X[r, 0]",
        ),
        (
            "Y[r] = log(sum[k](exp(X[r, k] - M[r]))) + M[r]\nU[r] = M[r] * 2",
            LSE + "\nU[r] = max[k](X[r, k]) * 2",
        ),
    ],
)
def test_spellings_of_log_sum_exp(spelled, free):
    program, count = removed(HEAD + "let M[r] = max[k](X[r, k])\n" + spelled)
    expected, nothing = removed(HEAD + free)
    assert count >= 1
    assert nothing == 0
    assert [n.op for n in program.nodes].count("exp") == 1
    assert sorted(operators(program)) == sorted(operators(expected))
    if "U[r]" not in spelled:
        assert program.nodes == expected.nodes


def test_log_sum_exp_of_masked_values():
    b = ProgramBuilder("masked")
    b.dim("r", 64)
    b.dim("n", 96)
    b.input("X", (64, 96), F32)
    b.input("M", (64, 96), BOOL)
    x = b.load("X", ["r", "n"])
    masked = b.apply("where", b.load("M", ["r", "n"]), b.const(-math.inf), x)
    top = b.max(masked, ["n"])
    total = b.sum(b.apply("exp", b.apply("sub", masked, top)), ["n"])
    b.output("Y", b.apply("add", b.apply("log", total), top), ["r"], F32)
    program, what = remove_free_shifts(lower_masks(b.build()), seed=1)
    assert len(what) == 1
    assert "max" not in operators(program)


def test_soft_capped_scores():
    text = (
        HEAD + "let S[r, k] = 30 * tanh(X[r, k] / 30)\n"
        "let E[r, k] = exp(S[r, k] - max[k](S[r, k]))\nY[r, k] = E[r, k] / sum[k](E[r, k])"
    )
    program, count = removed(text)
    assert count == 1
    assert "max" not in operators(program)


def test_softmax_behind_a_padded_convolution_at_its_real_sizes():
    """Its windows cannot shrink: to evaluate them would be 10^13 operations."""
    b = ProgramBuilder("conv")
    for name, size in (("n", 16), ("o", 128), ("c", 64), ("k", 3), ("h", 4096), ("w", 4096)):
        b.dim(name, size)
    b.input("X", (16, 64, 4096, 4096), F32)
    b.input("W", (128, 64, 3), F32)
    h = (ix.dim("h") + ix.dim("k") + 4095) % 4096
    inside = ix.compare("ge", ix.dim("h") + ix.dim("k"), 1)
    x = b.apply("mul", b.mask(inside), b.load("X", [ix.dim("n"), ix.dim("c"), h, ix.dim("w")]))
    y = b.matmul(x, b.load("W", ["o", "c", "k"]), ["c", "k"])
    mean = b.apply("div", b.sum(y, ["h", "w"]), b.const(4096.0))
    exp = b.apply("exp", b.apply("sub", mean, b.max(mean, ["o"])))
    b.output("Y", b.apply("div", exp, b.sum(exp, ["o"])), ["n", "o"], F32)
    program, what = remove_free_shifts(b.build(), seed=1)
    assert len(what) == 1
    assert "max" not in operators(program)
    exp = next(n for n in program.nodes if n.op == "exp")
    assert program.nodes[exp.args[0]].op == "div"


def test_what_is_reduced_apart_matters_where_no_sum_divides_it_away():
    text = HEAD + "let M[r] = max[k](X[r, k])\nY[r, k] = exp(X[r, k] - M[r]) / M[r]"
    program, count = removed(text)
    assert count == 0
    assert "max" in operators(program)


PROJECTED = """
S = 6, T = 6, D = 4, N = 4, M = 4
X[S, D], U[D, N], V[D, N], B[D] : f32
let H[s, d] = X[s, d] * 2.0 + B[d]
let P[s, t] = exp(sum[n](sum[d](QUERIES[s, d] * U[d, n]) * sum[d](H[t, d] * V[d, n])))
O[s, m] = sum[t](P[s, t] * X[t, m]) / sum[t](P[s, t])
"""


def test_a_bias_stays_in_operands_of_matmuls_that_others_share():
    """Keys would need none, but what queries are made of has it: without it there are two operands
    to compute and to read.
    """
    text = PROJECTED.replace("QUERIES", "H")
    program, count = removed(text)
    assert count == 0
    assert program == parse(text)


def test_a_bias_that_queries_do_not_have_goes():
    _, count = removed(PROJECTED.replace("QUERIES", "X").replace("X[t, m]", "H[t, m]", 1))
    assert count == 1


def test_many_shifts_are_found_together(monkeypatch: pytest.MonkeyPatch):
    """Each was tested by itself, and again after each that was removed: unrolled steps of a
    recurrence with 80 softmaxes took minutes.
    """
    count = []
    evaluate = shift_free.evaluate_program
    monkeypatch.setattr(shift_free, "evaluate_program", lambda *a: count.append(1) or evaluate(*a))
    rows = 12

    def fn(x, bias):
        total = 0
        for n in range(rows):
            z = x[n] * (n + 1) + bias
            e = torch.exp(z - z.amax(-1, keepdim=True))
            total = total + e / e.sum(-1, keepdim=True)
        # A maximum that is needed besides.
        return total * x[0].amax(-1, keepdim=True)

    program = trace(fn, torch.empty(rows, 5, 7), torch.empty(7))
    free, removed = remove_free_shifts(lower_masks(program), seed=0)
    assert len(removed) == rows
    assert sum(n.op == "max" for n in free.nodes) == 1
    assert compare_programs(program, free).equal
    assert len(count) < 100


def test_pieces_of_a_stack_all_count():
    """Of fewer points than there are pieces some were no part of the result, and what is added to
    each column of these a shift that nothing depends on.
    """

    def fn(x, bias):
        return torch.stack([torch.softmax(x[n] + bias, -1) for n in range(12)]).sum(0)

    program = trace(fn, torch.empty(12, 5, 7), torch.empty(7))
    free, removed = remove_free_shifts(lower_masks(program), seed=0)
    assert not removed
    assert free == lower_masks(program)


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("kept", [6, 4])
def test_an_additive_mask_is_no_shift(low: float, kept: int):
    """(1 - keep) * low, as transformers extends masks: without the 1 what is kept is -low larger,
    and has no digits left. No plan of such attention passed its check.
    """

    def fn(scores, keep):
        return torch.softmax(scores + (1.0 - keep[:, None, :]) * low, -1)

    scores, keep = torch.randn(2, 5, 6), torch.ones(2, 6)
    keep[:, kept:] = 0
    program = normalise(trace(fn, scores, keep))
    found = torch_function(program)(scores, keep)
    torch.testing.assert_close(found, fn(scores, keep))
