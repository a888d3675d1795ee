"""µGraphs made by hand to slip through: each is wrong, for a reason that a test could overlook."""

from __future__ import annotations

import pytest
from adversarial.judge import SAME, verdict

from mirage_py.errors import MirageError, UnsupportedError
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.field_test.programs import compare_programs

P1, Q1, P2, Q2 = (n for f in FIELDS for n in (f.p, f.q))


def graph(head: str, program: str, kernels: str) -> UGraph:
    return parse_ugraph(f"ugraph attack\n{head}\nprogram {{\n{program}\n}}\n{kernels}", "attack")


def refused(attack: UGraph, *, seed: int = 0, trials: int = 4) -> bool:
    """By the field test alone, as ``mirage-py verify`` has it."""
    try:
        return not field_test(attack.program, attack, trials=trials, seed=seed).equal
    except MirageError:
        return True


ROWS = "dim b = 4\ndim d = 12\ninput X[4, 12] : f32\noutput Y[4, 12] : f32"


def elementwise(program: str, kernel: str) -> UGraph:
    """One operator a line; the last one is the result of X[b, d], %0."""
    numbered = [f"%{n} = {line}" for n, line in enumerate(program.split("; "), 1)]
    inside = [f"%{n} = {line}" for n, line in enumerate(kernel.split("; "), 1)]
    body = "\n".join(["%0 = load X[b, d]", *numbered, f"return Y[b, d] = %{len(numbered)}"])
    code = "\n".join(["%0 = load X[b, d]", *inside, f"store Y[b, d] = %{len(inside)}"])
    return graph(ROWS, body, f"kernel k {{\ngrid b by 3\n{code}\n}}")


