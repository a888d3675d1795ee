"""Block graphs as formulas: what is named, what is written out, where brackets stand."""

from __future__ import annotations

import pytest

from mirage_py.formatting.formulas import number_text, statements
from mirage_py.ugraph.text.text_form import parse_ugraph

HEAD = """
ugraph p
dim b = 4
dim d = 64
dim s1 = 2
input X[4, 64] : f16
input Z[4, 64] : f16
input m1[4] : f16
output Y[4] : f16
program {{
  %0 = load X[b, d]
  %1 = sum[d] %0
  return Y[b] = %1
}}
kernel p {{
  grid b by 2
{body}
}}
"""


def _lines(body: str) -> list[str]:
    ugraph = parse_ugraph(HEAD.format(body=body))
    (block,) = ugraph.kernels
    return [s.text for s in statements(block, ugraph.scope)]


def test_a_chain_is_one_formula():
    assert _lines(
        """
  %0 = load X[b, d]
  %1 = square %0
  %2 = sum[d] %1
  %3 = size d
  %4 = div %2, %3
  %5 = const 1e-06
  %6 = add %4, %5
  %7 = rsqrt %6
  store Y[b] = %7"""
    ) == ["Y[b] = rsqrt(sum[d](X[b, d]^2) / 64 + 1e-06)"]


@pytest.mark.parametrize(
    ("op", "formula"),
    [
        ("sub %0, %2", "X - (X - Z)"),
        ("sub %2, %0", "X - Z - X"),
        ("add %0, %2", "X + X - Z"),
        ("mul %2, %0", "(X - Z) * X"),
        ("div %0, %2", "X / (X - Z)"),
        ("neg %2", "-(X - Z)"),
        ("square %2", "(X - Z)^2"),
        ("pow %2, %0", "(X - Z) ^ X"),
        ("exp %2", "exp(X - Z)"),
        ("maximum %0, %2", "max(X, X - Z)"),
        ("lt %0, %2", "X < X - Z"),
        ("cast[f32] %2", "X - Z"),
    ],
)
def test_brackets(op: str, formula: str):
    body = f"""
  %0 = load X[b, d]
  %1 = load Z[b, d]
  %2 = sub %0, %1
  %3 = {op}
  %4 = sum[d] %3
  store Y[b] = %4"""
    (line,) = _lines(body)
    assert line.replace("[b, d]", "") == f"Y[b] = sum[d]({formula})"


def test_what_is_read_twice_has_a_name_that_nothing_else_has():
    body = """
  %0 = load X[b, d]
  %1 = sum[d] %0
  %2 = mul %1, %1
  %3 = max[d] %0
  %4 = mul %3, %3
  %5 = add %2, %4
  store Y[b] = %5"""
    # s1 is a dimension and m1 an input of this program.
    assert _lines(body) == [
        "s2[b] = sum[d](X[b, d])",
        "m2[b] = max[d](X[b, d])",
        "Y[b] = s2 * s2 + m2 * m2",
    ]


def test_loops_accumulate():
    body = """
  loop d by 16 {
    %0 = load X[b, d]
    %1 = max[d] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[d] %4
    %6 = accum_rescaled[2] %5, %2
    %7 = accum_max %1
    %8 = accum_sum %5
  }
  %9 = add %6, %7
  %10 = add %9, %8
  store Y[b] = %10"""
    assert _lines(body) == [
        "m2[b] = max[d](X[b, d])",
        "m3[b] = max(m3, m2)",
        "s2[b] = sum[d](exp(X[b, d] - m3))",
        "s3[b] = s3 * exp(m3 before - m3)^2 + s2",
        "m4[b] = max(m4, m2)",
        "s4[b] += s2",
        "Y[b] = s3 + m4 + s4",
    ]


def test_what_a_later_section_reads_is_named():
    body = """
  %0 = load m1[b]
  %1 = exp %0
  loop d by 16 {
    %2 = load X[b, d]
    %3 = mul %2, %1
    %4 = sum[d] %3
    %5 = accum_sum %4
  }
  store Y[b] = %5"""
    assert _lines(body)[0] == "t1[b] = exp(m1[b])"


def test_a_long_formula_is_cut_in_two():
    body = "\n".join(
        ["  %0 = load m1[b]"]
        + [f"  %{n} = add %{n - 1}, %0" for n in range(1, 30)]
        + ["  store Y[b] = %29"]
    )
    lines = _lines(body)
    assert len(lines) > 1
    assert max(map(len, lines)) < 100


def test_a_mask_is_a_factor():
    body = """
  %0 = load X[b, d]
  %1 = mask (d <= b)
  %2 = mul %0, %1
  %3 = sum[d] %2
  store Y[b] = %3"""
    assert _lines(body) == ["Y[b] = sum[d](X[b, d] * [d <= b])"]


def test_a_store_that_adds():
    body = """
  %0 = load m1[b]
  store_add Y[b] = %0"""
    assert _lines(body) == ["Y[b] += m1[b]"]


@pytest.mark.parametrize(
    ("value", "text"), [(4096.0, "4096"), (1e-6, "1e-06"), (0.1, "0.1"), (1 / 3, repr(1 / 3))]
)
def test_numbers(value: float, text: str):
    assert number_text(value) == text
