"""A farm of three worker processes does what this process does, whatever becomes of its workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Nanny, Scheduler, SpecCluster
from plans import two_kernel_plan
from unit.search import programs

from benchmarks.farm.farm import Farm, Job, Outcome, farm_gpus
from mirage_py.cache.cached_results import cached_result, keep
from mirage_py.errors import InputError
from mirage_py.pipeline import pipeline, searching
from mirage_py.pipeline.cached_pipeline import question_of
from mirage_py.pipeline.farmed import NOTE, measured_there, optimise_there
from mirage_py.pipeline.pipeline import Request, run
from mirage_py.pipeline.pools import verify_pool
from mirage_py.result import Result
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile import compile_pool
from mirage_py.runtime.compile.compile import KernelSource, compiled_handle
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.cpu.cpu_run import CpuCheck
from mirage_py.runtime.farm import dask_executor, serve
from mirage_py.runtime.farm.dask_executor import DaskExecutor, client_of, executor_of, gpus_of
from mirage_py.runtime.farm.start import scheduler_options, worker_options
from mirage_py.runtime.process.executor import COMPILE, MEASURE, SEARCH
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.targets import target
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence


def task(name: str, **more: object) -> dict[str, Any]:
    return {"service": f"unit.runtime.fault_services:{name}", **more}


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a farm on a machine with four cores, an H200 and a B200, as it says."""
    workers = worker_options(("0", "1"), ("h200", "b200"), cores=4)
    spec = {name: {"cls": Nanny, "options": options} for name, options in workers.items()}
    options = scheduler_options("127.0.0.1", 0)
    # Dask is imported once, by the process that the workers are forks of.
    forked = dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    made = SpecCluster(spec, {"cls": Scheduler, "options": options}, silence_logs=50)
    with forked, made as cluster:
        yield cluster.scheduler_address
        client_of(cluster.scheduler_address).close()
        client_of.cache_clear()


def wait_for(path: Path) -> None:
    end = time.monotonic() + 300
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists()


def test_places_are_what_the_farm_has(scheduler: str):
    assert DaskExecutor(scheduler, SEARCH).places == 2
    assert DaskExecutor(scheduler, MEASURE).places == 2
    assert DaskExecutor(scheduler, MEASURE, gpu="h200").places == 1
    assert DaskExecutor(scheduler, MEASURE, gpu="h100").places == 0
    assert [*gpus_of(scheduler)] == ["b200", "h200"]
    nobody = executor_of(replace(SEARCH, resource="TPU"), 3, scheduler)
    assert isinstance(nobody, WorkerPool)
    assert nobody.places == 3


def test_workers_of_another_version_get_no_task(scheduler: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serve, "_versions", lambda: "of another commit")
    assert DaskExecutor(scheduler, SEARCH).places == 0
    assert gpus_of(scheduler) == {}


def test_a_fault_costs_its_task_alone(scheduler: str):
    executor = DaskExecutor(scheduler, SEARCH)
    names = ("works", "segfault", "works", "nothing_of_this_name", "works")
    replies = executor.map([task(name) for name in names])
    assert [r.kind for r in replies] == ["done", "crash", "done", "error", "done"]
    assert "SIGSEGV" in replies[1].reason
    (late,) = executor.map([task("hang")], timeout_s=0.3)
    assert (late.kind, late.reason) == ("timeout", "it took longer than 0.3 s and was stopped")


def test_a_worker_that_is_killed_comes_back_and_its_task_is_done(scheduler: str, tmp_path: Path):
    """And so is one beside it, which goes on."""
    client = client_of(scheduler)
    gpus = (
        DaskExecutor(scheduler, MEASURE, gpu="h200"),
        DaskExecutor(scheduler, MEASURE, gpu="b200"),
    )
    begun, go = (tmp_path / "begun", tmp_path / "go")
    futures = [e.submit(task("begin_and_wait", begun=str(begun), until=str(go))) for e in gpus]
    wait_for(begun)
    (killed,) = (
        address
        for address, info in client.scheduler_info(n_workers=-1)["workers"].items()
        if serve.resource("GPU", "h200") in info["resources"]
    )
    pid = client.run(os.getpid, workers=[killed])[killed]
    os.kill(pid, signal.SIGKILL)
    go.touch()
    assert [f.result().kind for f in futures] == ["done", "done"]
    client.wait_for_workers(3)
    assert DaskExecutor(scheduler, MEASURE, gpu="h200").map([task("works")])[0].done
    assert pid not in client.run(os.getpid).values()


