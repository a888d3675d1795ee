"""Random legal programs through the real search: what is accepted is right, also on ties, zeros and
empty masks.
"""

from __future__ import annotations

from collections import Counter

import pytest
from adversarial.random_campaign import judged
from adversarial.random_programs import random_program
from nightly import NIGHTLY

# Six from each. When the campaign was new, 24 and 38 gave wrong families that all tiers accepted.
FIRSTS = range(20, 44, 6) if NIGHTLY else (20, 38)


@pytest.mark.parametrize("first", FIRSTS)
def test_no_wrong_family_is_accepted(first: int) -> None:
    found = [judged(seed) for seed in range(first, first + 6)]
    assert [fault for f in found for fault in f.faults] == []
    counts: Counter[str] = sum((f.counts for f in found), Counter())
    assert counts["accepted: same"] > 6


def test_a_seed_names_one_program() -> None:
    assert random_program(24) == random_program(24)
    assert random_program(24) != random_program(25)


def test_programs_have_guards_masks_casts_and_several_outputs() -> None:
    programs = [random_program(seed) for seed in range(100)]
    ops = Counter(op for p in programs for op in {n.op for n in p.nodes})
    assert min(ops[op] for op in ("where", "mask", "cast", "gt", "div", "matmul", "sum")) >= 5
    assert sum(len(p.outputs) > 1 for p in programs) >= 20
    assert sum(1 in p.sizes.values() for p in programs) >= 20
