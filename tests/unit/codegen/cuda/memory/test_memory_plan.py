from __future__ import annotations

import random
from itertools import combinations

import pytest
from oracles.memory_solver import solve_memory

from mirage_py.codegen.cuda.memory.memory_plan import Buffer, plan_memory, plan_without_reuse
from mirage_py.codegen.cuda.memory.memory_search import lower_bound
from mirage_py.errors import ScheduleError

NO_LIMIT = 1 << 40


def drawn(seed, most):
    """Buffers as kernels have them: tiles of the copy engine, rows, scratch of reductions."""
    draw = random.Random(seed)
    steps = draw.randrange(1, 9)
    buffers = []
    for n in range(draw.randrange(1, most + 1)):
        first, last = sorted(draw.choices(range(steps), k=2))
        size = draw.choice(
            [16 * draw.randrange(1, 40), 1024 * draw.randrange(1, 20), draw.randrange(1, 9000)]
        )
        alignment = draw.choice([16, 16, 128, 1024])
        buffers.append(Buffer(f"b{n}", size, alignment, first, last))
    return buffers


def check(buffers, plan):
    ends = [plan.offsets[b.name] + b.size_bytes for b in buffers]
    assert plan.total_bytes == max(ends, default=0)
    for b in buffers:
        assert plan.offsets[b.name] >= 0
        assert plan.offsets[b.name] % b.alignment_bytes == 0
    for a, b in combinations(buffers, 2):
        if a.box.meets(b.box):
            low, high = sorted((a, b), key=lambda x: plan.offsets[x.name])
            assert plan.offsets[low.name] + low.size_bytes <= plan.offsets[high.name]


@pytest.mark.parametrize("seed", range(0, 250, 25))
def test_as_small_as_the_solver_proves(seed):
    pytest.importorskip("ortools")
    for number in range(seed, seed + 25):
        buffers = drawn(number, most=7)
        plan, solved = plan_memory(buffers, NO_LIMIT), solve_memory(buffers, seconds=2)
        check(buffers, plan)
        check(buffers, solved)
        assert plan.is_optimal
        assert solved.is_optimal
        assert plan.total_bytes == solved.total_bytes


def test_large_instances_end_and_are_near_the_bound():
    for number in range(20):
        buffers = drawn(number, most=40)
        plan = plan_memory(buffers, NO_LIMIT, max_placements=300)
        check(buffers, plan)
        bound = lower_bound([b.box for b in buffers])
        assert bound <= plan.total_bytes <= 1.15 * bound
        assert plan == plan_memory(buffers, NO_LIMIT, max_placements=300)


def test_a_buffer_takes_the_place_of_a_dead_one():
    buffers = [
        Buffer("tile", 4096, 1024, 0, 1),
        Buffer("scratch", 512, 16, 1, 2),
        Buffer("result", 4096, 128, 2, 3),
    ]
    plan = plan_memory(buffers, 4608)
    check(buffers, plan)
    assert plan.total_bytes == 4608
    assert plan.is_optimal
    assert plan_without_reuse(buffers, NO_LIMIT).total_bytes == 4096 + 512 + 4096


def test_without_reuse_every_buffer_has_its_own_place():
    for number in range(20):
        buffers = drawn(number, most=7)
        plan = plan_without_reuse(buffers, NO_LIMIT)
        check([Buffer(b.name, b.size_bytes, b.alignment_bytes, 0, 0) for b in buffers], plan)
        assert plan.total_bytes >= plan_memory(buffers, NO_LIMIT).total_bytes


def test_first_fit_alone_is_not_enough():
    """Some of the drawn instances need the search: the best of the first fits is above them."""
    searched = [
        n
        for n in range(100)
        if plan_memory(drawn(n, 7), NO_LIMIT, max_placements=0).total_bytes
        > plan_memory(drawn(n, 7), NO_LIMIT).total_bytes
    ]
    assert len(searched) > 10


def test_nothing_takes_nothing():
    plan = plan_memory([], 0)
    assert plan.total_bytes == 0
    assert plan.is_optimal


def test_over_the_limit_the_largest_are_named():
    buffers = [Buffer(f"b{n}", 1000 * n, 16, 0, 0) for n in range(1, 6)]
    with pytest.raises(ScheduleError) as caught:
        plan_memory(buffers, 14_000)
    assert "150" in caught.value.what
    assert caught.value.why == ("the largest: b5 of 5000 bytes, b4 of 4000 bytes, b3 of 3000 bytes")
