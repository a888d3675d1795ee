"""Whatever a worker does, its task alone is lost, with a reason, and no process is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from plans import two_kernel_plan

from mirage_py.runtime.compile import compile_pool
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.process.executor import WorkerKind
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task

TESTS = Path(__file__).parents[3]


def task(name: str, **more: str) -> dict[str, Any]:
    return {"service": f"unit.runtime.fault_services:{name}", **more}


class HastyPool(WorkerPool):
    """Gives up soon on what hangs; all else may take long, for the machine may be busy."""

    def ask(self, place: int, task: Task, timeout_s: float) -> Reply:
        hangs = str(task["service"]).rpartition(":")[2] in HANGS
        return super().ask(place, task, 1.0 if hangs else timeout_s)


@pytest.fixture(scope="module")
def pool():
    with HastyPool(2, WorkerKind(timeout_s=300.0, memory_bytes=256 << 20, imports=())) as pool:
        yield pool


def children(parent: int) -> list[int]:
    """Processes of a parent, the dead that nobody waited for among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


FAULTS = [
    ("segfault", "crash", "SIGSEGV"),
    ("abort", "crash", "SIGABRT"),
    ("leave", "crash", "ended with code 0"),
    ("leave_politely", "crash", "no more"),
    ("interrupt", "crash", "KeyboardInterrupt"),
    ("hang", "timeout", "longer than 1 s"),
    ("hang_inside_native_code", "timeout", "longer than 1 s"),
    ("stop", "timeout", "longer than 1 s"),
    ("eat_memory", "error", "out of memory"),
    ("eat_native_memory", "error", "out of memory"),
    ("recurse", "error", "RecursionError"),
    ("give_what_is_no_json", "crash", "not JSON serializable"),
    ("leave_a_child_behind", "crash", "ended with code 7"),
    ("nothing_of_this_name", "error", "AttributeError"),
]

HANGS = ("hang_with_a_child", *(name for name, kind, _ in FAULTS if kind == "timeout"))


def test_a_fault_costs_its_task_and_says_why(pool: WorkerPool):
    tasks = [t for name, _, _ in FAULTS for t in (task(name), task("works"))]
    replies = pool.map(tasks)
    found = [(r.kind, r.reason) for r in replies[::2]]
    for (name, kind, says), (was, reason) in zip(FAULTS, found, strict=True):
        assert (name, was) == (name, kind), reason
        assert says in reason, name
    assert [r.kind for r in replies[1::2]] == ["done"] * len(FAULTS)


def test_what_is_printed_is_no_answer(pool: WorkerPool):
    (reply,) = pool.map([task("print_garbage")])
    assert reply.value == "printed"


def test_endless_messages_do_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mirage_py.runtime.process.worker_process._MOST_STDERR_BYTES", 1 << 20)
    monkeypatch.setattr("mirage_py.runtime.process.worker_process._LOOK_S", 0.05)
    with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=())) as pool:
        (reply,) = pool.map([task("print_without_end")])
    assert (reply.kind, reply.reason) == ("crash", "it printed more than 1048576 bytes")


@pytest.mark.parametrize(
    "garbage",
    ["\n", "garbage\n", "[1]\n", "{}\n", '{"value": 5}\n', '{"value": 5, "number": 0}\n', "[" * 9000
     + "\n", "\0\0\0", '{"value": '],
)  # fmt: skip
def test_garbage_is_never_taken_for_an_answer(pool: WorkerPool, garbage: str):
    first, second = pool.map([task("write_garbage", garbage=garbage), task("works")])
    assert first.kind == "crash"
    assert "an answer that is none" in first.reason
    assert second.done


def test_an_answer_of_before_is_not_taken_for_this_one(pool: WorkerPool):
    """A second answer behind the first would be read as that of the next task."""
    with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=())) as alone:
        alone.map([task("works")])
        forged = '{"value": "forged", "number": 2}\n{"value": "forged", "number": 3}\n'
        _, last = alone.map([task("write_garbage", garbage=forged), task("works")])
        assert last.done
        assert last.value != "forged"


