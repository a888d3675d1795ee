"""Reasons: a code with data, one sentence for it, and the way back from a stored sentence."""

from __future__ import annotations

import pickle

import pytest

from mirage_py.reasons import Code, Reason, read_reason, reason, worded

CODES = [code for code in Code if code is not Code.OTHER]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
@pytest.mark.parametrize("where", ["", "norm_part0"])
def test_a_sentence_leads_back_to_its_reason(code: Code, where: str):
    items = code.value.count("{}")
    said = Reason(code, ("loop over d, grid over b", "exp(X[b, d])", "7")[:items], where)
    if where and code.value.startswith("{}"):
        assert read_reason(str(said)).code is code  # where it is, is part of its first item
    else:
        assert read_reason(str(said)) == said
    assert str(read_reason(str(said))) == str(said)


def test_a_sentence_of_a_search():
    said = reason(Code.POOL_OUTGREW, 3000, "loop over d")
    assert str(said) == "the pool outgrew 3000 tensors (loop over d)"
    assert said == read_reason(str(said)) == pickle.loads(pickle.dumps(said))


def test_an_error_of_several_lines_keeps_its_words():
    text = "p: 'erf' is not an elementwise operator over a field\n  why: none\n  try: exp: or log"
    found = read_reason(text)
    assert (found.code, found.data[0], found.where) == (Code.NO_FIELD_OPERATOR, "erf", "p")
    assert str(found) == text


def test_what_no_code_says_is_passed_on():
    for text in ("the moon is full: {0}\nwhy", "", "{}"):
        assert read_reason(text) == Reason(Code.OTHER, (text,))
        assert str(read_reason(text)) == text
    assert worded(Code.OUT_OF_TIME, "the moon is full") is None
