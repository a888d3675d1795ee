"""Conditions on sizes: text, truth and time."""

from __future__ import annotations

import timeit

import pytest

from mirage_py.errors import FormatError
from mirage_py.shapes.dispatch import DispatchTable, Row
from mirage_py.shapes.predicate import Equal, Multiple, Range, SizePredicate

BUCKET = SizePredicate((Range("s", 65, 128), Multiple("s", 16), Equal("s", "t")))


def test_text_reads_back():
    assert str(BUCKET) == "65 <= s <= 128, s % 16 == 0, s == t"
    for predicate in (BUCKET, SizePredicate(), SizePredicate((Range("n", 1, 1),))):
        assert SizePredicate.parse(str(predicate)) == predicate


@pytest.mark.parametrize("text", ["", "s", "s <= 4", "3 <= s", "s % 16 == 1", "__import__('os')"])
def test_other_text_is_refused(text):
    with pytest.raises(FormatError):
        SizePredicate.parse(text)


@pytest.mark.parametrize(
    ("s", "t", "holds"),
    [(128, 128, True), (80, 80, True), (64, 64, False), (81, 81, False), (96, 80, False)],
)
def test_truth(s, t, holds):
    assert BUCKET.holds({"s": s, "t": t}) is holds


def test_is_asked_at_every_call():
    sizes = {"s": 96, "t": 96}
    best = min(timeit.repeat(lambda: BUCKET.holds(sizes), number=2000, repeat=7)) / 2000
    assert best < 2e-6  # 0.4 us on an idle core


def test_the_first_row_that_holds():
    table: DispatchTable[str] = DispatchTable()
    table.add(Row(BUCKET, "aligned", "tile 16", "searched"))
    table.add(Row(SizePredicate.ranges({"s": (65, 128)}), "any", "tile 1", "cached", 3))
    assert table.find({"s": 96, "t": 96}).entry == "aligned"
    assert table.find({"s": 97, "t": 97}).entry == "any"
    assert table.find({"s": 129, "t": 129}) is None
    assert str(table).splitlines() == [
        "sizes                                served by  source    calls",
        "65 <= s <= 128, s % 16 == 0, s == t  tile 16    searched  0",
        "65 <= s <= 128                       tile 1     cached    3",
    ]
