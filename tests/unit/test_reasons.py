"""Reasons: a code with data, one sentence for it, and its form in reports and journals."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest

import mirage_py
from mirage_py.reasons import Code, Reason, Served, Server, read_reason, reason


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
@pytest.mark.parametrize("where", ["", "norm_part0"])
def test_a_reason_comes_back_from_its_document(code: Code, where: str):
    items = ("loop over d", "exp(X[b, d])", "7", "8")[: code.sentence.count("{}")]
    said = Reason(code, items, where)
    assert read_reason(json.loads(json.dumps(said.document()))) == said
    assert pickle.loads(pickle.dumps(said)) == said
    assert all(item in str(said) for item in items)


def test_two_codes_with_one_sentence_are_two():
    assert Code.OTHER.sentence == Code.KERNEL.sentence
    assert Code.OTHER is not Code.KERNEL


def test_a_sentence_of_a_search():
    said = reason(Code.POOL_OUTGREW, 3000, "loop over d")
    assert str(said) == "the pool outgrew 3000 tensors (loop over d)"


def test_braces_in_what_an_error_says_are_its_own():
    assert str(reason(Code.OTHER, "the moon is full: {0}\nwhy")) == "the moon is full: {0}\nwhy"


def test_an_error_has_a_code_that_takes_its_words():
    package = Path(mirage_py.__file__).parent
    sources = [
        path.read_text(encoding="utf-8")
        for folder in (package, *(p.resolve() for p in package.iterdir() if p.is_symlink()))
        for path in sorted(folder.rglob("*.py"))
    ]
    named = [name for text in sources for name in re.findall(r"\bcode=Code\.(\w+)", text)]
    assert len(named) >= 10
    assert {Code[name].sentence for name in named} == {"{}"}


def test_a_code_that_there_is_not():
    with pytest.raises(KeyError):
        read_reason({"code": "full_moon", "data": []})


def test_what_serves_is_said_with_its_reason():
    served = Served(Server.EAGER, reason(Code.NONE_FITS, "h200"))
    assert str(served) == "eager: no family fits h200"
    assert served.document() == {
        "by": "eager",
        "why": "no family fits h200",
        "code": "none_fits",
        "data": ["h200"],
    }