def test_what_waits_takes_the_place_of_what_breaks(tmp_path: Path):
    before = children(os.getpid())
    noted = tmp_path / "noted"
    ready = task("note", file=str(noted))
    with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=()), standby=ready) as pool:
        names = ("works", "segfault", "works", "leave", "works")
        replies = pool.map([task(n) for n in names])
        assert [r.kind for r in replies] == ["done", "crash", "done", "crash", "done"]
        first, _, second, _, third = (r.value for r in replies)
        assert len({first, second, third}) == 3
        # Each had done the task of the one that waits before it was given another.
        assert [second, third] == [int(pid) for pid in noted.read_text().split()[:2]]
        assert pool.map([task("works")])[0].value == third
    assert children(os.getpid()) == before


def test_what_dies_while_it_waits_costs_no_task(tmp_path: Path):
    noted = tmp_path / "noted"
    ready = task("note", file=str(noted))
    with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=()), standby=ready) as pool:
        pool.map([task("works")])
        while not (noted.exists() and noted.read_text().endswith("\n")):
            time.sleep(0.01)
        waiting = int(noted.read_text())
        os.kill(waiting, signal.SIGKILL)
        os.waitid(os.P_PID, waiting, os.WEXITED | os.WNOWAIT)  # a signal takes its time
        _, last = pool.map([task("segfault"), task("works")])
        assert last.done


def test_a_pool_may_close_while_its_standby_starts(tmp_path: Path):
    """Whose thread then finds its pipes closed: that is no fault of a thread's."""
    before = children(os.getpid())
    for _ in range(6):
        ready = task("note", file=str(tmp_path / "noted"))
        with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=()), standby=ready) as pool:
            pool.map([task("works")])
    assert children(os.getpid()) == before


def test_nothing_is_left_after_close():
    before = children(os.getpid())
    with HastyPool(3, WorkerKind(timeout_s=300.0, imports=())) as pool:
        pool.map([task("works"), task("hang"), task("hang_with_a_child", seconds="77.125")])
        assert len(children(os.getpid())) > len(before)
    assert children(os.getpid()) == before


PARENT = """
import sys
from mirage_py.runtime.process.executor import WorkerKind
from mirage_py.runtime.process.worker_pool import WorkerPool
pool = WorkerPool(2, WorkerKind(timeout_s=600.0, imports=()))
pool.map([{"service": "unit.runtime.fault_services:works"}] * 2)
tasks = [{"service": "unit.runtime.fault_services:hang_inside_native_code"},
         {"service": "unit.runtime.fault_services:hang_with_a_child", "seconds": sys.argv[1]}]
print("working", flush=True)
pool.map(tasks)
"""


def test_nothing_is_left_when_the_parent_is_killed():
    """Also where a worker is inside native code and could not look for its parent."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    seconds = f"{60_000 + os.getpid()}"
    command = [sys.executable, "-c", PARENT, seconds]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"working\n"
        end = time.monotonic() + 600
        while not (family := _family(parent.pid, seconds)) and time.monotonic() < end:
            time.sleep(0.05)
        assert len(family) >= 5  # two workers, two guards, and what one of them started
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + 600
    while any(is_running(pid) for pid in family) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in family if is_running(pid)] == []


def _family(parent: int, seconds: str) -> list[int]:
    """All below a process, once the innermost one is there."""
    found, todo = [], [parent]
    while todo:
        below = children(todo.pop())
        found += below
        todo += below
    sleeps = [pid for pid in found if seconds in _command_line(pid)]
    return found if sleeps else []


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_text()
    return ""


def test_a_plan_whose_kernel_breaks_the_compiler_says_so(monkeypatch: pytest.MonkeyPatch):
    real = compile_pool._task

    def broken(kernel, capability):
        return task("segfault") if kernel.name == "divide" else real(kernel, capability)

    monkeypatch.setattr(compile_pool, "_task", broken)
    good = two_kernel_plan(9, 40)
    with CompilePool(1, timeout_s=300.0) as pool:
        (outcome,) = pool.compile([good], 90)
    assert not outcome.compiled
    assert "SIGSEGV" in str(outcome.reason)


def test_who_comes_late_ends_nobody_else():
    """After an interrupt the thread of the old task may still be at work."""
    with WorkerPool(1, WorkerKind(timeout_s=300.0, imports=())) as alone:
        (worker,) = alone._workers
        worker.ask(task("works"), 300.0)
        old = worker._process
        worker.kill()
        worker.ask(task("works"), 300.0)
        assert old is not None
        worker.kill(old)
        assert worker._process is not None
        assert worker._process.poll() is None
