"""The pool outlives its workers: what hangs, crashes or fails costs itself only."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import several_kernels
from plans import attention_plan, rms_plan, two_kernel_plan

from mirage_py.errors import CompileError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile import compile_pool
from mirage_py.runtime.compile.compile import KernelSource, compile_kernel
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.runtime.process.executor import OUT_OF_TIME, WorkerKind
from mirage_py.runtime.process.warm_workers import WarmWorkers
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import UGraph

GOOD = "def k(): pass\n"
HANGS = "import time\ntime.sleep(600)\n"
HANGS_WITH_A_CHILD = "import subprocess\nsubprocess.run(['sleep', '{seconds}'])\n"
CRASHES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
EXITS = "import os, sys\nprint('last words', file=sys.stderr, flush=True)\nos._exit(3)\n"
# These import nothing.
WORKS, HANGING = ({"service": f"unit.runtime.fault_services:{name}"} for name in ("works", "hang"))
HUNGRY = "x = bytearray(6 << 30)\n"


def task(source: str) -> dict[str, object]:
    kernel = {"name": "k", "source": source, "pointer_types": [], "num_warps": 4}
    return {"service": "compile", "capability": 90, "kernels": [kernel]}


class HastyPool(WorkerPool):
    """Gives up soon on what hangs; all else may take long, for the machine may be busy."""

    def ask(self, place: int, task: Task, timeout_s: float) -> Reply:
        hangs = "sleep" in str(task)
        return super().ask(place, task, 2.0 if hangs else timeout_s)


@pytest.fixture(scope="module")
def pool():
    with HastyPool(1, WorkerKind(timeout_s=300.0, memory_bytes=4 << 30, imports=())) as pool:
        yield pool


def test_each_failure_is_reported_and_the_others_go_on():
    (good,) = (asdict(KernelSource.of(k)) for k in emit_kernels(rms_plan()))
    right = {"service": "compile", "capability": 90, "kernels": [good]}
    tasks = [task(HANGS), WORKS, task(CRASHES), task(EXITS), task(HUNGRY), task("def ("), right]
    seen: list[int] = []
    # Six processes, most of which need nothing.
    with HastyPool(1, WorkerKind(timeout_s=300.0, memory_bytes=4 << 30, imports=())) as pool:
        replies = pool.map(tasks, on_reply=lambda number, _: seen.append(number))
    kinds = [r.kind for r in replies]
    assert kinds == ["timeout", "done", "crash", "crash", "error", "error", "done"]
    assert "longer than 2 s" in replies[0].reason
    assert "SIGSEGV" in replies[2].reason
    assert replies[3].reason.endswith("ended with code 3: last words")
    assert "memory" in replies[4].reason.lower()
    assert "does not load" in replies[5].reason
    assert replies[6].value[0]["name"] == "rms_kernel"
    assert sorted(seen) == list(range(7))


def test_a_time_out_ends_what_the_worker_started(pool: WorkerPool):
    seconds = f"{61_000 + os.getpid()}"  # others may run this test at the same time
    (reply,) = pool.map([task(HANGS_WITH_A_CHILD.format(seconds=seconds))])
    assert reply.kind == "timeout"
    # The signal is sent, and nobody waits for a child's child: it may still be seen for a moment.
    for _ in range(600):
        if f"sleep {seconds}" not in _command_lines():
            return
        time.sleep(0.1)
    pytest.fail("what the worker started lives on")


def test_tasks_after_the_deadline_are_skipped(pool: WorkerPool):
    (reply,) = pool.map([task(GOOD)], deadline=time.monotonic() - 1)
    assert (reply.kind, reply.reason) == ("skipped", "the time budget was used up")


def test_tasks_after_a_stop_are_skipped():
    done: list[int] = []
    with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=())) as pool:
        first, second = pool.map(
            [WORKS, WORKS], on_reply=lambda n, _: done.append(n), stop=lambda: bool(done)
        )
    assert first.done
    assert (second.kind, second.reason) == ("skipped", "it was interrupted before this began")


def test_an_interrupt_ends_the_workers(request: pytest.FixtureRequest):
    # A background job inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with WorkerPool(1, WorkerKind(timeout_s=600.0, imports=())) as pool:
        pool.map([WORKS])  # started and idle
        (worker,) = pool._workers
        hanging = worker._process
        assert hanging is not None

        def press() -> None:
            while not worker._at_work:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        interrupt = threading.Thread(target=press)
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            pool.map([HANGING, HANGING])
        interrupt.join()
        # Neither had come to its end, and the second was not begun in a new process.
        assert hanging.returncode == -signal.SIGKILL
        assert not worker.is_running
        (reply,) = pool.map([WORKS])
        assert reply.done


def test_workers_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "mirage_py.runtime.process.worker_process._BOOT", "raise SystemExit('no luck')"
    )
    with WorkerPool(2, WorkerKind(timeout_s=300.0)) as pool:
        with pytest.raises(CompileError, match="does not start") as raised:
            pool.map([task(GOOD)] * 3)
        assert "no luck" in str(raised.value)


def test_plans_compile_in_order_and_the_parent_hits_the_cache():
    plans = [rms_plan(5, 64, 32), attention_plan(1, 16, 64), two_kernel_plan(9, 40)]
    open_tiles = UGraph(plans[0].ugraph.program, (_without_tiles(plans[0]),))
    plans.insert(1, Plan(open_tiles, plans[0].options))
    with CompilePool(1, timeout_s=300.0) as pool:
        outcomes = pool.compile(plans, 90)
    assert [o.compiled for o in outcomes] == [True, False, True, True]
    assert outcomes[1].reason.code is Code.NO_SCHEDULE
    assert "tile" in str(outcomes[1].reason)
    names = [[f.name for f in o.facts] for o in outcomes]
    assert names == [["rms_kernel"], [], ["attention_kernel"], ["row_sums", "divide"]]
    (kernel,) = emit_kernels(plans[0])
    there = outcomes[0].facts[0]
    assert there.asm_path is not None
    written_ns = Path(there.asm_path).stat().st_mtime_ns
    here = compile_kernel(kernel, 90)
    assert here.asm_path == there.asm_path
    # Not compiled again: nothing was written over what the worker left.
    assert Path(there.asm_path).stat().st_mtime_ns == written_ns


def test_a_kernel_that_plans_share_is_compiled_once(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def compiles(self, tasks, *, on_reply, **_):
        for number, (kernel,) in enumerate(t["kernels"] for t in tasks):
            asked.append(kernel["name"])
            if kernel["num_warps"] == 8:
                on_reply(number, Reply("timeout", reason="it hung"))
                continue
            facts = CompiledFacts(kernel["name"], 90, 0, None, None, 0, 0.0)
            on_reply(number, Reply("done", [asdict(facts)]))

    monkeypatch.setattr(WorkerPool, "map", compiles)
    plan = two_kernel_plan(9, 40)
    first, second = plan.options
    other = replace(plan, options=(first, replace(second, num_warps=4)))
    hangs = replace(plan, options=(first, replace(second, num_warps=8)))
    library = several_kernels.ugraph("library_epilogue")
    called = Plan(replace(library, kernels=library.kernels[:1]), (LaunchConfig(),))
    done: list[int] = []
    with CompilePool(2) as pool:
        outcomes = pool.compile(
            [plan, called, other, hangs], 90, on_outcome=lambda n, _: done.append(n)
        )
    assert asked == ["row_sums", "divide", "divide", "divide"]
    assert [[f.name for f in o.facts] for o in outcomes] == [
        ["row_sums", "divide"], [], ["row_sums", "divide"], [],
    ]  # fmt: skip
    assert [o.reason for o in outcomes] == [None, None, None, reason(Code.TIMED_OUT, "it hung")]
    assert sorted(done) == [0, 1, 2, 3]


class Clock:
    """Compiling a kernel takes ten seconds, of a clock of its own, and emitting one none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.order = 100.0, list[str]()
        monkeypatch.setattr(compile_pool.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(WorkerPool, "ask", self.asked)
        monkeypatch.setattr(compile_pool, "emit_kernels", self.emits)

    def emits(self, plan: Plan):
        self.order.append("emitted")
        return emit_kernels(plan)

    def asked(self, _place: int, task: Task, _timeout_s: float) -> Reply:
        if "kernels" not in task:  # it only starts
            return Reply("done")
        (kernel,) = task["kernels"]
        self.order.append("compiled")
        self.now += 10.0
        return Reply("done", [asdict(CompiledFacts(kernel["name"], 90, 0, None, None, 0, 0.0))])


@pytest.mark.parametrize(("budget_s", "compiled"), [(-5.0, 1), (5.0, 1), (15.0, 2), (999.0, 9)])
def test_a_plan_is_emitted_when_a_worker_is_free_for_it(
    monkeypatch: pytest.MonkeyPatch, budget_s: float, compiled: int
):
    clock = Clock(monkeypatch)
    plans = [rms_plan(5, 64, 32 * (n + 1)) for n in range(9)]
    done: list[int] = []
    with CompilePool(1) as pool:
        outcomes = pool.compile(
            plans, 90, deadline=clock.now + budget_s, on_outcome=lambda n, _: done.append(n)
        )
    assert [o.compiled for o in outcomes] == [n < compiled for n in range(9)]
    assert clock.order == ["emitted", "compiled"] * compiled
    assert sorted(done) == list(range(9))
    assert {o.reason for o in outcomes[compiled:]} <= {reason(Code.NOT_BEGUN, OUT_OF_TIME)}


def test_more_plans_come_before_those_that_wait(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    plans = [rms_plan(5, 64, 32 * (n + 1)) for n in range(6)]
    done: list[int] = []
    with CompilePool(1) as pool:
        outcomes = pool.compile(
            plans[:4],
            90,
            deadline=clock.now + 45.0,
            on_outcome=lambda n, _: done.append(n),
            more=lambda: plans[4:] if done == [0] else (),
        )
    assert done == [0, 4, 5, 1, 2, 3]
    assert [o.compiled for o in outcomes] == [True, True, True, False, True, True]


def test_what_still_compiles_is_given_up_when_enough_has(monkeypatch: pytest.MonkeyPatch):
    """It was waited for as long as it took: once 6.5 s of a budget of 11."""
    clock = Clock(monkeypatch)
    broken_off = threading.Event()
    given_up_at = clock.now + 100.0
    left: list[str] = []

    def asked(pool: WorkerPool, place: int, task: Task, timeout_s: float) -> Reply:
        if len(left) == 2:
            return Clock.asked(clock, place, task, timeout_s)
        left.append("a kernel that takes too long")
        clock.now = given_up_at + 1.0  # it is late, but nothing has compiled yet
        assert broken_off.wait(60.0)
        return Reply("crash", reason="its worker process was stopped")

    monkeypatch.setattr(WorkerPool, "ask", asked)
    monkeypatch.setattr(WorkerPool, "break_off", lambda _: broken_off.set())
    plans = [rms_plan(5, 64, 32 * (n + 1)) for n in range(9)]
    done: list[int] = []
    with CompilePool(3) as pool:
        outcomes = pool.compile(
            plans, 90, ended_by=given_up_at, on_outcome=lambda n, _: done.append(n)
        )
    assert sum(o.compiled for o in outcomes) >= compile_pool._ENOUGH
    late = [o.reason for o in outcomes if not o.compiled]
    assert len(late) >= len(left) == 2
    assert set(late) == {reason(Code.NOT_BEGUN, OUT_OF_TIME)}
    assert sorted(done) == list(range(9))


def test_workers_that_wait_outlive_those_that_are_broken_off():
    with WorkerPool(2, WorkerKind(timeout_s=300.0, imports=())) as pool:
        pool.map([WORKS])
        (idle,) = (w for w in pool._workers if w.is_running)
        asked = pool.submit(HANGING), pool.submit(HANGING)
        while not all(w._at_work for w in pool._workers):
            time.sleep(0.01)
        one = pool._workers[0]
        one.break_off()
        other = pool._workers[1]
        assert other.is_running
        pool.break_off()
        assert [future.result().kind for future in asked] == ["crash", "crash"]
        (reply,) = pool.map([WORKS])
        assert reply.done
        process = next(w for w in pool._workers if w.is_running)._process
        pool.break_off()
        assert [w._process for w in pool._workers if w.is_running] == [process]
        assert idle in pool._workers


def test_what_was_broken_off_ahead_is_done_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    """The later request got the answer of the worker that had been stopped."""
    stopped = threading.Event()
    asked: list[str] = []

    def answer(pool: WorkerPool, place: int, task: Task, timeout_s: float) -> Reply:
        asked.append(task["service"])
        if len(asked) > 1:
            return Reply("done")
        assert stopped.wait(60.0)
        return Reply("crash", reason="its worker process was stopped")

    monkeypatch.setattr(WorkerPool, "ask", answer)
    with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=())) as pool:
        pool.submit_ahead(WORKS)
        while not asked:
            time.sleep(0.01)
        pool.break_off()
        stopped.set()
        assert pool.submit(WORKS).result().done
    assert len(asked) == 2


