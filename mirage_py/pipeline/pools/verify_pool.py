"""The field test of many families, spread over processes where it takes long.

The first are tested here, as a process takes a second to start and most programs have few families,
or small ones; or by workers that wait for kernels to compile. Evidence is the same wherever it was
found. Programs that families are of are
compared at their real sizes for what is chosen in the end, and not here.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, replace
from typing import Any

from mirage_py.errors import UnsupportedError
from mirage_py.reasons import read_reason
from mirage_py.runtime.process.executor import Executor, reply_of
from mirage_py.runtime.process.warm_workers import FEW_PLACES, WARM
from mirage_py.runtime.process.worker_process import Reply
from mirage_py.settings import Settings
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.field_test.field_test import FieldEvidence
from mirage_py.verify.field_test.meanings import FunctionUse, Nested, Paths

# What is known of a family: evidence, or why a field cannot judge it.
Finding = FieldEvidence | UnsupportedError

# Seconds of this process that what is left has to be worth before others are started.
_WORTH_S = 4.0
# After the deadline, in which a family may still be found equal where none was.
_AT_LAST_S = 10.0
# After the deadline, in which tests that others have begun may end: those of split reductions take
# three times as long as others, and kernels compile meanwhile.
_BEGUN_S = 1.5
# Share of an executor's places that test families while the others compile, and before much does:
# that is a family of most structures.
_AHEAD_SHARE, IDLE_SHARE = 0.5, 0.75
_LOOK_S = 0.05

# Tests that were asked for, by the digests of the families.
Begun = dict[str, Future[Reply]]


def begin_findings(
    program: Program,
    families: Sequence[UGraph],
    *,
    trials: int,
    seed: int,
    executor: Executor,
    begun: Begun | None = None,
    share: float = _AHEAD_SHARE,
) -> Begun:
    """What has ``begun``, and the first of the other families, as many as may be tested at a time
    by a ``share`` of the places of an executor that has many.
    """
    ahead = dict(begun or {})
    most = int(share * executor.places) if executor.places > FEW_PLACES else 0
    free = most - sum(not f.done() for f in ahead.values())
    fresh = [f for f in {f.digest: f for f in families}.values() if f.digest not in ahead]
    task = _task(program, trials, seed)
    for family in fresh[: max(0, free)]:
        ahead[family.digest] = executor.submit({**task, "family": dump_text(family)})
    return ahead


def begin_by_compilers(
    program: Program,
    families: Sequence[UGraph],
    trials: int,
    seed: int,
    begun: Begun | None = None,
    share: float = _AHEAD_SHARE,
) -> Begun:
    """The same, by workers that compile kernels next, where such are kept and nobody uses them."""
    with WARM.lent(Settings.from_env().workers) as pool:
        if pool is None:
            return dict(begun or {})
        return begin_findings(
            program, families, trials=trials, seed=seed, executor=pool, begun=begun, share=share
        )


def only(begun: Begun, families: Sequence[UGraph]) -> Begun:
    """What has begun of these families; of others no test begins any more."""
    wanted = {f.digest for f in families}
    for digest, future in begun.items():
        if digest not in wanted:
            future.cancel()
    return {digest: future for digest, future in begun.items() if digest in wanted}


def findings(
    program: Program,
    families: Sequence[UGraph],
    *,
    trials: int,
    seed: int,
    executor: Executor | None = None,
    deadline: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    begun: Begun | None = None,
    meanwhile: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[UGraph, Finding]]:
    """Each family with what the field test says of it, in order, those first that have ``begun``.
    While these are waited for ``meanwhile`` is called, which says whether it had anything to do.

    After ``deadline`` (of ``time.monotonic``), or when ``stop`` says so, there are no more once one
    has been found equal, but for those that have begun and are done soon after; some seconds later
    in any case.
    """
    passed = False
    ahead = begun or {}
    told: set[str] = set()
    for family in families:
        if family.digest not in ahead:
            continue
        reply = _reply(ahead[family.digest], deadline, stop, meanwhile, is_needed=not passed)
        if reply.done:
            found = _finding(reply.value)
            passed |= isinstance(found, FieldEvidence) and found.equal
            told.add(family.digest)
            yield family, found
    left = [f for f in families if f.digest not in told and not (passed and f.digest in ahead)]
    yield from _one_by_one(program, left, trials, seed, executor, deadline, stop, passed=passed)


def _reply(
    future: Future[Reply],
    deadline: float | None,
    stop: Callable[[], bool],
    meanwhile: Callable[[], bool],
    *,
    is_needed: bool,
) -> Reply:
    while not future.done():
        late_s = 0.0 if deadline is None else time.monotonic() - deadline
        if ((late_s > _BEGUN_S or stop()) and not is_needed) or late_s > _AT_LAST_S:
            future.cancel()
            return Reply("skipped")
        if not meanwhile():
            wait([future], _LOOK_S)
    return Reply("skipped") if future.cancelled() else reply_of(future)


def _one_by_one(
    program: Program,
    families: Sequence[UGraph],
    trials: int,
    seed: int,
    executor: Executor | None,
    deadline: float | None,
    stop: Callable[[], bool],
    *,
    passed: bool,
) -> Iterator[tuple[UGraph, Finding]]:
    tests = FamilyTests(program, trials=trials, seed=seed, real_sizes=False)
    begun = time.monotonic()
    for number, family in enumerate(families):
        late_s = 0.0 if deadline is None else time.monotonic() - deadline
        if (passed and (late_s > 0.0 or stop())) or (number and late_s > _AT_LAST_S):
            return
        left = len(families) - number
        each_s = (time.monotonic() - begun) / max(1, number)
        places = executor.places if executor else 1
        if executor and passed and min(places, left) > 1 and left * each_s > _WORTH_S:
            yield from _spread(program, families[number:], trials, seed, executor, deadline, stop)
            return
        try:
            found: Finding = tests.run(family)
        except UnsupportedError as error:
            found = error
        passed |= isinstance(found, FieldEvidence) and found.equal
        yield family, found


def _spread(
    program: Program,
    families: Sequence[UGraph],
    trials: int,
    seed: int,
    executor: Executor,
    deadline: float | None,
    stop: Callable[[], bool],
) -> Iterator[tuple[UGraph, Finding]]:
    task = _task(program, trials, seed)
    replies = executor.map(
        [{**task, "family": dump_text(f)} for f in families], deadline=deadline, stop=stop
    )
    for family, reply in zip(families, replies, strict=True):
        # What a process that died was at has passed nothing.
        if reply.done:
            yield family, _finding(reply.value)


def _task(program: Program, trials: int, seed: int) -> dict[str, Any]:
    return {
        "service": "mirage_py.pipeline.pools.verify_pool:judge_family",
        "program": dump_text(program),
        "trials": trials,
        "seed": seed,
    }


def judge_family(task: Mapping[str, Any]) -> dict[str, Any]:
    """The inside of a process."""
    tests = _tests(task["program"], int(task["trials"]), int(task["seed"]))
    family = load_text(task["family"], "family")
    assert isinstance(family, UGraph)
    try:
        # Where the two differ is for the eyes of whoever asks again.
        found = replace(tests.run(family), mismatch=None)
        return {**asdict(found), "bound_reason": found.bound_reason.document()}
    except UnsupportedError as error:
        return {"refused": {"what": error.what, "where": error.where, "why": error.why}}


@functools.lru_cache(maxsize=1)
def _tests(program: str, trials: int, seed: int) -> FamilyTests:
    """What families of one split program share is found once in each process."""
    loaded = load_text(program, "program")
    assert isinstance(loaded, Program)
    return FamilyTests(loaded, trials=trials, seed=seed, real_sizes=False)


def _finding(value: Mapping[str, Any]) -> Finding:
    if "refused" in value:
        return UnsupportedError(**value["refused"])
    functions = value["functions"]
    return FieldEvidence(
        **{
            **value,
            "primes": tuple(value["primes"]),
            "small_extents": tuple(value["small_extents"]),
            "keyed": tuple(value["keyed"]),
            "bound_reason": read_reason(value["bound_reason"]),
            "functions": _function_use(functions) if functions else None,
        }
    )


def _function_use(value: Mapping[str, Any]) -> FunctionUse:
    lists = ("exponential", "powers", "ordered", "equality", "random")
    return FunctionUse(
        **{name: tuple(value[name]) for name in lists},
        shifts=int(value["shifts"]),
        program=_paths(value["program"]),
        ugraph=_paths(value["ugraph"]) if value["ugraph"] else None,
    )


def _paths(value: Mapping[str, Any]) -> Paths:
    return Paths(
        tuple((str(name), int(count)) for name, count in value["outputs"]),
        tuple(Nested(n["outer"], tuple(n["inner"]), n["lawful"]) for n in value["nested"]),
    )
