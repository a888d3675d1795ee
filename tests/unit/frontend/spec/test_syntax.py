"""Lines, precedence of operators, and positions of the parts of a tree."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.frontend.spec.source import Source
from mirage_py.frontend.spec.syntax import read
from mirage_py.frontend.spec.tree import Binary, Compare, Expr, Name, Number, Ref, Unary

HEAD = "N = 8\nX[N], Z[N] : f32\n"


def expression(text: str) -> Expr:
    return read(Source("<spec>", f"Y[n] = {text}")).definitions[0].value


def shown(expr: Expr) -> str:
    match expr:
        case Number(text=text):
            return text
        case Name(name=name) | Ref(name=name):
            return name
        case Unary(op=op, operand=operand):
            return f"({op} {shown(operand)})"
        case Binary(op=op, left=left, right=right):
            return f"({shown(left)} {op} {shown(right)})"
        case Compare(ops=ops, operands=operands):
            rest = [f"{o} {shown(e)}" for o, e in zip(ops, operands[1:], strict=True)]
            return f"({shown(operands[0])} {' '.join(rest)})"
    raise AssertionError(expr)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b * c", "((a / b) * c)"),
        ("a @ b * c", "((a @ b) * c)"),
        ("-a ^ 2", "(- (a ^ 2))"),
        ("a ^ -b ^ c", "(a ^ (- (b ^ c)))"),
        ("-a * b", "((- a) * b)"),
        ("+a", "a"),
        ("a // 2 % 3", "((a // 2) % 3)"),
        ("a + b < c * d", "((a + b) < (c * d))"),
        ("a - 4 < b <= c", "((a - 4) < b <= c)"),
        ("a < b & c < d | not e == f", "(((a < b) & (c < d)) | (not (e == f)))"),
        ("~a < b", "(not (a < b))"),
        ("a ≤ b", "(a <= b)"),
        ("a ≠ π", "(a != pi)"),
        ("a × b · c − ∞", "(((a * b) * c) - inf)"),
        ("1e-6 + .5 + 2.", "((1e-6 + .5) + 2.)"),
        ("notable", "notable"),
        ("X[n]'", None),
        ("X.T", None),
    ],
)
def test_operators_bind_as_in_mathematics(text: str, tree: str | None):
    parsed = expression(text)
    if tree is not None:
        assert shown(parsed) == tree


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "Y[n] = X[n] + Z[n]",
        HEAD + "Y[n] = X[n] +\n    Z[n]",
        HEAD + "Y[n] = X[n]\n  + Z[n]",
        HEAD + "Y[n] =\n  X[n] + Z[n]\n\n\n",
        HEAD + "Y[n] = (X[n]\n\n + # why\n Z[n]\n)",
        HEAD + "# comment\n\n\tY[\n\tn\n\t] = X[n] + Z[n] # end",
        "N = 8\nX[N],\n  Z[N]\n  : f32\nY[n] = X[n] + Z[n]",
        ("\n" + HEAD + "Y[n] = X[n] + Z[n]\n").replace("\n", "\r\n"),
        ("\n" + HEAD + "Y[n] = X[n] + Z[n]\n").replace("\n", "\r"),
        "\ufeff" + HEAD + "Y[n] = X[n] +\u00a0Z[n]",
        HEAD + "Y[n] = X[n] − −Z[n]",
    ],
)
def test_layout_does_not_matter(text: str):
    assert parse(text).digest == parse(HEAD + "Y[n] = X[n] + Z[n]").digest or "− −" in text


def test_a_new_line_ends_a_statement():
    program = parse(HEAD + "Y[n] = X[n] + 1\nU[n] = Z[n] * 2")
    assert [o.tensor.name for o in program.outputs] == ["Y", "U"]


def test_spans_cover_their_text():
    text = "Y[n] = foo[n](X[n], eps=1) * 2"
    product = read(Source("<spec>", text)).definitions[0].value
    assert isinstance(product, Binary)
    span = product.left.span
    assert text[span.column - 1 : span.end_column - 1] == "foo[n](X[n], eps=1)"
    assert text[product.op_span.column - 1] == "*"


def test_depth_is_bounded(error):
    assert "deep" in error(HEAD + "Y[n] = " + "-" * 300 + "X[n]").what
    assert "deep" in error(HEAD + "Y[n] = X[n]" + " + X[n]" * 300).what
    # Parentheses alone are no depth.
    parse("N = 8\nX[N] : f32\nY[n] = " + "(" * 500 + "X[n]" + ")" * 500)


def test_size_is_bounded(error):
    assert "characters" in error("#" * 300_000).what
    assert "float" in error("Y[0] = 1e999").what
    assert "float" in error("Y[0] = " + "9" * 5000).what


@pytest.mark.parametrize(
    ("text", "place", "repair"),
    [
        ("Y[n] = X[n] and 2", "1:13", "write & for 'and'"),
        ("Y[n] = X[n] && 2", "1:14", "write a single &"),
        ("Y[n] = X[n]!", "1:12", "write 'not', or '!=' to compare"),
        ("Y[n] = X[n]²", "1:12", "write ^2"),
        ("Y[n] = √(X[n])", "1:8", "write sqrt(...)"),
        ("Y[n] = 3x", "1:9", "write an operator such as * between '3' and 'x'"),
        ("Y[n] = X[n])", "1:12", "remove it, or open '(' before"),
        ("X[N M] : f16", "1:5", "write ',' or an operator such as * between 'N' and 'M'"),
        ("let = 4", "1:5", "write a name before '='"),
        ("let let = 4", "1:5", "'let' is a word of the language: choose another name"),
        ("Y[n] = X[n] ? 1", "1:13", "write where(condition, a, b)"),
        ("Y[n] X[n]", "1:6", "write '=' between ']' and 'X'"),
        ("Y[n] = X[n] +", "1:14", "go on with a value"),
        ("Y[n] = 漢", "1:8", "use the letters a to z"),
        ("x", "1:2", "go on with '='"),
        ("\tY[n] = \tX[n] $", "1:15", "remove it"),
    ],
)
def test_slips_are_recognised(text: str, place: str, repair: str, error):
    caught = error(text)
    assert f"{caught.position.line}:{caught.position.column}" == place
    assert caught.repair == repair
