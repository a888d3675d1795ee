"""A search continues where its journal ends, and reads no journal of another search."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from unit.search import programs
from unit.search.kernels import FACTORED

from mirage_py.errors import InputError
from mirage_py.search.enumerate.jobs import Setting, jobs_of, run
from mirage_py.search.enumerate.journal import Journal
from mirage_py.search.enumerate.outcome_json import outcome_from_json, outcome_to_json
from mirage_py.search.enumerate.runners import run_here
from mirage_py.search.enumerate.search import search


@pytest.fixture(scope="module")
def program():
    return programs.rmsnorm_matmul()


@pytest.fixture(scope="module")
def whole(program):
    return search(program, limits=FACTORED)


@pytest.fixture
def complete(program, tmp_path):
    path = tmp_path / "folder" / "journal"
    search(program, limits=FACTORED, journal=path)
    return path


def told(result):
    """All of a result but the time it took."""
    return replace(result, seconds=0.0)


def counting(ran):
    def runner(setting, jobs, **rest):
        ran.extend(jobs)
        run_here(setting, jobs, **rest)

    return runner


def test_a_complete_journal_needs_no_search(program, whole, complete):
    ran = []
    result = search(program, limits=FACTORED, journal=complete, runner=counting(ran))
    assert not ran
    assert told(result) == told(whole)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.99])
def test_a_journal_that_was_cut_anywhere_is_gone_on_with(program, whole, complete, part):
    content = complete.read_bytes()
    complete.write_bytes(content[: int(len(content) * part)])
    ran = []
    result = search(program, limits=FACTORED, journal=complete, runner=counting(ran))
    assert ran
    assert told(result) == told(whole)
    assert complete.read_bytes() == content


def test_a_line_that_was_altered_is_searched_again(program, whole, complete):
    lines = complete.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"matmul", b"square", 1)
    complete.write_bytes(b"".join(lines))
    assert told(search(program, limits=FACTORED, journal=complete)) == told(whole)


@pytest.mark.parametrize("change", ["seed", "limits", "program"])
def test_the_journal_of_another_search_is_refused_and_kept(program, complete, change):
    content = complete.read_bytes()
    other = programs.gated_mlp() if change == "program" else program
    limits = replace(FACTORED, makers=1) if change == "limits" else FACTORED
    with pytest.raises(InputError, match="another search"):
        search(other, limits=limits, seed=int(change == "seed"), journal=complete)
    assert complete.read_bytes() == content


def test_what_was_stopped_is_not_in_the_journal(program, tmp_path):
    path = tmp_path / "journal"
    search(program, limits=FACTORED, journal=path, should_stop=lambda: True)
    assert Journal(path, Setting(program, 0, FACTORED)).known == {}


def test_an_outcome_survives_its_json(program):
    setting = Setting(program, 0, FACTORED)
    for job in jobs_of(setting):
        outcome = run(setting, job, lambda: False)
        data = json.loads(json.dumps(outcome_to_json(outcome)))
        for validated in (True, False):
            back = outcome_from_json(data, validated=validated)
            assert back.families == outcome.families
            assert back.counter.freeze() == outcome.counter.freeze()
            assert back.saturated == outcome.saturated
            assert back.classes == outcome.classes


def test_shared_parts_are_written_once(program):
    setting = Setting(program, 0, FACTORED)
    outcome = max(
        (run(setting, job, lambda: False) for job in jobs_of(setting)),
        key=lambda o: len(o.families),
    )
    found = outcome_to_json(outcome)["found"]
    kernels = sum(len(row["kernels"]) for row in found["families"])
    assert len(found["programs"]) == 1
    assert len(found["kernels"]) < kernels
    assert len(found["nodes"]) < sum(len(kernel.get("nodes", ())) for kernel in found["kernels"])
