"""Masks lose their minus infinities and keep their meaning."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.building import composites
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BOOL, F16, F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.masks import lower_masks, outputs_that_select_infinity

ROWS, COLUMNS = 6, 9
INF = float("inf")
Q, S = ix.dim("q"), ix.dim("s")
CAUSAL = ix.compare("le", S, Q + 3)
WINDOW = ix.compare("lt", Q - S, 4)


class Expression(ProgramBuilder):
    """A builder over X[q, s], M[q, s] with names for what masks are made of."""

    def __init__(self) -> None:
        super().__init__("masked")
        self.dim("q", ROWS)
        self.dim("s", COLUMNS)
        self.input("X", (ROWS, COLUMNS), F32)
        self.x = self.load("X", ("q", "s"))
        self.minus_infinity = self.const(-INF)
        self.causal = self.mask(CAUSAL)
        self.window = self.mask(WINDOW)

    def where(self, condition: int, x: int, y: int) -> int:
        return self.apply("where", condition, x, y)

    def masked(self, x: int) -> int:
        return self.where(self.causal, x, self.minus_infinity)

    def ratio(self, x: int) -> int:
        return self.apply("div", x, self.sum(x, ["s"]))

    def program(self, node: int) -> Program:
        dims = self.nodes[node].dims
        self.output("Y", node, dims, F32)
        return self.build()


def additive(b: Expression) -> int:
    penalty = b.where(b.causal, b.const(0.0), b.minus_infinity)
    return b.ratio(b.apply("exp", b.apply("add", b.x, penalty)))


def additive_left(b: Expression) -> int:
    penalty = b.where(b.causal, b.const(0.0), b.minus_infinity)
    return b.apply("exp", b.apply("add", penalty, b.x))


def chosen(b: Expression) -> int:
    return b.ratio(b.apply("exp", b.masked(b.x)))


def negated(b: Expression) -> int:
    return b.apply("exp", b.where(b.causal, b.minus_infinity, b.x))


def scaled(b: Expression) -> int:
    half = b.apply("div", b.masked(b.x), b.const(2.0))
    return b.apply("exp", b.apply("mul", b.const(0.5), half))


def divided_by_an_extent(b: Expression) -> int:
    return b.apply("exp", b.apply("div", b.masked(b.x), b.size("s")))


def cast(b: Expression) -> int:
    return b.apply("exp", b.cast(b.masked(b.x), F16))


def twice(b: Expression) -> int:
    inner = b.where(b.window, b.masked(b.x), b.minus_infinity)
    return b.apply("exp", b.apply("add", inner, b.masked(b.const(1.0))))


def shifted(b: Expression) -> int:
    logits = b.masked(b.x)
    return b.ratio(b.apply("exp", b.apply("sub", logits, b.max(logits, ["s"]))))


def shifted_by_scaled_maximum(b: Expression) -> int:
    logits = b.apply("mul", b.masked(b.x), b.const(0.5))
    top = b.max(b.where(b.window, logits, b.minus_infinity), ["s"])
    return b.apply("exp", b.apply("sub", logits, top))


def either(b: Expression) -> int:
    other = b.where(b.window, b.apply("neg", b.x), b.minus_infinity)
    return b.apply("exp", b.where(b.mask(ix.compare("lt", S, 3)), b.x, other))


def sigmoid(b: Expression) -> int:
    return b.apply("sigmoid", b.masked(b.x))


def relu(b: Expression) -> int:
    return b.apply("relu", b.masked(b.x))


def zero(b: Expression) -> int:
    return b.where(b.causal, b.apply("exp", b.x), b.const(0.0))


def zero_on_the_left(b: Expression) -> int:
    return b.where(b.causal, b.const(0.0), b.apply("exp", b.x))


def on_values(b: Expression) -> int:
    positive = b.apply("gt", b.x, b.const(0.0))
    return b.apply("exp", b.where(positive, b.x, b.minus_infinity))


def safe_on_values(b: Expression) -> int:
    positive = b.apply("gt", b.x, b.const(0.0))
    return b.where(positive, b.apply("log", b.x), b.const(0.0))


def finite_choice(b: Expression) -> int:
    return b.where(b.causal, b.x, b.apply("neg", b.x))


def softmax(b: Expression) -> int:
    return composites.softmax(b, b.masked(b.x), ["s"])


FORMS = (
    additive, additive_left, chosen, negated, scaled, divided_by_an_extent, cast, twice, shifted,
    shifted_by_scaled_maximum, either, sigmoid, relu, zero, zero_on_the_left, on_values,
    safe_on_values, finite_choice, softmax,
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_value_stays(form):
    b = Expression()
    program = b.program(form(b))
    inputs = {"X": np.random.default_rng(0).normal(size=(ROWS, COLUMNS))}
    before = evaluate_program(program, inputs, FloatMeaning())["Y"]
    lowered = lower_masks(program)
    after = evaluate_program(lowered, inputs, FloatMeaning())["Y"]
    assert np.isfinite(before).all()
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert_infinity_only_under_max(lowered)
    assert lower_masks(lowered).digest == lowered.digest
    assert lowered.inputs == program.inputs
    assert [o.tensor for o in lowered.outputs] == [o.tensor for o in program.outputs]


def assert_infinity_only_under_max(program: Program) -> None:
    for number, node in enumerate(program.nodes):
        readers = [n for n in program.nodes if number in n.args]
        if node.attr == -INF:
            assert {n.op for n in readers} == {"where"}
        if node.op == "where" and any(program.nodes[a].attr == -INF for a in node.args):
            assert {n.op for n in readers} == {"max"}


@pytest.mark.parametrize(
    "form", [additive, chosen, negated, twice, cast, scaled, zero, sigmoid, either]
)
def test_one_mask_stands_beside_the_function(form):
    b = Expression()
    lowered = lower_masks(b.program(form(b)))
    products = [n for n in lowered.nodes if n.op == "mul" and lowered.nodes[n.args[1]].op == "mask"]
    assert [lowered.nodes[n.args[0]].op for n in products] in (["exp"], ["sigmoid"])


def test_a_mask_silences_infinity():
    b = Expression()
    program = lower_masks(b.program(zero(b)))
    x = np.full((ROWS, COLUMNS), 1e6)
    x[:, 0] = 1.0
    x[0, :4] = 1.0
    got = evaluate_program(program, {"X": x}, FloatMeaning())["Y"]
    assert (got[0, 4:] == 0).all()


def test_boolean_tensors_mask_too():
    b = Expression()
    b.input("M", (ROWS, COLUMNS), BOOL)
    keep = b.load("M", ("q", "s"))
    program = b.program(b.apply("exp", b.where(keep, b.x, b.minus_infinity)))
    rng = np.random.default_rng(2)
    m = (rng.random((ROWS, COLUMNS)) < 0.5).astype(float)
    inputs = {"X": rng.normal(size=(ROWS, COLUMNS)), "M": m}
    lowered = lower_masks(program)
    got = evaluate_program(lowered, inputs, FloatMeaning())["Y"]
    np.testing.assert_allclose(got, m * np.exp(inputs["X"]))
    assert not any(n.op == "where" for n in lowered.nodes)


def test_strides_and_output_layout_stay():
    b = ProgramBuilder("t")
    b.dim("q", 2)
    b.dim("s", 3)
    b.input("X", (2, 3), F32, (1, 2))
    masked = b.apply("where", b.mask(CAUSAL), b.load("X", ("q", "s")), b.const(0.0))
    b.output("Y", masked, (S * 2 + Q,), F16)
    program = b.build()
    lowered = lower_masks(program)
    assert lowered.inputs[0].strides == (1, 2)
    assert lowered.outputs[0].index == program.outputs[0].index


def test_programs_without_masks_are_left_alone():
    b = Expression()
    program = b.program(b.ratio(b.x))
    assert lower_masks(program) is program


def test_many_paths_and_depth_cost_no_more_than_nodes():
    b = Expression()
    logits = b.masked(b.x)
    for _ in range(400):
        logits = b.apply("mul", b.apply("add", logits, logits), b.const(0.5))
    program = b.program(b.apply("exp", logits))
    inputs = {"X": np.random.default_rng(0).normal(size=(ROWS, COLUMNS))}
    lowered = lower_masks(program)
    assert len(lowered.nodes) < 1000
    got = evaluate_program(lowered, inputs, FloatMeaning())["Y"]
    q, s = np.indices((ROWS, COLUMNS))
    np.testing.assert_allclose(got, np.exp(inputs["X"]) * (s <= q + 3))


def test_a_result_may_select_it():
    b = Expression()
    program = b.program(b.where(b.apply("gt", b.x, b.const(0.5)), b.masked(b.x), b.const(0.25)))
    lowered = lower_masks(program)
    assert outputs_that_select_infinity(lowered) == {"Y"}
    inputs = {"X": np.random.default_rng(0).normal(size=(ROWS, COLUMNS))}
    q, s = np.indices((ROWS, COLUMNS))
    x = inputs["X"]
    right = np.where(x > 0.5, np.where(s <= q + 3, x, -INF), 0.25)
    got = evaluate_program(lowered, inputs, FloatMeaning())["Y"]
    np.testing.assert_array_equal(got, right)
    other = Expression()
    other = other.program(other.apply("exp", other.masked(other.x)))
    assert outputs_that_select_infinity(other) == set()


@pytest.mark.parametrize(
    ("form", "what"),
    [
        (lambda b: b.where(b.causal, b.x, b.const(INF)), "infinity reaches output Y"),
        (lambda b: b.sum(b.masked(b.x), ["s"]), "minus infinity reaches sum[s]"),
        (lambda b: b.apply("square", b.masked(b.x)), "minus infinity reaches square of [q, s]"),
        (lambda b: b.apply("exp", b.apply("neg", b.masked(b.x))), "reaches neg"),
        (lambda b: b.apply("exp", b.apply("mul", b.masked(b.x), b.const(-1.0))), "reaches mul"),
        (lambda b: b.apply("exp", b.apply("sub", b.x, b.masked(b.x))), "reaches sub"),
        (
            lambda b: b.max(b.where(b.causal, b.x, b.const(INF)), ["s"]),
            "infinity reaches max[s]",
        ),
        (lambda b: b.apply("maximum", b.masked(b.x), b.x), "reaches maximum"),
    ],
)
def test_what_is_left_is_refused(form, what: str):
    b = Expression()
    with pytest.raises(UnsupportedError) as caught:
        lower_masks(b.program(form(b)))
    assert what in caught.value.what
    assert caught.value.where == "masked, output Y"
    assert "1e9" in caught.value.repair
    assert caught.value.exit_code == 5


def test_a_mask_that_holds_everywhere_is_none():
    """An attention to everything: torch writes it as positions that are not negative."""
    b = Expression()
    penalty = b.where(b.mask(ix.compare("ge", Q, 0)), b.const(0.0), b.minus_infinity)
    plain = Expression()
    assert (
        lower_masks(b.program(b.ratio(b.apply("exp", b.apply("add", b.x, penalty))))).digest
        == plain.program(plain.ratio(plain.apply("exp", plain.x))).digest
    )
    assert b.where(b.mask(ix.compare("lt", Q, 0)), b.minus_infinity, b.x) == b.x


def test_a_mask_that_holds_everywhere_keeps_its_dimensions():
    """How many there are is a sum of nothing but the mask."""
    b = Expression()
    held = b.mask(ix.compare("ge", S, 0))
    count = b.sum(b.apply("mul", b.const(2.0), held), ["s"])
    program = b.program(b.apply("div", b.x, count))
    x = np.ones((ROWS, COLUMNS))
    got = evaluate_program(program, {"X": x}, FloatMeaning())["Y"]
    np.testing.assert_allclose(got, x / (2.0 * COLUMNS))
