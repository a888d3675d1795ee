"""The executor of a farm: tasks of this process on the workers of a dask.distributed cluster.

Workers say by resources what they are for (``resource``): a core or a GPU, which model of GPU, so
that measurements of two models never mix, and which GPU; each under the versions of what results
depend on. A resource outlives its worker: Dask starts one that died again, and gives its tasks to
it or to others. Addresses of ``tls://`` and Dask's own settings (``distributed.comm.tls``) decide
who may connect.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mirage_py.errors import CompileError, InputError
from mirage_py.reasons import Code
from mirage_py.runtime.farm import serve
from mirage_py.runtime.farm.serve import resource
from mirage_py.runtime.process.executor import Executor, WorkerKind
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task

_CONNECT_S = 10.0
# Times that a task is begun again on another worker where Dask lost the one that had it.
_RETRIES = 2
_REPAIR = "start one with `mirage-py farm start`, and give the address that it prints"


def executor_of(kind: WorkerKind, workers: int, scheduler: str) -> Executor:
    """The farm's executor for tasks of a kind; where there is no scheduler, or nobody there for
    such tasks, so many processes of this machine.

    Raises InputError where the scheduler does not answer.
    """
    if scheduler:
        found = DaskExecutor(scheduler, kind)
        if found.places:
            return found
    return WorkerPool(workers, kind)


class DaskExecutor(Executor):
    """Tasks of one kind, as many at once as the farm has of the kind's resource; of GPUs only of
    ``gpu``, a model (``h200``) or one of them (``h200:NAME``), if that is given.
    """

    is_here = False

    def __init__(self, scheduler: str, kind: WorkerKind, *, gpu: str = "") -> None:
        self._client = client_of(scheduler)
        self._needs = resource(kind.resource, gpu)
        held = resources_of(scheduler)
        super().__init__(int(sum(r.get(self._needs, 0) for r in held)), kind.timeout_s)
        self._kind = json.dumps({**asdict(kind), "environment": dict(kind.environment)})
        self._driver = uuid.uuid4().hex
        self._asked: dict[str, Any] = {}
        self._stopped: set[str] = set()

    def ask(self, place: int, task: Task, timeout_s: float) -> Reply:
        del place
        from distributed import KilledWorker

        key = f"mirage-{uuid.uuid4().hex}"
        future = self._asked[key] = self._client.submit(
            serve.serve, self._driver, self._kind, json.dumps(task), timeout_s,
            key=key, resources={self._needs: 1}, retries=_RETRIES,
        )  # fmt: skip
        try:
            answer = json.loads(future.result())
        except KilledWorker as error:
            return Reply("crash", reason=f"the workers of the farm that had it ended: {error}")
        except Exception as error:  # noqa: BLE001
            if key in self._stopped:
                return Reply("crash", reason="it was stopped")
            raise CompileError("the farm does not answer", why=f"{error}", repair=_REPAIR) from None
        finally:
            del self._asked[key]
        return Reply(**{**answer, "code": Code[answer["code"]] if answer["code"] else None})

    def interrupt(self) -> None:
        self._client.run(serve.interrupt, self._driver, on_error="ignore")

    def break_off(self) -> None:
        self.close()

    def close(self) -> None:
        # What has not begun there, and then what has.
        asked = dict(self._asked)
        self._stopped.update(asked)
        self._client.cancel(list(asked.values()))
        self._client.run(serve.stop, self._driver, on_error="ignore")


@functools.lru_cache(maxsize=4)
def client_of(scheduler: str) -> Any:
    """The connection to a scheduler. Raises InputError where Dask is missing, or nobody answers."""
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise InputError(
            "dask.distributed is not installed", why=str(error),
            repair="pip install -e '.[farm]' in the repository",
        ) from None  # fmt: skip
    try:
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"no scheduler answers at {scheduler}", why=str(error), repair=_REPAIR
        ) from None


def resources_of(scheduler: str) -> list[Mapping[str, float]]:
    """What each worker of the farm has."""
    found = client_of(scheduler).scheduler_info(n_workers=-1)["workers"]
    return [found[address].get("resources", {}) for address in sorted(found)]


def gpus_of(scheduler: str) -> dict[str, tuple[str, ...]]:
    """The GPUs of each model."""
    found: dict[str, list[str]] = {}
    begins = resource("GPU") + ":"
    for name in sorted(n for held in resources_of(scheduler) for n in held if n.startswith(begins)):
        model, _, gpu = name.removeprefix(begins).partition(":")
        found.setdefault(model, []).extend([gpu] if gpu else [])
    return {model: tuple(gpus) for model, gpus in found.items()}
