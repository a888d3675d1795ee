"""Pruning loses nothing: every block graph that brute force finds, the search has or beats."""

from __future__ import annotations

import sys

import pytest
from completeness.audit import HEADER, audit, audit_both_ways, brute_force
from completeness.programs import CASES, Subject
from completeness.report import chosen
from nightly import NIGHTLY

from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import SPLIT

BOTH_WAYS = [
    Subject("softmax", (("n",),), 5),
    Subject("l2_norm", (("d",),), 5),
    Subject("centred", (("d",),), 4),
    Subject("shifted_sum", (("d",),), 5),
    Subject("gated", (("d",),), 5),
    Subject("two_outputs", (("d",),), 4),
    # Products as ``gated`` has them: half of the time of all.
    *(Subject(name, (("d",),), 5) for name in ("share_matmul", "lora") if NIGHTLY),
]


@pytest.mark.parametrize("subject", chosen(), ids=str)
def test_nothing_is_missing(subject):
    report = audit(subject)
    sys.stdout.write(f"{HEADER}\n{report}\n")
    assert report.missing == []
    assert report.unmet == []
    assert report.contained + report.expanded + len(report.lost) > 0


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.lost])
def test_what_is_documented_as_lost_is_lost(name):
    mine = [subject for subject in chosen() if subject.name == name]
    found = [str(graph) for subject in mine for graph in brute_force(subject).graphs]
    lost = [graph for subject in mine for graph in audit(subject).lost]
    assert sorted(lost) == sorted(graph for graph in CASES[name].lost if graph in found)


@pytest.mark.parametrize("subject", BOTH_WAYS, ids=str)
def test_reading_a_dimension_whole_and_in_tiles_gains_nothing(subject):
    report = audit_both_ways(subject)
    sys.stdout.write(f"{HEADER}\n{report}\n")
    assert report.verified > 0
    assert report.missing == []


FEW_ROWS = Subject("two_outputs", ((), ()), 4, "d", again=True)


def test_blocks_can_share_out_a_long_row_that_the_last_kernel_reads_again():
    """Brute force finds it: the first kernel sums splits of a row, the second one adds these up and
    divides the row. Where there are few rows, nothing else fills a GPU.
    """
    (graph,) = brute_force(FEW_ROWS).graphs
    assert [s.kind.kernel for s in graph.steps if s.op == "sum"] == [0, 1]
    assert graph.steps[-1].op == "div"


@pytest.mark.xfail(
    strict=True, reason="a second kernel reads nothing that is split (search/enumerate/chains.py)"
)
def test_the_search_has_it():
    families = search(CASES[FEW_ROWS.name].make()).families
    assert SPLIT in [family.kind for family in families]
