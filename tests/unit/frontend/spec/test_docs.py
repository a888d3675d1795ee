"""The reference page: every spec on it parses, every error on it is the real one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirage_py.errors import SpecError
from mirage_py.frontend.spec import parse
from mirage_py.frontend.spec.functions import REDUCTIONS, function_names
from mirage_py.ugraph.ir.dtypes import ALL_DTYPES
from mirage_py.ugraph.rewrite.masks import lower_masks

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")
SPECS = re.findall(r"^```math\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ERRORS = re.findall(
    r"^```math error\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)


def test_the_page_has_examples():
    assert len(SPECS) >= 12
    assert len(ERRORS) == PAGE.count("```math error") >= 4


@pytest.mark.parametrize("text", SPECS)
def test_specs_parse(text: str):
    assert lower_masks(parse(text)).outputs


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_errors_are_as_shown(text: str, message: str):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value) == message.rstrip("\n")


def test_every_function_and_type_is_named():
    named = re.findall(r"\w+", PAGE)
    for name in (*function_names(), *(t.name for t in ALL_DTYPES)):
        assert name in named


def test_composites_are_what_the_page_says():
    rows = re.findall(r"^\| `(\w+)\[k\]\(x(?:, eps=(\S+))?\)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == [n for n, r in REDUCTIONS.items() if r.keeps]
    for name, eps, meaning in rows:
        formulas = dict.fromkeys(re.findall(r"`([^`]*)`", meaning))
        lets = [f for f in formulas if " = " in f]
        (value,) = [f for f in formulas if f not in lets]
        let = f"let {lets[0]}\n".replace("c =", "c[k] =") if lets else ""
        read = let + "Y[k] = " + value.replace("c", "c[k]") if lets else "Y[k] = " + value
        head = "X[8] : f32\n"
        for bare, indexed in (("x", "X[k]"), ("eps", eps)):
            read = re.sub(rf"\b{bare}\b", indexed, read)
        assert parse(head + read).digest == parse(f"{head}Y[k] = {name}[k](X[k])").digest
