"""``mirage-py farm``: workers for searches, compilers and measurements, on dask.distributed."""

from __future__ import annotations

import os

import click

from mirage_py.cli.shell.screen import Screen
from mirage_py.errors import InputError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.group(short_help="Start workers that search, compile and measure for others.")
def farm() -> None:
    """Start workers that search, compile and measure for others."""


@farm.command()
@click.option("--scheduler", metavar="ADDRESS", default="", help="Join this one; else start one.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; others than this machine need TLS, by Dask's settings.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8786, show_default=True)
@click.option(
    "--cores", type=click.IntRange(min=1), metavar="N", help="Use so many.  [default: all]"
)
@click.option(
    "--gpus", type=click.IntRange(min=0), metavar="N", help="Use at most N GPUs.  [default: all]"
)
@click.pass_obj
def start(
    screen: Screen, scheduler: str, host: str, port: int, cores: int | None, gpus: int | None
) -> None:
    """Serve on this machine until Ctrl-C: a worker for each GPU, one for the cores besides.

    \b
    mirage-py farm start
    mirage-py superoptimize attention.math --scheduler tcp://127.0.0.1:8786
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    from mirage_py.runtime.env.gpus import model_of, visible
    from mirage_py.runtime.farm.start import is_encrypted, run_farm, worker_options

    if host not in _LOOPBACK and not is_encrypted():
        raise InputError(
            f"no farm listens on {host} without TLS",
            why="whoever reaches a scheduler runs programs on its workers",
            repair="set distributed.comm.tls and require-encryption of Dask (docs/how-to/farm.md)",
        )
    chosen = visible()[:gpus]
    workers = worker_options(chosen, [*map(model_of, chosen)], cores or os.cpu_count() or 1)
    run_farm(workers, scheduler=scheduler, host=host, port=port, say=screen.out)
