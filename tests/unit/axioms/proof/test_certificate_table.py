"""The checker's own table of operators and laws, held against those of the project."""

from __future__ import annotations

from law_table import TABLE, table_text, trusted

from mirage_py.axioms.certificate.terms import TRUSTED


def test_the_checker_trusts_the_laws_and_no_others():
    """``python tests/law_table.py`` writes the table anew."""
    assert TRUSTED == trusted()
    assert TABLE.read_text(encoding="utf-8") == table_text()


def test_no_law_stands_there_twice():
    names = [law["name"] for law in TRUSTED["laws"]]
    assert len(dict.fromkeys(names)) == len(names) > 100
