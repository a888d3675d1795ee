"""Claims of the error bound, checked in a field that is small enough to err."""

from __future__ import annotations

import pytest
import samples
from naive import naive_plan
from nightly import NIGHTLY

from mirage_py.frontend.spec import parse
from mirage_py.reasons import Code
from mirage_py.ugraph.field import DivisionByZero, Field, FieldArray, FieldOps
from mirage_py.ugraph.field.reading import Reading
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.verify.field_test import error_bound as eb
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.field_test.polynomial_degree import Arguments, DegreeMeaning, Degrees
from mirage_py.verify.field_test.unknown_functions import UnknownFunctionMeaning, UnknownFunctions

# p = 2 q + 1, both prime.
TINY = Field(p=467, q=233, generator=4)
HEAD = "N = 4, K = 3\nX[N, K], U[N, K] : f32\n"


def bound_of(text: str, body: str) -> tuple[float | None, Code]:
    graph = naive_plan(parse(HEAD + body), {}).ugraph
    evidence = field_test(parse(HEAD + text), graph, seed=2)
    assert evidence.equal
    return evidence.error_bound, evidence.bound_reason.code


@pytest.mark.parametrize(
    "name", ["rms_norm_matmul", "softmax", "attention", "split_attention", "rotary"]
)
def test_samples_have_a_bound(name):
    graph = samples.ugraph(name)
    evidence = field_test(graph.program, graph, seed=5)
    assert evidence.error_bound is not None
    assert 0 < evidence.error_bound < 1e-6
    assert evidence.bound_reason.code is Code.SCHWARTZ_ZIPPEL


def test_more_trials_lower_the_bound():
    graph = samples.ugraph("softmax")
    two = field_test(graph.program, graph, trials=2, seed=5).error_bound
    four = field_test(graph.program, graph, trials=4, seed=5).error_bound
    assert two is not None
    assert four is not None
    assert four == pytest.approx(two**2)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("Y[n, k] = exp(X[n, k]) * exp(U[n, k])", "Y[n, k] = exp(X[n, k] + U[n, k])"),
        ("Y[n, k] = sqrt(X[n, k]) * sqrt(U[n, k])", "Y[n, k] = sqrt(X[n, k] * U[n, k])"),
        ("Y[n] = max[k](X[n, k])", "Y[n] = max[k](X[n, k])"),
    ],
)
def test_a_law_of_a_function_has_no_bound(text, body):
    if "U" not in text:
        text, body = (t + "\nZ[n, k] = U[n, k] + 1" for t in (text, body))
    probability, reason = bound_of(text, body)
    assert probability is None
    assert reason in (Code.EQUAL_BY_LAWS, Code.NO_BOUND)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("Y[n, k] = X[n, k] * (U[n, k] + 1)", "Y[n, k] = X[n, k] * U[n, k] + X[n, k]"),
        (
            "Y[n, k] = exp(X[n, k] - U[n, k]) * exp(U[n, k] - X[n, k])",
            "Y[n, k] = (X[n, k]^2 + U[n, k]^2 + 1) / (1 + U[n, k]^2 + X[n, k]^2)",
        ),
        ("Y[n, k] = silu(X[n, k]) * U[n, k]", "Y[n, k] = U[n, k] * X[n, k] / (1 + exp(-X[n, k]))"),
        (
            "Y[n] = sum[k](erf(X[n, k]) / sqrt(sum[k](U[n, k]^2)))",
            "Y[n] = sum[k](erf(X[n, k])) / sqrt(sum[k](U[n, k]^2))",
        ),
    ],
)
def test_algebra_around_unknown_functions_has_one(text, body):
    probability, _ = bound_of(text, body)
    assert probability is not None
    assert 0 < probability < 1e-15


def test_a_maximum_that_is_a_result_has_no_bound():
    # Its value is nothing to the proof: it must not count as equal to 0.
    program = parse("N = 4, K = 3\nX[N, K] : f32\nY[n] = max[k](X[n, k])")
    zero = parse("N = 4, K = 3\nX[N, K] : f32\nY[n] = sum[k](X[n, k] - X[n, k])")
    found = eb.error_bound(program, naive_plan(zero, {}).ugraph, trials=2, seed=1)
    assert found.probability is None


