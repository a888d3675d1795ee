"""Quotas for every kind of plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from plans import rms_plan

from mirage_py.search.model.cost_model import Estimate
from mirage_py.search.model.footprint import Footprint
from mirage_py.search.rank.diversity import diverse
from mirage_py.search.rank.instance import Instance, PlanEstimate

PLAN = rms_plan()
NOTHING = Footprint(0, 0)


def instance(
    kind: str, number: int, time_us: float, name: str = "", tiles: int = -1, leading: str = ""
) -> Instance:
    estimate = PlanEstimate((Estimate(time_us, NOTHING, 1, 1, "memory"),))
    tiling = (name or kind, number if tiles < 0 else tiles)
    lead = leading or tiling
    return Instance(PLAN.ugraph, PLAN, estimate, kind, name or kind, tiling, lead, lead)


def ranking(**kinds: tuple[int, float]) -> list[Instance]:
    """For each kind as many plans, from a time on, each a little slower than the one before."""
    found = [
        instance(kind, n, first_us + n / 1000)
        for kind, (count, first_us) in kinds.items()
        for n in range(count)
    ]
    return sorted(found, key=lambda i: i.estimate.time_us)


def counts(ranked: list[Instance], limit: int) -> Counter[str]:
    return Counter(i.kind for i in diverse(ranked, limit))


def test_every_kind_has_its_seats() -> None:
    ranked = ranking(one=(200, 10.0), split=(200, 12.0), library=(200, 25.0), atomic=(200, 29.0))
    assert counts(ranked, 80) == {"one": 32, "split": 16, "library": 16, "atomic": 16}
    ranked = ranking(one=(200, 10.0), split=(200, 10.0001), library=(200, 25.0))
    found = counts(ranked, 80)
    assert found["library"] == 16
    # What is left over goes by the prediction.
    assert found["one"] >= 32
    assert found["split"] >= 16
    assert sum(found.values()) == 80


def test_every_kind_has_one_seat_where_there_are_few() -> None:
    ranked = ranking(one=(200, 10.0), split=(200, 12.0), library=(200, 25.0), atomic=(200, 29.0))
    assert counts(ranked, 8) == {"one": 5, "split": 1, "library": 1, "atomic": 1}
    assert counts(ranked, 2) == {"one": 1, "split": 1}
    assert counts(ranked, 1) == {"one": 1}


def test_seats_left_over_go_to_what_is_near() -> None:
    # The first kind has few plans: much slower plans do not fill all of the quota that they leave.
    assert counts(ranking(one=(5, 10.0), far=(200, 17.0)), 80) == {"one": 5, "far": 16}
    assert counts(ranking(one=(5, 10.0), near=(200, 15.0)), 80) == {"one": 5, "near": 75}


def test_parts_take_turns() -> None:
    ranked = [instance("one", n, 10.0 + n / 1000) for n in range(100)]
    for splits, first_us in ((2, 20.0), (4, 20.2), (8, 21.0), (16, 22.0)):
        ranked += [
            instance("split", n, first_us + n / 1000, f"split d x{splits}") for n in range(50)
        ]
    chosen = Counter(i.name for i in diverse(ranked, 64) if i.kind == "split")
    assert chosen == {f"split d x{splits}": n for splits, n in ((2, 4), (4, 3), (8, 3), (16, 3))}


def test_near_copies_are_left_out() -> None:
    ranked = [instance("one", n, 10.0 + n, tiles=n // 10) for n in range(40)]
    chosen = diverse(ranked, 40)
    assert len(chosen) == 12
    assert max(Counter(i.tiling for i in chosen).values()) == 3


@pytest.mark.parametrize("limit", [1, 7, 40, 1000])
def test_the_order_is_that_of_the_ranking(limit: int) -> None:
    ranked = ranking(one=(60, 10.0), split=(60, 10.01), library=(9, 30.0))
    times = [i.estimate.time_us for i in diverse(ranked, limit)]
    assert times == sorted(times)
    assert len(times) <= limit
    assert times[0] == 10.0


def test_nothing_to_choose_from() -> None:
    assert diverse([], 8) == ()
    assert diverse([replace(ranking(one=(1, 1.0))[0])], 0) == ()


def test_of_several_kernels_the_longest_is_varied() -> None:
    # Ten choices of a short second kernel for each of three first ones.
    ranked = [
        instance("split", 10 * first + second, 10 + first + second / 1000, leading=f"tile {first}")
        for first in range(3)
        for second in range(10)
    ]
    found = diverse(ranked, 30)
    assert Counter(i.leading for i in found) == {"tile 0": 4, "tile 1": 4, "tile 2": 4}
    assert found[0] is ranked[0]


def test_grids_take_turns_while_they_are_near() -> None:
    ranked = [instance("one", n, 10.0 + n / 1000) for n in range(60)]
    # Ten plans for each of four grids; those of the last one are much slower.
    ranked += [
        replace(
            instance("split", 10 * grid + n, 20 + grid * (1 if grid < 3 else 2) + n / 1000),
            leading_grid=grid,
        )
        for grid in range(4)
        for n in range(10)
    ]
    chosen = Counter(i.leading_grid for i in diverse(ranked, 30) if i.kind == "split")
    assert chosen == {0: 2, 1: 2, 2: 2}
