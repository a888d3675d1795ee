"""A search in several processes is the search in one."""

from __future__ import annotations

import functools
import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from unit.search import programs
from unit.search.kernels import FACTORED

from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import normalise
from mirage_py.pipeline.pools import search_pool
from mirage_py.pipeline.pools.search_pool import SearchPool, _chunks
from mirage_py.runtime.process.executor import SEARCH
from mirage_py.runtime.process.warm_workers import WarmWorkers
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.search.enumerate.jobs import Setting, jobs_of
from mirage_py.search.enumerate.search import search

# A second of search.
LARGE = Path(__file__).parents[4] / "examples/qknorm_attention.math"


def told(result):
    return replace(result, seconds=0.0)


@functools.cache
def alone(program):
    """What one process finds."""
    return told(search(program))


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1, SEARCH) as executor:
        yield SearchPool(executor, 1)


@pytest.mark.parametrize("make", [programs.rmsnorm_matmul, programs.attention])
def test_two_processes_find_what_one_finds(pool, make):
    program = make()
    assert told(search(program, runner=pool)) == alone(program)


def test_workers_that_wait_take_part_and_no_others_start(monkeypatch: pytest.MonkeyPatch):
    """After three seconds fifteen more processes started beside those that compile next."""
    warm = WarmWorkers()
    monkeypatch.setattr(search_pool, "WARM", warm)
    kept = WorkerPool(1, SEARCH)
    warm.keep(1, lambda: kept)
    program = programs.rmsnorm_matmul()
    with WorkerPool(1, SEARCH) as own:
        assert told(search(program, runner=SearchPool(own, 1))) == alone(program)
        assert not any(w.is_running for w in own._workers)
    assert all(w.is_running for w in kept._workers)
    assert warm.take(1) is kept
    kept.close()


def test_a_stop_reaches_the_processes(pool):
    program = normalise(parse_file(LARGE))
    asked = itertools.count()
    result = search(program, runner=pool, should_stop=lambda: next(asked) > 20)
    assert result.stopped
    assert not result.exhausted


def test_what_a_dead_process_did_not_do_is_done_here(pool):
    program = programs.rmsnorm_matmul()
    # So that there are processes.
    assert told(search(program, runner=pool)) == alone(program)
    (worker,) = pool._executor._workers
    assert worker._process is not None
    os.killpg(worker._process.pid, signal.SIGKILL)
    assert told(search(program, runner=pool)) == alone(program)


def test_chunks_are_whole_variants_but_for_what_is_more_than_a_share():
    jobs = list(jobs_of(Setting(programs.attention(), 0, FACTORED)))
    chunks = _chunks(jobs, 2)
    assert sorted(map(str, jobs)) == sorted(str(job) for chunk in chunks for job in chunk)
    assert all(len(chunk) <= 1.25 * len(jobs) / 2 for chunk in chunks)
    assert all(len({(j.ring, j.split) for j in chunk}) == 1 for chunk in chunks)
    assert [len(chunk) for chunk in chunks] == sorted(map(len, chunks), reverse=True)
    assert [len(chunk) for chunk in _chunks(jobs, 1)] == [
        len([j for j in jobs if j.split == split]) for split in dict.fromkeys(j.split for j in jobs)
    ]
