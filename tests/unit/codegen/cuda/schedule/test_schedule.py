from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage_py.codegen.cuda.schedule.register_order import ordered
from mirage_py.codegen.cuda.schedule.schedule import (
    Item,
    Phase,
    barrier_depths,
    plan_schedule,
    topological_order,
    values_of,
)
from mirage_py.errors import ScheduleError


@st.composite
def sections(draw, most=9):
    """Items in program order; of each edge to an earlier one whether it goes through shared."""
    items = []
    for n in range(draw(st.integers(0, most))):
        needs = draw(st.lists(st.integers(0, n - 1), unique=True, max_size=3)) if n else []
        through = [a for a in needs if draw(st.booleans())]
        registers = draw(st.integers(0, 9))
        items.append(Item(f"v{n}", tuple(needs), tuple(through), registers, draw(st.booleans())))
    return items


def longest_way(items):
    """Barriers on the way with the most of them, by trying every way."""

    def down(n):
        item = items[n]
        return max((down(a) + (a in item.needs_through_shared) for a in item.needs), default=0)

    return max(map(down, range(len(items))), default=0)


def phase_of(phases):
    return {n: number for number, phase in enumerate(phases) for n in phase.items}


def program_order(items):
    """The items as they stand, with a barrier after each that another needs through shared memory:
    what the schedule is worth is measured against it.
    """
    needed = dict.fromkeys(n for item in items for n in item.needs_through_shared)
    phases = [[]]
    for n in range(len(items)):
        phases[-1].append(n)
        if n in needed:
            phases.append([])
    return tuple(Phase(tuple(p)) for p in phases if p)


def peak_registers(values, order):
    """The most registers that live at a time: a value from its computation to its last reader."""
    place = {v: n for n, v in enumerate(order)}
    ends = {v: max([place[v], *(place[r] for r in values[v].readers)]) for v in order}
    return max(
        (
            sum(values[v].registers for v in order if place[v] <= n <= ends[v])
            for n in range(len(order))
        ),
        default=0,
    )


def check(items, phases):
    where = phase_of(phases)
    order = [n for phase in phases for n in phase.items]
    assert sorted(order) == list(range(len(items)))
    assert all(phase.items for phase in phases)
    for n, item in enumerate(items):
        for a in item.needs:
            assert order.index(a) < order.index(n)
            assert where[a] < where[n] or a not in item.needs_through_shared


@given(sections())
def test_as_many_barriers_as_the_longest_way_has(items):
    phases = plan_schedule(items)
    check(items, phases)
    assert len(phases) == (longest_way(items) + 1 if items else 0)


@given(sections())
def test_program_order_is_valid_and_never_shorter(items):
    phases = program_order(items)
    check(items, phases)
    assert len(phases) >= len(plan_schedule(items))


@given(sections())
def test_copies_go_as_early_as_they_can(items):
    phases = plan_schedule(items)
    where, depths = phase_of(phases), barrier_depths(items)
    for n, item in enumerate(items):
        if item.is_copy:
            assert where[n] == depths[n]
            # Only copies and what copies need stand before it in its phase.
            phase = phases[where[n]].items
            for other in phase[: phase.index(n)]:
                assert items[other].is_copy or is_needed_by_a_copy(items, other, phase)


def is_needed_by_a_copy(items, number, phase):
    users = [n for n in phase if number in items[n].needs]
    return any(items[n].is_copy or is_needed_by_a_copy(items, n, phase) for n in users)


@given(sections())
def test_the_schedule_is_the_same_each_time(items):
    assert plan_schedule(items) == plan_schedule(list(items))


@given(sections(most=6))
@settings(max_examples=60)
def test_in_straight_code_the_fewest_registers_live(items):
    free = [Item(i.name, i.needs, (), i.registers, is_copy=False) for i in items]
    values = values_of(free)
    least = min(
        peak_registers(values, order)
        for order in permutations(range(len(free)))
        if all(order.index(a) < order.index(n) for n, i in enumerate(free) for a in i.needs)
    )
    (phase,) = plan_schedule(free) or (Phase(()),)
    assert peak_registers(values, phase.items) == least


@given(sections(most=14))
@settings(max_examples=40)
def test_no_order_has_a_higher_peak_than_the_given_one(items):
    values = values_of(items)
    order = topological_order(items)
    assert peak_registers(values, ordered(values, [], order)) <= peak_registers(values, order)


def registers_across_barriers(items, where):
    values = values_of(items)
    return sum(
        v.registers * (max((where[r] for r in v.readers), default=where[n]) - where[n])
        for n, v in enumerate(values)
    )


def test_few_registers_live_across_barriers():
    """Against every assignment of phases, for sections of one barrier or more without copies."""
    better = 0
    for number in range(40):
        items = drawn_section(number)
        depths = barrier_depths(items)
        least = min(
            registers_across_barriers(items, where)
            for where in product(range(max(depths) + 1), repeat=len(items))
            if all(
                where[a] + (a in i.needs_through_shared) <= where[n]
                for n, i in enumerate(items)
                for a in i.needs
            )
        )
        found = registers_across_barriers(items, phase_of(plan_schedule(items)))
        assert found <= registers_across_barriers(items, depths)
        better += found > least
    assert better <= 2


def drawn_section(seed):
    import random

    draw = random.Random(seed)
    items = []
    for n in range(7):
        needs = tuple(draw.sample(range(n), min(n, draw.randrange(1, 3))))
        through = tuple(a for a in needs if draw.random() < 0.25)
        items.append(Item(f"v{n}", needs, through, draw.choice([1, 4, 32]), is_copy=False))
    return items


def test_a_circle_is_refused():
    items = [Item("a", (1,), (), 1, is_copy=False), Item("b", (0,), (0,), 1, is_copy=False)]
    with pytest.raises(ScheduleError, match="circle among a, b"):
        plan_schedule(items)


def item(name, *needs, through=(), registers=1, is_copy=False):
    return Item(name, (*needs, *through), tuple(through), registers, is_copy)


def test_one_barrier_serves_two_reductions():
    """Mean and mean of squares of a row that lies in several warps."""
    items = [
        item("x", registers=8, is_copy=True),
        item("sum in warps", 0),
        item("sum", through=(1,)),
        item("squares", 0, registers=8),
        item("sum of squares in warps", 3),
        item("sum of squares", through=(4,)),
        item("norm", 0, 2, 5, registers=8),
    ]
    assert len(program_order(items)) == 3
    assert plan_schedule(items) == (Phase((0, 1, 3, 4)), Phase((2, 5, 6)))


def test_weights_are_loaded_before_the_barrier_and_made_after_it():
    items = [
        item("x", registers=8, is_copy=True),
        item("sum in warps", 0),
        item("sum", through=(1,)),
        item("weights", registers=8, is_copy=True),
        item("one more than weights", 3, registers=16),
        item("y", 0, 2, 4, registers=8),
    ]
    assert plan_schedule(items) == (Phase((0, 3, 1)), Phase((2, 4, 5)))


def test_a_sum_is_made_before_the_barrier_and_its_terms_die():
    items = [
        item("x", registers=8, is_copy=True),
        item("maximum in warps", 0),
        item("maximum", through=(1,)),
        item("squares", 0, registers=8),
        item("sum of squares", 3),
        item("y", 2, 4),
    ]
    assert plan_schedule(items) == (Phase((0, 1, 3, 4)), Phase((2, 5)))