# Pairs that differ, and are easily taken for equal in a small field.
WRONG = [
    ("Y[n, k] = X[n, k] * U[n, k]", "Y[n, k] = X[n, k] * U[n, k] * (1 + (X[n, k] - 1) * 2)"),
    ("Y[n, k] = exp(X[n, k]) * U[n, k]", "Y[n, k] = exp(X[n, k]^2) * U[n, k]"),
    ("Y[n, k] = X[n, k] / U[n, k]", "Y[n, k] = U[n, k] / X[n, k]"),
    ("Y[n, k] = exp(X[n, k]) - exp(U[n, k])", "Y[n, k] = X[n, k] - X[n, k] + 0 * U[n, k]"),
]


@pytest.mark.parametrize(("text", "body"), WRONG)
def test_wrong_pairs_pass_no_more_often_than_the_bound_says(text, body):
    # One element: with more of them a difference would be missed far less often still.
    head = "N = 1, K = 1\nX[N, K], U[N, K] : f32\n"
    program = parse(head + text)
    graph = naive_plan(parse(head + body), {}).ugraph
    missed = drawn = 0
    for seed in range(1500 if NIGHTLY else 500):
        try:
            missed += eb._agree(program, graph, FieldOps(TINY, seed))
        except DivisionByZero:
            continue
        drawn += 1
    bound = eb._missed(eb._degrees(program, graph), TINY)
    assert 0 < missed / drawn < bound + 3 * (bound / drawn) ** 0.5


def test_unknown_functions_are_functions():
    unknown = UnknownFunctions(TINY.p, seed=1)
    meaning = UnknownFunctionMeaning(FieldOps(TINY, 1))
    x = meaning.ops.random((50,), "x")
    first = unknown("f", x.p)
    assert (unknown("f", x.p[::-1]) == first[::-1]).all()
    assert (unknown("g", x.p) != first).any()
    assert first.min() > 0
    bare = FieldArray(x.p, None)
    exp, inverse = (meaning.apply("exp", None, [a]) for a in (bare, meaning.ops.neg(bare)))
    assert (meaning.ops.mul(exp, inverse).p == 1).all()
    assert meaning.apply("exp", None, [FieldArray(x.p * 0, None)]).p.tolist() == [1] * 50
    odd, negative = (meaning.apply("erf", None, [a]) for a in (bare, meaning.ops.neg(bare)))
    assert (meaning.ops.add(odd, negative).p == 0).all()
    for op, mirrored in (("lt", "gt"), ("le", "ge"), ("maximum", "maximum")):
        other = FieldArray(x.p[::-1], None)
        left = meaning.apply(op, None, [bare, other])
        assert (left.p == meaning.apply(mirrored, None, [other, bare]).p).all()


def test_degrees_of_a_sum_of_quotients():
    program = parse("N = 2, K = 5\nX[N, K], U[N, K] : f32\nY[n] = sum[k](X[n, k]^2 / U[n, k])")
    meaning = DegreeMeaning()
    found = evaluate_program(
        program, {t.name: Degrees(t.shape, 1) for t in program.inputs}, meaning
    )
    # Over the common denominator of 5 terms.
    assert found["Y"] == Degrees((2,), 2 + 4, 5)
    assert meaning.divisor_degrees == 10
    assert meaning.arguments == {}


def test_arguments_of_unknown_functions_are_counted():
    program = parse(
        "N = 2, K = 5\nX[N, K] : f32\nY[n, k] = exp(X[n, k]^2) + sqrt(sum[k](exp(X[n, k])))"
    )
    meaning = DegreeMeaning()
    evaluate_program(program, {t.name: Degrees(t.shape, 1) for t in program.inputs}, meaning)
    # The sum of exponentials (1 over 1, for a value or its inverse) has 5 terms.
    assert meaning.arguments == {"exp": Arguments(20, 2, 0), "sqrt": Arguments(2, 5, 5)}
    assert meaning.arguments["exp"].coincidence_degree == 800


