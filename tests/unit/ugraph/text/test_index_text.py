"""The small parser reads what the grammar reads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mirage_py.errors import FormatError
from mirage_py.ugraph.text.index_text import read_access, read_index, read_predicate
from mirage_py.ugraph.text.text_form import parse_access, parse_index, parse_predicate

INDICES = ["d", "3", "-3", "h * 64 + d", "(h * 64 + d) // 32 % 4", "q - 3", "q - s", "q + -2",
           "a + (b + c)",
           "a + b + c", "(a + b) * -1", "((a))", "µ_1 * 2", "  x +  y  "]  # fmt: skip


@pytest.mark.parametrize("text", INDICES)
def test_indices(text: str):
    assert read_index(text) == parse_index(text)


@pytest.mark.parametrize("text", ["X[]", "X[b, d + 1]", "W1[(a + b) // 2, -1 + c, 0]"])
def test_accesses(text: str):
    assert read_access(text) == parse_access(text)


@pytest.mark.parametrize(
    "text",
    ["(s <= q + 80)", "((s <= q) & (q < 4))", "(~((a + b) * 2 != 3))", "((x - y) == 0)",
     "(((a < b) | (~(c > 1))) & ((a + 1) * 2 >= b))"],
)  # fmt: skip
def test_conditions(text: str):
    assert read_predicate(text) == parse_predicate(text)


@pytest.mark.parametrize(
    "text",
    ["", "d +", "d d", "d * e", "d // 0", "d % -1", "3 + * 4", "(d", "d)", "1234567890123456789",
     "d @ 2", "d\n+ 1", "(" * 200 + "d" + ")" * 200, "+".join("d" * 200), "%3"],
)  # fmt: skip
def test_what_is_no_index(text: str):
    with pytest.raises(FormatError):
        read_index(text)


@pytest.mark.parametrize("text", ["X", "X[a", "X[a,]", "X[a b]", "[a]", "X[a] + 1", "3[a]"])
def test_what_is_no_access(text: str):
    with pytest.raises(FormatError):
        read_access(text)


@pytest.mark.parametrize(
    "text", ["a < b", "(a < b", "(a)", "(a < b < c)", "((a < b) + 1)", "(a & b)"]
)
def test_what_is_no_condition(text: str):
    with pytest.raises(FormatError):
        read_predicate(text)


def test_the_place_is_named():
    with pytest.raises(FormatError, match=r"plan.json:1:8: unexpected '\*'"):
        read_index("d + 3 **", "plan.json")


def test_the_json_form_needs_no_parser_generator():
    program = (
        "import sys\n"
        "sys.modules['lark'] = None\n"
        "from mirage_py.ugraph.text.json_form import dump_text, load_text\n"
        "from mirage_py.ugraph.building.builder import ProgramBuilder\n"
        "from mirage_py.ugraph.ir.dtypes import F16\n"
        "b = ProgramBuilder('p')\n"
        "b.dim('i', 4)\n"
        "b.input('X', (4,), F16)\n"
        "b.output('Y', b.apply('exp', b.load('X', ('i',))), ('i',), F16)\n"
        "p = b.build()\n"
        "assert load_text(dump_text(p), 'text') == p\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
