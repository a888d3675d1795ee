"""The order of trials, from predictions and structures that are given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage_py.search.rank.trial_order import in_turns, roofline_places


@dataclass(frozen=True)
class Tried:
    name: str
    doubt: str = ""
    grid: int = 0


# Twenty plans of one kernel, and one of each of two others that are predicted to be slower.
MANY = [Tried("one kernel") for _ in range(20)]
OTHERS = [Tried("split s x4: 2 kernels"), Tried("2 kernels")]


def order(tried: list[Tried], us: list[float], roofline: list[float] | None = None) -> list[int]:
    return in_turns(tried, np.log(us), np.log(roofline or us))


def test_a_structure_that_is_predicted_to_be_slower_is_tried_early():
    found = order([*MANY, *OTHERS], [10.0 + n / 10 for n in range(20)] + [14.0, 15.0])
    assert sorted(found) == list(range(22))
    assert found[0] == 0
    assert max(found.index(20), found.index(21)) < 8


def test_a_structure_that_is_far_behind_has_no_turn():
    found = order([*MANY, *OTHERS], [10.0 + n / 10 for n in range(20)] + [14.0, 30.0])
    assert found.index(20) < 8
    assert found[-1] == 21


def test_of_many_structures_a_few_have_turns():
    tried = [*MANY, *(Tried(f"split s x{n}: 2 kernels") for n in range(2, 22))]
    found = order(tried, [10.0] * 20 + [15.0 + n / 100 for n in range(20)])
    assert {n for n in found[:22] if n >= 20} == set(range(20, 27))


def test_another_grid_of_a_structure_is_tried_early():
    """Splits with 64 rows came fortieth, after many plans with 128 that were slower."""
    split = [Tried("split s x4: 2 kernels", grid=int(n > 7)) for n in range(10)]
    found = order([*MANY, *split], [10.0 + n / 10 for n in range(20)] + [14.0] * 10)
    assert found.index(20) < 6
    assert found.index(28) < 12
    assert found.index(29) > 22


def test_what_the_roofline_has_first_is_tried_early():
    roofline = [20.0] * 19 + [9.0]
    found = order(list(MANY), [10.0 + n for n in range(20)], roofline)
    assert found[:3] == [0, 19, 1]


def test_plans_in_doubt_are_tried_last_and_stand_for_no_structure():
    doubted = Tried("split s x4: 2 kernels", "rounds")
    tried = [doubted, Tried("one kernel"), Tried("split s x4: 2 kernels"), Tried("one kernel")]
    found = order(tried, [1.0, 2.0, 2.5, 2.2])
    assert found == [1, 2, 3, 0]


def test_no_plan_is_no_order():
    assert order([], []) == []


def test_of_equal_tiles_the_likelier_back_end_is_early():
    """Triton kernels of attention came early for the predictions of CUDA kernels."""
    tried = [Tried("one kernel", grid=n // 2) for n in range(12)]
    roofline = np.log([10.0 + n // 2 for n in range(12)])
    scores = np.log([20.0 - n // 2 + 20 * (n % 2) for n in range(12)])
    places = roofline_places(tried, ["cuda", "triton"] * 6, scores, roofline)
    assert list(np.argsort(places)) == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    assert {*in_turns(tried, scores, places)[:6]} == {0, 2, 4, 6, 8, 10}


def test_a_back_end_that_alone_has_a_tiling_stays_where_the_roofline_has_it():
    tried = [Tried("one kernel", grid=n) for n in range(4)]
    backends = ["cuda", "triton", "cuda", "triton"]
    places = roofline_places(tried, backends, [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0])
    assert list(places) == [3, 2, 1, 0]
