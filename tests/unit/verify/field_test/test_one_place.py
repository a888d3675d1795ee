"""Differences in one place at real sizes are found, and other words for the same are equal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import naive_plan
from nightly import NIGHTLY
from one_place import ATTENTION, COLUMNS, DIFFERENT, EQUAL, SUMMED, VALUES, masks, values

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.field_test.programs import compare_programs
from mirage_py.verify.samples.sampled_test import sampled_test
from mirage_py.verify.shifts.shift_free import without_infinities

SEEDS = 20 if NIGHTLY else 2


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_in_one_place_is_found_for_every_seed(name: str):
    left, right = map(parse, DIFFERENT[name])
    found = [compare_programs(left, right, trials=1, samples=1, seed=s) for s in range(SEEDS)]
    assert [f.equal for f in found] == [False] * SEEDS
    assert all(f.difference is not None for f in found)


@pytest.mark.parametrize("name", EQUAL)
def test_other_words_for_the_same_are_equal_in_full(name: str):
    left, right = map(parse, EQUAL[name])
    for seed in range(3 if NIGHTLY else 1):
        found = compare_programs(left, right, trials=2, samples=1, seed=seed)
        assert found.equal, found.difference
        assert found.skipped == ()
        assert found.pieces > 0


def test_the_difference_names_its_place():
    left, right = map(parse, DIFFERENT["one element"])
    found = compare_programs(left, right, trials=1, samples=1, seed=3)
    assert found.difference is not None
    assert found.difference.element == (3, 77)
    assert "n = 8192" in found.difference.sizes


def test_a_small_difference_is_excused_by_a_test_in_full_only(monkeypatch):
    """The mean is a sum times a number that stands for a size. Where a piece costs too much the
    question stays open, and then the difference that was seen counts.
    """
    text = "B = 4, N = 512\nX[B, N] : f32\nY[b, n] = where(n < 500, X[b, n], {mean})"
    left = parse(text.format(mean="mean[k](X[b, k])"))
    right = parse(text.format(mean="sum[k](X[b, k]) * 0.001953125"))
    found = compare_programs(left, right)
    assert found.equal
    assert "a constant stands for a size" in found.reason
    monkeypatch.setattr("mirage_py.verify.pieces.piece_test.MAX_TRIAL_WORK", 1.0)
    found = compare_programs(left, right)
    assert not found.equal
    assert found.skipped


def test_pieces_that_cost_too_much_are_named(monkeypatch):
    monkeypatch.setattr("mirage_py.verify.pieces.piece_test.MAX_TRIAL_WORK", 5000.0)
    left, right = map(parse, masks(SUMMED, 512, "s <= t", "t >= s"))
    found = compare_programs(left, right, samples=1)
    assert found.equal
    assert found.pieces == 1
    assert found.skipped == ("Y[511]: it takes 4.1e+03 more operations",)


def test_conditions_that_are_too_many_are_said_to_be(monkeypatch):
    monkeypatch.setattr("mirage_py.verify.pieces.pieces.MAX_OPERATIONS", 1000)
    left, right = map(parse, EQUAL["blocks by quotients or by borders"])
    found = compare_programs(left, right, trials=1, samples=1)
    assert found.equal
    assert found.pieces == 0
    assert any("pieces of Y" in words for words in found.skipped)


KERNELS = {
    "causal, window of 511": (
        masks(ATTENTION, 512, "s <= t", "t - 511 < s <= t"), {"t": 16}
    ),
    "one column of 4096": (
        values(COLUMNS, "X[b, n] * 2", "X[b, n] * where(n == 1000, 3, 2)", n=4096),
        {"b": 1, "n": 128},
    ),
    "one element": (
        values(COLUMNS, "X[b, n] + 1", "X[b, n] + where(n == 77 & b == 3, 2, 1)", n=8192),
        {"b": 2, "n": 256},
    ),
    "a column from elsewhere": (
        values(COLUMNS, "X[b, n]", "X[b, (n + 4095 * (n // 4095)) % 4096]", n=4096),
        {"b": 2, "n": 100},
    ),
    "a window one wider": (
        masks(SUMMED, 2048, "t - 2000 < s <= t", "t - 2001 < s <= t"), {"t": 16}
    ),
    "slopes": (
        masks(VALUES, 4096, "512 * s <= 513 * t + 100", "512 * s <= 513 * t + 99"), {"t": 16}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_is_wrong_in_one_place(name: str):
    """The kernel computes the second program, and the first is what it should compute."""
    (right_text, wrong_text), tiles = KERNELS[name]
    program, other = (
        without_infinities(lower_masks(parse(text)), seed=0) for text in (right_text, wrong_text)
    )
    right = naive_plan(program, tiles).ugraph
    wrong = replace(naive_plan(other, tiles).ugraph, program=program)
    evidence = sampled_test(program, right, samples=1, seed=0)
    assert evidence.equal, evidence.mismatch
    assert evidence.skipped == ""
    found = [sampled_test(program, wrong, samples=1, seed=s) for s in range(SEEDS)]
    assert [f.equal for f in found] == [False] * SEEDS