def test_a_shift_is_counted_as_often_as_it_is_added():
    meaning = DegreeMeaning()
    exponent = meaning.shift(Degrees((2,), 1), "m")
    for _ in range(60):
        exponent = meaning.apply("add", None, [exponent, exponent])
    found = meaning.apply("exp", None, [exponent])
    assert found.numerator == found.denominator == 1 + 2**60


MASKED = "N = 4, K = 3\nX[N, K], U[N, K] : f32, M[N, K] : bool\n"


@pytest.mark.parametrize(
    ("text", "body", "proven"),
    [
        # A truth value is any element: this holds for all of them.
        (
            "Y[n] = sum[k](M[n, k] * (X[n, k] - U[n, k])) + sum[k](U[n, k])",
            "Y[n] = sum[k](where(M[n, k], X[n, k], U[n, k]))",
            True,
        ),
        # This only for 0 and 1, which are drawn too seldom for a bound.
        (
            "Y[n, k] = M[n, k] * X[n, k] + U[n, k]",
            "Y[n, k] = M[n, k] * M[n, k] * X[n, k] + U[n, k]",
            False,
        ),
    ],
)
def test_truth_values_are_variables(text, body, proven):
    graph = naive_plan(parse(MASKED + body), {}).ugraph
    evidence = field_test(parse(MASKED + text), graph, seed=2)
    assert evidence.equal
    assert (evidence.error_bound is not None) == proven
    assert "truth values" in str(evidence.bound_reason) or proven


def test_a_selection_by_a_number_has_no_bound():
    text = "Y[n, k] = where(X[n, k], U[n, k], 3)"
    probability, reason = bound_of(text, text)
    assert probability is None
    assert reason is Code.SELECTS_BY_NO_TRUTH_VALUE


def test_constants_are_variables():
    # 2147483648 - 458769 is a prime in use.
    text = "Y[n, k] = 2147483648 * X[n, k] - 458769 * X[n, k] + U[n, k]"
    program, wrong = parse(HEAD + text), parse(HEAD + "Y[n, k] = 0 * X[n, k] + U[n, k]")
    graph = naive_plan(wrong, {}).ugraph
    assert eb.error_bound(program, graph, trials=1, seed=1).probability is None
    assert not field_test(program, graph, seed=1).equal
    # Products of constants are what they are, sums of them are not.
    product = "Y[n, k] = 3 * (7 * X[n, k]) + U[n, k]"
    assert bound_of(product, "Y[n, k] = 21 * X[n, k] + U[n, k]")[0] is not None
    total = "Y[n, k] = 7 * X[n, k] + 11 * X[n, k] + U[n, k]"
    assert bound_of(total, "Y[n, k] = 18 * X[n, k] + U[n, k]")[0] is None


def test_constants_of_a_definition_are_variables_too():
    """tanh(x) is 2 / (1 + exp(-2 x)) - 1 with a 2 that is drawn as any other constant is."""
    by_name, spelled = (
        "Y[n, k] = tanh(X[n, k]) + U[n, k]",
        "Y[n, k] = 2 * (1 / (1 + exp(-(2 * X[n, k])))) - 1 + U[n, k]",
    )
    meanings = [DegreeMeaning(Reading(generic=True)) for _ in range(2)]
    found = [
        evaluate_program(
            program := parse(HEAD + text),
            {t.name: Degrees(t.shape, 1) for t in program.inputs},
            meaning,
        )
        for text, meaning in zip((by_name, spelled), meanings, strict=True)
    ]
    # 2 is the square of a random root.
    assert meanings[0].arguments == meanings[1].arguments == {"exp": Arguments(12, 3, 0)}
    assert found[0] == found[1]
    assert meanings[0].divisor_degrees == meanings[1].divisor_degrees
    assert bound_of(by_name, by_name)[0] == bound_of(spelled, by_name)[0] is not None


def test_the_bound_is_of_the_pair_and_not_of_the_seed():
    graph = samples.ugraph("attention")
    found = [field_test(graph.program, graph, seed=seed).error_bound for seed in (1, 2, 30)]
    assert found[0] is not None
    assert found == [found[0]] * 3
