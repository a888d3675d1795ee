"""Pruning loses nothing: every block graph that brute force finds, the search has or beats."""

from __future__ import annotations

import sys

import pytest
from completeness.audit import HEADER, audit, audit_both_ways
from completeness.report import chosen

BOTH_WAYS = [
    ("softmax", ("n",), 5),
    ("l2_norm", ("d",), 5),
    ("share_matmul", ("d",), 5),
    ("lora", ("d",), 5),
    ("centred", ("d",), 4),
    ("shifted_sum", ("d",), 5),
    ("gated", ("d",), 5),
    ("two_outputs", ("d",), 4),
]


def named(row):
    name, looped, most = row
    return f"{name}-{'_'.join(looped) or 'no_loop'}-{most}"


@pytest.mark.parametrize("row", chosen(), ids=named)
def test_nothing_is_missing(row):
    report = audit(*row)
    sys.stdout.write(f"{HEADER}\n{report}\n")
    assert report.missing == []
    assert report.unmet == []
    assert report.contained + report.expanded + len(report.lost) > 0


@pytest.mark.parametrize("row", BOTH_WAYS, ids=named)
def test_reading_a_dimension_whole_and_in_tiles_gains_nothing(row):
    report = audit_both_ways(*row)
    sys.stdout.write(f"{HEADER}\n{report}\n")
    assert report.verified > 0
    assert report.missing == []
