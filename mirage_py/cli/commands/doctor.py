"""``mirage-py doctor``: checks of the installation and of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mirage_py.cli.input.options import json_option
from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

if TYPE_CHECKING:
    from mirage_py.runtime.env.doctor import Check

SOMETHING_IS_WRONG = 1


@click.command(short_help="Check that everything is in place on this machine.")
@json_option
@click.pass_obj
def doctor(screen: Screen, json: bool) -> int:
    """Check that everything is in place on this machine: packages, cache, GPU, one real kernel.

    What it prints belongs in a bug report. Exits with 1 if something is wrong.
    """
    with stdout_to_stderr(), screen.progress() as progress:
        progress("running the checks")
        from mirage_py import __version__
        from mirage_py.runtime.env.doctor import environment_report

        checks = environment_report()
    is_ok = all(check.ok for check in checks)
    if json:
        rows = [asdict(check) for check in checks]
        screen.document({"schema": 1, "version": __version__, "ok": is_ok, "checks": rows})
    else:
        screen.out(f"mirage-py {__version__}")
        for check in checks:
            screen.out(_line(check))
    return 0 if is_ok else SOMETHING_IS_WRONG


def _line(check: Check) -> str:
    mark = click.style("ok  ", fg="green") if check.ok else click.style("FAIL", fg="red")
    line = f"{mark} {check.check}: {check.detail}"
    return line if check.ok else f"{line}\n     try: {check.repair}"
