"""What ``--help`` says is read by people and by other programs: it changes on purpose only."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from mirage_py import __version__
from mirage_py.cli.group import COMMANDS

MAX_HELP_S = 0.3


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(cli, golden, monkeypatch: pytest.MonkeyPatch, command: str):
    monkeypatch.setenv("COLUMNS", "100")
    outcome = cli(*filter(None, [command]), "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    golden.check(outcome.out, f"cli/help{command and '_' + command}.txt")


def test_without_a_command_help_is_shown(cli):
    outcome = cli()
    assert outcome.code == 2
    assert "Commands:" in outcome.err
    assert outcome.out == ""


def test_version(cli):
    assert cli("--version").out == f"mirage-py {__version__}\n"


def _seconds(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    return time.perf_counter() - start


def test_help_is_quick():
    # What starting Python costs is not ours; the least of three, as the other core may be busy.
    bare = min(_seconds("-c", "pass") for _ in range(3))
    assert min(_seconds("-m", "mirage_py", "--help") for _ in range(3)) - bare < MAX_HELP_S


HEAVY = """
import sys
from mirage_py.cli.run import run
code = run({arguments})
heavy = [n for n in ("torch", "triton", "egglog", "numpy", "rich", "lark") if n in sys.modules]
assert not heavy, heavy
sys.exit(code)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy(command: str):
    program = HEAVY.format(arguments=[command, "--help"])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
