"""The field test in this process and in others finds the same."""

from __future__ import annotations

import time

import pytest

from mirage_py.errors import UnsupportedError
from mirage_py.pipeline.pools import verify_pool
from mirage_py.runtime.process.executor import SEARCH
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.search.enumerate.search import search
from mirage_py.search.stabilize.safe import safe_families
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.field_test.field_test import FieldEvidence


@pytest.fixture(scope="module")
def softmax() -> Program:
    builder = ProgramBuilder("softmax")
    builder.dim("b", 8)
    builder.dim("n", 64)
    builder.input("X", (8, 64), F32)
    e = builder.apply("exp", builder.load("X", ["b", "n"]))
    builder.output("Y", builder.apply("div", e, builder.sum(e, ["n"])), ["b", "n"], F32)
    return builder.build()


@pytest.fixture(scope="module")
def families(softmax: Program) -> list[UGraph]:
    return list(safe_families(search(softmax, seed=0).families).ugraphs)[:4]


def test_other_processes_find_the_same(
    softmax: Program, families: list[UGraph], monkeypatch: pytest.MonkeyPatch
):
    here = list(verify_pool.findings(softmax, families, trials=2, seed=3))
    monkeypatch.setattr(verify_pool, "_WORTH_S", 0.0)
    with WorkerPool(2, SEARCH) as executor:
        found = verify_pool.findings(softmax, families, trials=2, seed=3, executor=executor)
        there = list(found)
    assert len(here) == len(families) > 2
    assert here == there
    assert all(isinstance(f, FieldEvidence) and f.equal and f.functions for _, f in here)


def test_after_the_deadline_the_first_that_passes_is_enough(
    softmax: Program, families: list[UGraph]
):
    late = time.monotonic() - 1.0
    found = list(verify_pool.findings(softmax, families, trials=2, seed=3, deadline=late))
    assert len(found) == 1


def test_what_a_process_refuses_is_said_as_it_is_here():
    answer = {"refused": {"what": "a", "where": "b", "why": "c"}}
    found = verify_pool._finding(answer)
    assert isinstance(found, UnsupportedError)
    assert (found.what, found.where, found.why) == ("a", "b", "c")
