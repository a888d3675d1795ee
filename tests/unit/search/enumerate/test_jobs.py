"""Jobs: the result does not depend on where and in which order they run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from unit.search import programs
from unit.search.kernels import FACTORED, ONE_KERNEL

from mirage_py.frontend.spec import parse
from mirage_py.reasons import Code, reason
from mirage_py.search.enumerate import jobs
from mirage_py.search.enumerate.jobs import Job, Setting, jobs_of, run
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import ONE_KERNEL as ALONE
from mirage_py.search.extract.task import Outcome, SearchLimits
from mirage_py.search.space.spaces import Configuration
from mirage_py.ugraph.field import DivisionByZero

_TELL = """
from unit.search import programs
from mirage_py.search.enumerate.search import SearchLimits, search
for program in (programs.rmsnorm_matmul(), programs.attention()):
    result = search(program, seed=3, limits=SearchLimits(rings=("factored",)))
    print([(f.kind, f.ugraph.digest, f.cost_us) for f in result.families])
    print([[str(o.derivation) for o in f.origins] for f in result.families])
    print(result.counters, result.reasons)
"""


def never():
    return False


def digests(families):
    return [f.ugraph.digest for f in families]


def test_a_seed_gives_the_same_result_in_every_process(capsys):
    """In this one, and in one with other hashes of strings."""
    exec(_TELL, {})
    here = capsys.readouterr().out
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    tests = Path(programs.__file__).parents[2]
    env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(tests)}
    command = [sys.executable, "-c", _TELL]
    there = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    assert here.count("two kernels") > 10
    assert here == there


def test_the_jobs_of_a_program():
    setting = Setting(programs.rmsnorm_matmul(), 0, FACTORED)
    assert [str(job) for job in jobs_of(setting)] == [
        "factored ring, whole, 1 kernels, last: no loop",
        "factored ring, whole, 1 kernels, last: loop over d",
        "factored ring, whole, 2 kernels, last: library call",
        "factored ring, whole, 2 kernels, last: no loop",
        "factored ring, whole, 2 kernels, last: loop over d",
        "factored ring, split d, 2 kernels, last: no loop",
    ]
    alone = list(jobs_of(replace(setting, limits=ONE_KERNEL)))
    assert [job.kernels for job in alone] == [1, 1]
    split = list(jobs_of(replace(setting, limits=replace(FACTORED, max_unsplit_kernels=1))))
    assert [(job.split, job.kernels) for job in split] == [(None, 1), (None, 1), ("d", 2)]


@pytest.mark.parametrize("make", [programs.rmsnorm_matmul, programs.two_contractions])
def test_all_jobs_together_give_what_a_search_gives(make):
    setting = Setting(make(), 0, FACTORED)
    every = list(jobs_of(setting))
    shuffled = random.Random(5).sample(every, len(every))
    outcomes = {job: run(setting, job, never) for job in shuffled}
    total = Outcome()
    for job in every:
        total.merge(outcomes[job])
    result = search(make(), limits=FACTORED)
    families = sorted(total.families.values(), key=lambda f: f.cost_us)
    assert digests(families) == digests(result.families)
    assert total.counter.freeze() == result.counters
    assert tuple(dict.fromkeys(total.reasons)) == result.reasons


def test_a_job_alone_gives_what_it_gives_among_others():
    setting = Setting(programs.rmsnorm_matmul(), 0, FACTORED)
    job = Job("factored", None, 2, Configuration(("d",)))
    assert job in jobs_of(setting)
    found = run(setting, job, never)
    again = run(setting, job, never)
    assert found.families
    assert [*found.families] == [*again.families]
    assert found.counter.freeze() == again.counter.freeze()


def test_what_is_made_again_fits_what_was_kept():
    # The draws of a search are forgotten before its kernels, after enough other searches.
    program = programs.gated_mlp()
    before = search(program, limits=FACTORED)
    jobs._draw.cache_clear()
    after = search(program, limits=FACTORED)
    assert digests(after.families) == digests(before.families)
    assert after.counters == before.counters


def test_threads_that_search_the_same_program_do_not_disturb_each_other():
    program = programs.gated_mlp()
    expected = digests(search(program, limits=FACTORED).families)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: search(program, limits=FACTORED), range(4)))
    assert [digests(result.families) for result in results] == [expected] * 4


def test_a_variant_has_no_one_kernel_families():
    setting = Setting(programs.rmsnorm_matmul(), 0, FACTORED)
    for job in jobs_of(setting):
        kinds = {f.kind for f in run(setting, job, never).families.values()}
        assert (ALONE in kinds) == (job.kernels == 1)


def test_a_deadline_that_has_passed():
    # Another size than elsewhere, so that nothing of it is kept.
    program = programs.attention(s=4096 + 64)
    result = search(program, deadline=time.monotonic() - 1)
    assert result.stopped
    assert not result.exhausted
    assert reason(Code.OUT_OF_TIME) in result.reasons
    complete = search(program, limits=FACTORED)
    assert {*digests(result.families)} <= {*digests(complete.families)}
    now = time.monotonic()
    found = search(program, limits=FACTORED, deadline=now - 1, in_vain_by=now + 600)
    assert found.stopped
    assert 0 < len(found.families) < len(complete.families)


def test_a_stop_between_derivations_keeps_what_was_found():
    program = programs.rmsnorm_matmul()
    complete = search(program, limits=FACTORED)
    for patience in (1, 5, 20):
        asked = 0

        def stop():
            nonlocal asked
            asked += 1
            return asked > patience  # noqa: B023 the search is over before the next round

        result = search(program, limits=FACTORED, should_stop=stop)
        assert result.stopped
        assert not result.exhausted
        assert len(result.families) < len(complete.families)
        assert {*digests(result.families)} <= {*digests(complete.families)}
    assert digests(search(program, limits=FACTORED).families) == digests(complete.families)


def test_that_no_draw_has_a_value_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse("B = 4, D = 6\nX[B, D] : f32\nY[b] = sum[d](X[b, d] / (X[b, d] - X[b, d]))")
    begun = []

    class Counted(jobs.Draw):
        def __init__(self, task, seed, *, skip_divisions):
            begun.append((seed, skip_divisions))
            super().__init__(task, seed, skip_divisions=skip_divisions)

    monkeypatch.setattr(jobs, "Draw", Counted)
    setting = Setting(program, 0, SearchLimits())
    for job in [j for j in jobs_of(setting) if j.split is None]:
        with pytest.raises(DivisionByZero):
            run(setting, job, lambda: False)
    assert len(begun) == len(dict.fromkeys(begun)) > 1
