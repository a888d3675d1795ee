"""Choices for several kernels together."""

from __future__ import annotations

from itertools import product

from mirage_py.search.model.cost_model import Estimate
from mirage_py.search.model.footprint import Footprint
from mirage_py.search.rank.instantiate import combinations_of
from mirage_py.search.rank.kernel_choices import KernelChoice
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import LibraryCall


def choices(name: str, *times_us: float) -> list[KernelChoice]:
    call = LibraryCall(name, "matmul", (), "")
    return [
        KernelChoice(call, LaunchConfig(n + 1), Estimate(t, Footprint(0, 0), 1, 1, "memory"))
        for n, t in enumerate(times_us)
    ]


def times(ranked: list[list[KernelChoice]], limit: int) -> list[float]:
    return [c.time_us for c in combinations_of(ranked, limit)]


def test_one_kernel_is_its_choices() -> None:
    assert times([choices("a", 1.0, 2.0, 4.0)], 2) == [1.0, 2.0]


def test_times_add_up_and_are_sorted() -> None:
    ranked = [choices("a", 10.0, 11.0, 19.0), choices("b", 1.0, 1.5, 8.0)]
    found = combinations_of(ranked, 100)
    assert [c.time_us for c in found] == sorted(c.time_us for c in found)
    assert found[0].time_us == 11.0
    for one in found:
        assert one.time_us == sum(c.estimate.time_us for c in one.choices)
        assert [c.kernel.name for c in one.choices] == ["a", "b"]


def test_there_is_no_product_of_everything() -> None:
    many = [1.0 + n / 100 for n in range(50)]
    ranked = [choices("a", *many), choices("b", *many), choices("c", *many)]
    found = combinations_of(ranked, 1000)
    assert len(found) < 50 * 3 + 3 * 9
    assert len({tuple(c.options for c in f.choices) for f in found}) == len(found)


def test_the_best_few_are_those_of_the_product() -> None:
    ranked = [choices("a", 10.0, 10.5, 13.0, 14.0), choices("b", 2.0, 2.2, 5.0, 6.0)]
    every = sorted(sum(c.estimate.time_us for c in pick) for pick in product(*ranked))
    assert times(ranked, 4) == every[:4]


def test_a_short_kernel_gets_few_variants() -> None:
    many = [1.0 + n / 100 for n in range(60)]
    ranked = [choices("long", *(100 * t for t in many)), choices("short", *many)]
    found = combinations_of(ranked, 60)
    variants = {f.choices[1].options for f in found}
    assert len(variants) <= 3
    assert len({f.choices[0].options for f in found}) > 40


def test_of_equal_times_those_come_first_that_vary_the_longest_kernel() -> None:
    found = combinations_of([choices("a", 1.0, 1.0), choices("b", 9.0, 9.0)], 3)
    warps = [tuple(c.options.num_warps for c in one.choices) for one in found]
    assert warps == [(1, 1), (1, 2), (2, 1)]
