"""The runner of a command line: every way it can end has an exit code and a reason on stderr."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from mirage_py.cli.shell.group import mirage_py
from mirage_py.cli.shell.screen import Screen
from mirage_py.errors import MirageError, MirageWarning

INTERNAL_ERROR = 1
INTERRUPTED = 130
NO_ROOM = 2

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def run(arguments: Sequence[str]) -> int:
    """Run ``mirage-py`` with these arguments; returns the exit code.

    With ``--json`` a failure is a document too: ``{"schema": 1, "error": {...}}``.
    """
    # The errors may come before any option was understood, so the plain words are looked at.
    json = "--json" in arguments
    verbose = any(a in ("-v", "--verbose") for a in arguments)
    try:
        code = mirage_py.main(list(arguments), prog_name="mirage-py", standalone_mode=False)
    except click.exceptions.Abort:
        return _interrupted(json)
    except click.ClickException as error:
        error.show()
        _document(json, "UsageError", error.exit_code, error.format_message())
        return error.exit_code
    except MirageError as error:
        click.echo(f"error: {error}", err=True)
        if verbose:
            traceback.print_exc()
        parts = {"where": error.where, "why": error.why, "repair": error.repair}
        _document(json, type(error).__name__, error.exit_code, error.what, **parts)
        return error.exit_code
    except BrokenPipeError:
        # The reader of stdout left, as `head` does. Without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERNAL_ERROR
    except OSError as error:
        if error.errno not in _NO_ROOM:
            return _bug(error, json=json, verbose=verbose)
        return _no_room(error, json=json)
    except Exception as error:  # noqa: BLE001  the last line of defence: a message, not a trace
        return _bug(error, json=json, verbose=verbose)
    return code if isinstance(code, int) else 0


def show_warning(
    message: Warning | str, category: type[Warning], *_place: Any, **_more: Any
) -> None:
    """``warnings.showwarning`` of the command line: what went wrong, not a place in the code."""
    kind = "" if category is MirageWarning else f"{category.__name__}: "
    click.echo(f"warning: {kind}{message}", err=True)


def _interrupted(json: bool) -> int:
    click.echo("interrupted", err=True)
    _document(json, "Interrupted", INTERRUPTED, "interrupted")
    return INTERRUPTED


def _no_room(error: OSError, *, json: bool) -> int:
    what, where = str(error.strerror), str(error.filename or "stdout, or a temporary file")
    repair = "make room, or write to another place"
    click.echo(f"error: {where}: {what}\n  try: {repair}", err=True)
    _document(json, type(error).__name__, NO_ROOM, what, where=where, why="", repair=repair)
    return NO_ROOM


def _bug(error: Exception, *, json: bool, verbose: bool) -> int:
    what = f"{type(error).__name__}: {error}"
    click.echo(f"internal error: {what}\n  this is a bug in mirage_py, not in your input", err=True)
    if verbose:
        traceback.print_exception(error)
    else:
        click.echo("  try: the same command with -v before it shows where", err=True)
    _document(json, type(error).__name__, INTERNAL_ERROR, str(error))
    return INTERNAL_ERROR


def _document(json: bool, kind: str, exit_code: int, what: str, **parts: str) -> None:
    if not json:
        return
    error: dict[str, Any] = {"kind": kind, "exit_code": exit_code, "what": what, **parts}
    Screen().document({"schema": 1, "error": error})
