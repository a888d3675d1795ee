"""Of tests with many parameters some cases run by day: they still meet every choice."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from nightly import covering


def cases(*counts: int) -> list[dict[int, str]]:
    return [dict(enumerate(map(str, values))) for values in product(*map(range, counts))]


@pytest.mark.parametrize(
    ("counts", "strength", "most"),
    [((3, 2), 1, 3), ((4, 4), 1, 4), ((4, 4), 2, 16), ((4, 2, 2), 2, 9), ((3, 3, 3), 2, 12)],
)
def test_every_choice_is_met_by_few(counts: tuple[int, ...], strength: int, most: int) -> None:
    given = cases(*counts)
    found = [given[n] for n in covering(given, strength)]
    for names in combinations(range(len(counts)), strength):
        assert {tuple(c[n] for n in names) for c in found} == {
            tuple(c[n] for n in names) for c in given
        }
    assert len(found) <= most


def test_a_case_that_is_asked_for_alone_stays() -> None:
    assert covering([{0: "bf16", 1: "64"}], 1) == [0]
    assert covering([], 1) == []