def test_what_is_compiled_ahead_is_emitted_and_compiled_once(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    released = threading.Event()

    def asked(pool: WorkerPool, place: int, task: Task, timeout_s: float) -> Reply:
        assert "kernels" not in task or released.wait(60.0)
        return clock.asked(place, task, timeout_s)

    monkeypatch.setattr(WorkerPool, "ask", asked)
    warm = WarmWorkers()
    monkeypatch.setattr(compile_pool, "WARM", warm)
    monkeypatch.setenv("MIRAGE_PY_WORKERS", "4")
    plans = [rms_plan(5, 64, 32 * (n + 1)) for n in range(7)]
    compiler = compile_pool.AheadCompiler(90)
    compiler.begin(plans)  # there are no workers yet
    assert clock.order == []
    compile_pool.keep_compile_workers()
    compiler.begin(plans[1:], share=0.5)
    assert clock.order == ["emitted"] * 2  # for half of the workers
    compiler.begin(plans)
    assert clock.order == ["emitted"] * 4  # for all of them, and none again
    assert not compiler.go_on()
    released.set()
    with CompilePool() as pool:
        assert all(o.compiled for o in pool.compile(plans, 90))
    assert clock.order.count("emitted") == clock.order.count("compiled") == 7
    warm.end()


def test_no_more_is_emitted_at_once_than_there_are_workers(monkeypatch: pytest.MonkeyPatch):
    """Kernels that are in the cache take no time: all of hundreds of plans were emitted."""
    clock = Clock(monkeypatch)
    warm = WarmWorkers()
    monkeypatch.setattr(compile_pool, "WARM", warm)
    monkeypatch.setattr(WorkerPool, "ahead", 0)
    monkeypatch.setenv("MIRAGE_PY_WORKERS", "4")
    compile_pool.keep_compile_workers()
    plans = [rms_plan(5, 64, 32 * (n + 1)) for n in range(7)]
    compile_pool.AheadCompiler(90).begin(plans)
    assert clock.order.count("emitted") == 4
    warm.end()


def test_few_workers_compile_nothing_while_plans_are_ranked(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    warm = WarmWorkers()
    monkeypatch.setattr(compile_pool, "WARM", warm)
    monkeypatch.setenv("MIRAGE_PY_WORKERS", "2")
    compile_pool.keep_compile_workers()
    compile_pool.AheadCompiler(90).begin([rms_plan()], share=0.5)
    assert clock.order == []
    warm.end()


def test_a_kernel_of_an_earlier_plan_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    with CompilePool(1) as pool:
        outcomes = pool.compile([rms_plan()] * 5, 90)
    assert all(o.compiled for o in outcomes)
    assert clock.order.count("compiled") == 1


def _without_tiles(plan: Plan):
    (block,) = plan.ugraph.kernels
    return replace(block, grid=tuple(replace(a, tile=None) for a in block.grid))


def _command_lines() -> str:
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return "\n".join(lines)
