"""The scheduler and workers of one machine: one worker per GPU, and one for the other cores.

A Dask worker only waits for the processes that do its tasks (serve.py), so one of many threads does
for all cores. Each has a nanny that starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from mirage_py.runtime.farm.serve import resource

# The server that is there all the same is seen by this machine alone.
_NO_DASHBOARD = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}


def worker_options(
    gpus: Sequence[str], models: Sequence[str], cores: int
) -> dict[str, dict[str, Any]]:
    """The options of each worker's nanny by name: ``gpus`` are values of CUDA_VISIBLE_DEVICES,
    ``models`` the targets of each.
    """
    found: dict[str, dict[str, Any]] = {}
    for gpu, model in zip(gpus, models, strict=True):
        name = f"{model}:{socket.gethostname()}/{gpu}"
        has = resource("GPU"), resource("GPU", model), resource("GPU", name)
        found[f"gpu-{gpu}"] = _options(1, has, gpu)
    # Each GPU keeps a core: who waits for it there is timed.
    free = max(1, cores - len(gpus))
    found["cores"] = _options(free, (resource("CPU"),), "")
    return found


def scheduler_options(host: str, port: int) -> dict[str, Any]:
    """Where a scheduler listens."""
    return {"host": host, "port": port, **_NO_DASHBOARD}


def _options(threads: int, resources: Sequence[str], visible: str) -> dict[str, Any]:
    return {
        "nthreads": threads,
        "resources": dict.fromkeys(resources, threads),
        "env": {"CUDA_VISIBLE_DEVICES": visible},
        # Worker processes have limits of their own, and nothing is held between tasks.
        "memory_limit": 0,
        "silence_logs": logging.WARNING,
        **_NO_DASHBOARD,
    }


def run_farm(
    workers: dict[str, dict[str, Any]],
    *,
    scheduler: str = "",
    host: str = "127.0.0.1",
    port: int = 8786,
    say: Callable[[str], None],
) -> None:
    """Serve until interrupted: with a scheduler of its own, or for one that is there.

    ``say`` is told the scheduler's address once every worker is there. TLS is what Dask's settings
    say (``distributed.comm.tls``; ``DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION``).
    """
    logging.getLogger("distributed").setLevel(logging.WARNING)
    asyncio.run(_serve(workers, scheduler, host, port, say))


def is_encrypted() -> bool:
    """Whether Dask's settings demand TLS."""
    from distributed.security import Security

    return bool(Security().require_encryption)


async def _serve(
    workers: dict[str, dict[str, Any]], address: str, host: str, port: int, say: Callable[..., None]
) -> None:
    from distributed import Nanny, Scheduler
    from distributed.security import Security

    security = Security()
    protocol = "tls" if is_encrypted() else "tcp"
    async with AsyncExitStack() as stack:
        if not address:
            made = Scheduler(**scheduler_options(host, port), protocol=protocol, security=security)
            address = (await stack.enter_async_context(made)).address
        for name, options in workers.items():
            nanny = Nanny(address, name=f"{name}-{id(stack):x}", security=security, **options)
            await stack.enter_async_context(nanny)
        say(address)
        await asyncio.Event().wait()
