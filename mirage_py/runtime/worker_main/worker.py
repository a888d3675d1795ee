"""Inside a worker process: a line of JSON in, a line of JSON out, until the input ends.

Started by ``worker_process`` in a session and process group of its own. A task names its
``service`` and carries what that needs; the reply is ``{"value": ...}`` or ``{"error": text}``,
with the ``code`` of an error that has one, ``spoiled`` where the process is of no more use, and
carries the number of its task. Lines that name a ``stage`` may come before it. Nothing is pickled,
and whatever a kernel's source or a compiler prints goes to the error stream.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mirage_py.errors import MirageError
from mirage_py.reasons import Code
from mirage_py.runtime.base.gpu_context import gpu_is_lost
from mirage_py.runtime.base.gpu_memory import MOST_IDLE_BYTES, give_back
from mirage_py.runtime.base.stages import interrupt, listen

Task = Mapping[str, Any]


def compile_plan(task: Task) -> list[dict[str, Any]]:
    """Compile each kernel of a plan: ``kernels`` and ``capability`` to a list of facts."""
    from mirage_py.runtime.compile.compile import KernelSource, compile_source
    from mirage_py.runtime.worker_main.deferred import defer

    defer("torch")
    facts = []
    for kernel in task["kernels"]:
        source = KernelSource(**{**kernel, "pointer_types": tuple(kernel["pointer_types"])})
        facts.append(asdict(compile_source(source, int(task["capability"]))))
    return facts


def compile_cuda_kernels(task: Task) -> list[dict[str, Any]]:
    """Compile each CUDA kernel: ``kernels`` and ``capability`` to a list of facts."""
    from mirage_py.runtime.compile.compile_cuda import CudaSource, compile_cuda

    capability = int(task["capability"])
    return [asdict(compile_cuda(CudaSource(**kernel), capability)) for kernel in task["kernels"]]


def interpret_plan(task: Task) -> None:
    """Run a plan's kernels in Triton's interpreter on the arrays in ``folder``."""
    from mirage_py.runtime.cpu.interpreter_service import interpret

    interpret(task)


def prepare_check(task: Task) -> dict[str, tuple[float, float, bool]]:
    """Make inputs and references of the numerical check; the share of outputs with a reference."""
    from mirage_py.runtime.numerical_check.check_service import prepare

    return prepare(task)


def forget_check(task: Task) -> None:
    """Give back the memory that a numerical check took."""
    from mirage_py.runtime.numerical_check.check_service import forget

    forget(task)


def ready_check(task: Task) -> str:
    """Take the GPU that plans are judged on."""
    from mirage_py.runtime.numerical_check.check_service import ready

    return ready(task)


def run_check(task: Task) -> dict[str, Any]:
    """Run a plan on the GPU, judge it and time it."""
    from mirage_py.runtime.numerical_check.check_service import check_plan

    return check_plan(task)


SERVICES: Mapping[str, Callable[[Task], Any]] = {
    "compile": compile_plan,
    "compile_cuda": compile_cuda_kernels,
    "interpret": interpret_plan,
    "prepare_check": prepare_check,
    "ready_check": ready_check,
    "numerical_check": run_check,
    "forget_check": forget_check,
}


def main(memory_bytes: int, imports: Sequence[str]) -> None:
    """Serve until standard input ends; ``imports`` are done before the first task is taken."""
    tasks = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    listen(lambda name: _send(replies, {"stage": name}))
    signal.signal(signal.SIGUSR1, lambda *_: interrupt())
    for name in imports:
        importlib.import_module(name)
    _send(replies, {"ready": True})
    serve(tasks, lambda reply: _send(replies, reply))


def serve(tasks: Iterable[str], reply: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer each task, a line of JSON, by ``reply``."""
    for line in tasks:
        task = json.loads(line)
        interrupt(over=False)
        answer = _answer(task)
        # Who asked goes on with the memory that this process does not need until the next task.
        give_back(MOST_IDLE_BYTES)
        reply({**answer, "number": task["number"]})


def _service(name: str) -> Callable[[Task], Any]:
    """One of the above, or ``module:function`` of a layer that stands on this one."""
    module, _, function = name.partition(":")
    if not function:
        return SERVICES[name]
    found: Callable[[Task], Any] = getattr(importlib.import_module(module), function)
    return found


def _answer(task: Task) -> dict[str, Any]:
    try:
        return {"value": _service(task["service"])(task)}
    except MemoryError:
        # What it took may not come back, and the next task must have all there is.
        return {"error": "it ran out of memory", "spoiled": True}
    except MirageError as error:
        # Launches say in words of ours, too, that the GPU is lost.
        own = {"code": error.code.name} if error.code is not Code.OTHER else {}
        return {"error": str(error), "spoiled": gpu_is_lost(), **own}
    except Exception as error:  # noqa: BLE001
        # One candidate's failure is an answer like any other; the parent decides what it costs.
        return {"error": f"{type(error).__name__}: {error}", "spoiled": gpu_is_lost()}


def _send(replies: Any, reply: Mapping[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