def test_an_interrupt_reaches_the_tasks_of_its_driver(scheduler: str, tmp_path: Path):
    ours, others = DaskExecutor(scheduler, SEARCH), DaskExecutor(scheduler, SEARCH)
    mine, theirs = (tmp_path / "mine", tmp_path / "theirs")
    future = ours.submit(task("until_interrupted", begun=str(mine)))
    other = others.submit(task("until_interrupted", begun=str(theirs)))
    wait_for(mine)
    wait_for(theirs)
    # Both places are taken: what stands behind them ends before it has begun.
    third = DaskExecutor(scheduler, SEARCH)
    waiting = third.submit(task("works"))
    third.cancel([waiting])
    assert waiting.cancelled() or waiting.result().kind == "crash"
    ours.interrupt()
    assert future.result().value == "half of it"
    assert not other.done()
    others.cancel([other])
    assert other.result().kind == "crash"


def test_the_same_request_gives_the_same_plan(scheduler: str, monkeypatch: pytest.MonkeyPatch):
    program = programs.row_softmax()
    asked = Request("h200", "triton", "none", seed=3)
    monkeypatch.setattr(searching, "_ALONE_S", 0.0)
    monkeypatch.setattr(verify_pool, "_WORTH_S", 0.0)
    there = pipeline.rank_plans(program, target("h200"), replace(asked, scheduler=scheduler))
    here = pipeline.rank_plans(program, target("h200"), asked)
    assert [i.plan for i in there.instances] == [i.plan for i in here.instances]
    assert there.verified == here.verified
    assert len(here.instances) > 3


def test_what_is_compiled_there_lies_here(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folders = {"TRITON_CACHE_DIR": str(tmp_path / "there"), **COMPILE.environment}
    monkeypatch.setattr(compile_pool, "COMPILE", replace(COMPILE, environment=folders))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "here"))
    plan = two_kernel_plan(9, 40)
    with CompilePool(scheduler=scheduler) as pool:
        (outcome,) = pool.compile([plan], 90)
    assert [f.name for f in outcome.facts] == ["row_sums", "divide"]
    names = {p.parent.name + p.name for p in (tmp_path / "there").rglob("*.cubin")}
    assert len(names) == 2
    assert names == {p.parent.name + p.name for p in (tmp_path / "here").rglob("*.cubin")}
    written = {p: p.stat().st_mtime_ns for p in (tmp_path / "here").rglob("*.*")}
    for kernel in emit_kernels(plan):
        compiled_handle(KernelSource.of(kernel), 90)  # type: ignore[arg-type]
    assert written == {p: p.stat().st_mtime_ns for p in (tmp_path / "here").rglob("*.*")}


def test_a_gpu_of_the_farm_answers_for_who_has_none(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
):
    program = programs.row_softmax()
    asked = Request("h200", "triton", scheduler=scheduler, seed=5)
    assert measured_there(program, replace(asked, target="h100")) is None
    assert measured_there(program, replace(asked, effort="none")) is None
    with pytest.raises(InputError, match="several models: b200, h200"):
        measured_there(program, replace(asked, target="auto"))
    question = measured_there(program, asked)
    assert question is not None
    assert (question.target, question.measured) == ("h200", True)
    # What the worker finds in its cache, which is the one here.
    here = run_unchecked(program, replace(asked, scheduler=""), monkeypatch)
    keep(question_of(program, asked), here)
    found = optimise_there(question, asked)
    assert (found.plan, found.best.name) == (here.plan, here.best.name)
    assert found.plan is not None
    assert found.notes == (*here.notes, NOTE)
    kept = cached_result(question)
    assert kept is not None
    assert kept.plan == found.plan


def run_unchecked(program: Program, request: Request, monkeypatch: pytest.MonkeyPatch) -> Result:
    """What the model likes best, as if it had run."""
    passed = CpuCheck(evidence=FloatEvidence(0.5, 1.0, None, passed=True), source="nowhere")
    monkeypatch.setattr("mirage_py.runtime.cpu.cpu_run.check_on_cpu", lambda *_, **__: passed)
    return run(program, request)


def test_rows_are_measured_on_one_model(scheduler: str):
    with pytest.raises(InputError, match="several models"):
        farm_gpus(scheduler)
    gpus = farm_gpus(scheduler, "h200")
    outcomes: list[Outcome] = []
    rows = "unit.benchmarks.row_services"
    jobs = [Job(key, {"service": f"{rows}:row", "key": key}) for key in ("a", "b")]
    with Farm(gpus, f"{rows}:prepare", 600.0, on_outcome=outcomes.append, scheduler=scheduler) as f:
        assert f.run(jobs) == []
    assert [(o.gpu, o.value["row"]["visible"]) for o in outcomes] == [(gpus[0], "0")] * 2


def test_without_a_scheduler_it_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dask_executor, "_CONNECT_S", 0.5)
    with pytest.raises(InputError, match=r"no scheduler answers at tcp://127\.0\.0\.1:9"):
        client_of("tcp://127.0.0.1:9")