# What is right for positive numbers, at a point, or for whole numbers only.
ELEMENTWISE = {
    "a root undoes a square": ("mul %0, %0; div %1, %0", "square %0; sqrt %1"),
    "a square undoes a root": ("square %0; sqrt %1", "sqrt %0; square %1"),
    "a sign is lost": ("neg %0", "abs %0; neg %1"),
    "a positive part": ("neg %0; neg %1", "relu %0"),
    "a positive factor leaves a maximum": (
        "neg %0; maximum %0, %1; mul %2, %0",
        "square %0; neg %1; maximum %1, %2",
    ),
    "a root is shared out": (
        "const 1.0; add %0, %1; mul %0, %2; sqrt %3",
        "const 1.0; add %0, %1; sqrt %0; sqrt %2; mul %3, %4",
    ),
    "a power is shared out": (
        "const 0.5; square %0; pow %2, %1",
        "const 0.5; pow %0, %1; square %2",
    ),
    "a root of the other sign": (
        "const 1.0; sub %0, %1; sqrt %2; square %3",
        "const 1.0; sub %1, %0; sqrt %2; square %3",
    ),
    "an exponential is rounded": ("exp %0", "cast[i32] %0; exp %1"),
    "a truth value": ("neg %0", "cast[bool] %0; neg %1"),
    "eight bits": ("square %0", "square %0; cast[i8] %1"),
    "an infinite factor": ("neg %0", "const inf; mul %0, %1; div %2, %1; neg %3"),
    "a shift that stays": ("neg %0", "shift %0; sub %0, %1; neg %2"),
    "a shift that cancels in one place": (
        "exp %0; square %1; div %2, %1",
        "shift %0; sub %0, %1; exp %2; square %3; div %4, %3",
    ),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_attacks_are_refused(name: str) -> None:
    attack = elementwise(*ELEMENTWISE[name])
    assert verdict(attack.program, attack) != SAME
    assert refused(attack)


SQUARE = """dim b = 12
dim d = 12
input X[12, 12] : f32
output Y[12] : f32"""
MEAN = """%0 = load X[b, d]
%1 = sum[d] %0
%2 = size d
%3 = div %1, %2
return Y[b] = %3"""


@pytest.mark.parametrize(
    "divisor", ["size b", "const 12.0", "const 5.0", "const 4.0", "const 15.0", "const 11.0"]
)
@pytest.mark.parametrize("seed", range(12))
def test_sizes_that_coincide(divisor: str, seed: int) -> None:
    """Right where b is as long as d, or where d is as long as a constant: at small sizes too."""
    kernel = f"""kernel k {{
grid b by 5
%0 = load X[b, d]
%1 = sum[d] %0
%2 = {divisor}
%3 = div %1, %2
store Y[b] = %3
}}"""
    assert refused(graph(SQUARE, MEAN, kernel), seed=seed)


def test_a_transposed_square_matrix() -> None:
    kernel = """kernel k {
grid b by 5
%0 = load X[d, b]
%1 = sum[d] %0
%2 = size d
%3 = div %1, %2
store Y[b] = %3
}"""
    assert refused(graph(SQUARE, MEAN, kernel))


HEADS = """dim h = 6
dim e = 64
input X[384] : f32
output Y[6, 64] : f32"""


@pytest.mark.parametrize("stride", [3, 4, 5, 7, 8, 9, 10, 11, 63])
@pytest.mark.parametrize("seed", range(12))
def test_a_stride_that_is_right_at_small_sizes(stride: int, seed: int) -> None:
    """h * 5 + e is the right number where e has five values, as it may in a trial."""
    kernel = f"kernel k {{\ngrid h by 4\n%0 = load X[h * {stride} + e]\nstore Y[h, e] = %0\n}}"
    attack = graph(HEADS, "%0 = load X[h * 64 + e]\nreturn Y[h, e] = %0", kernel)
    assert refused(attack, seed=seed)


GROUPS = """dim g = 3
dim h = 6
dim e = 64
input X[1152] : f32
output Y[3, 6, 64] : f32"""


@pytest.mark.parametrize("stride", [12, 15, 20, 28, 35, 40, 63])
@pytest.mark.parametrize("seed", range(6))
def test_a_stride_that_is_a_product_of_small_sizes(stride: int, seed: int) -> None:
    kernel = f"""kernel k {{
grid h by 4
%0 = load X[g * {stride} + h * 64 + e]
store Y[g, h, e] = %0
}}"""
    program = "%0 = load X[g * 384 + h * 64 + e]\nreturn Y[g, h, e] = %0"
    assert refused(graph(GROUPS, program, kernel), seed=seed)


def test_what_is_read_outside_and_masked_away() -> None:
    """The last block reads past the end of X and multiplies it by 0."""
    kernel = """kernel k {
grid b by 3
%0 = load X[b, d]
%1 = load X[b, d + 1]
%2 = mask (d < 11)
%3 = mul %2, %1
%4 = sub %3, %3
%5 = add %0, %4
store Y[b, d] = %5
}"""
    assert refused(graph(ROWS, "%0 = load X[b, d]\nreturn Y[b, d] = %0", kernel))


PLANE = """dim t = 400
dim s = 300
input X[400, 300] : f32
output Y[400] : f32"""
EVERYTHING = "%0 = load X[t, s]\n%1 = sum[s] %0\nreturn Y[t] = %1"


@pytest.mark.parametrize(
    "hidden",
    [
        "s != 299",
        "s != 171",
        "t + s != 555",
        "t * 300 + s != 70000",
        "t * 100 + s * 101 != 50123",
        "t * 37 + s * 41 != 9001",
        "t * 100 < s * 101 + 1017",
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_few_elements_at_the_real_sizes(hidden: str, seed: int) -> None:
    """One element in a hundred thousand is left out: no sample of blocks would meet it."""
    left = hidden.split(" < ")
    right = hidden if len(left) == 1 else f"{left[0]} < {left[1]}"
    program = EVERYTHING
    if len(left) == 2:
        # A border one off, between values of the left side that lie far apart.
        other = hidden.replace("1017", "1018")
        program = f"""%0 = load X[t, s]
%1 = mask ({other})
%2 = mul %1, %0
%3 = sum[s] %2
return Y[t] = %3"""
    kernel = f"""kernel k {{
grid t by 64
%0 = load X[t, s]
%1 = mask ({right})
%2 = mul %1, %0
%3 = sum[s] %2
store Y[t] = %3
}}"""
    assert refused(graph(PLANE, program, kernel), seed=seed)


SOFTMAX = """%0 = load X[b, d]
%1 = exp %0
%2 = sum[d] %1
%3 = div %1, %2
return Y[b, d] = %3"""


def test_a_maximum_that_is_never_rescaled() -> None:
    """Right where the running maximum does not move, as if it were zero."""
    kernel = """kernel k {
grid b by 3
loop d by 5 {
%0 = load X[b, d]
%1 = max[d] %0
%2 = accum_max[shift] %1
%3 = sub %0, %2
%4 = exp %3
%5 = sum[d] %4
%6 = accum_sum %5
}
loop d by 5 {
%7 = load X[b, d]
%8 = sub %7, %2
%9 = exp %8
%10 = div %9, %6
store Y[b, d] = %10
}
}"""
    assert refused(graph(ROWS, SOFTMAX, kernel))


TWO = f"{ROWS}\ntensor T[4, 12] : f32"
NEGATED = "%0 = load X[b, d]\n%1 = neg %0\nreturn Y[b, d] = %1"
STORE_HALF = "%0 = load X[b, d]\n%1 = neg %0\nstore T[b, d // 2 * 2] = %1"
STORE = "%0 = load X[b, d]\n%1 = neg %0\nstore T[b, d] = %1"
COPY = "%0 = load T[b, d]\nstore Y[b, d] = %0"
KERNELS = {
    "read before it is written": (("a", COPY), ("c", STORE)),
    "never written": (("a", COPY),),
    "half of it written": (("a", STORE_HALF), ("c", COPY)),
    "written by two kernels": (("a", STORE), ("c", STORE), ("e", COPY)),
    "an output written twice": (
        ("a", NEGATED.replace("return", "store")),
        ("c", STORE),
        ("e", COPY),
    ),
    "read where it is written": (("a", f"{STORE}\n%3 = load T[b, d]\nstore Y[b, d] = %3"),),
    "a neighbour's row, of the same kernel": (
        ("a", STORE),
        ("c", "%0 = load Y[b, d]\n%1 = load T[b, d]\n%2 = sub %1, %0\nstore Y[b, d] = %2"),
    ),
    "two names that are one": (("a", STORE), ("a", COPY)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_races_and_holes_are_refused(name: str) -> None:
    kernels = "\n".join(f"kernel {n} {{\ngrid b by 3\n{body}\n}}" for n, body in KERNELS[name])
    try:
        attack = graph(TWO, NEGATED, kernels)
    except MirageError:
        # The parser has the rules too.
        return
    assert refused(attack)


def test_another_result_type() -> None:
    """The kernels are right for a program whose result is an integer."""
    right = elementwise("neg %0", "neg %0")
    wrong = elementwise("neg %0", "neg %0").program
    text = ROWS.replace("output Y[4, 12] : f32", "output Y[4, 12] : i32")
    attack = graph(text, NEGATED, f"kernel k {{\ngrid b by 3\n{STORE.replace('T[', 'Y[')}\n}}")
    assert not refused(right)
    assert not field_test(wrong, attack, seed=0).equal


def test_a_program_that_rounds_is_not_judged() -> None:
    rounding = elementwise("cast[i32] %0; neg %1", "neg %0")
    with pytest.raises(UnsupportedError, match="i32"):
        field_test(rounding.program, rounding, seed=0)
    with pytest.raises(UnsupportedError, match="i32"):
        compare_programs(rounding.program, rounding.program)


def test_casts_of_whole_numbers_are_right() -> None:
    attack = elementwise(
        "index d; mul %0, %1", "index d; cast[i8] %1; mask (d < 5); cast[bool] %3; mul %0, %2"
    )
    assert field_test(attack.program, attack, seed=0).equal


def test_multiples_of_all_primes() -> None:
    """What no test over these fields can tell: real numbers can, and so can other primes."""
    product = f"const {P1}.0; const {Q1}.0; mul %1, %2"
    both = f"{product}; const {P2}.0; const {Q2}.0; mul %4, %5; mul %3, %6; add %0, %7; neg %8"
    attack = elementwise("neg %0", both)
    assert verdict(attack.program, attack) != SAME
    assert refused(attack)
    assert refused(elementwise("neg %0", f"{product}; add %0, %3; neg %4"))
