"""Texts of ``--help``: people and other programs read them, so they change on purpose only."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete

from mirage_py import __version__
from mirage_py.cli.shell.group import COMMANDS

# 112 with Python 3.11, of which 23 are ours and 13 click's.
MAX_MODULES = 140


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


LOADED = """
import sys
before = {*sys.modules}
from mirage_py.cli.shell.run import run
assert run(["--help"]) == 0
print(*sorted({*sys.modules} - before), file=sys.stderr)
"""


def test_help_is_quick():
    """What takes time is what is imported: of ours the commands, their options and targets."""
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    loaded = done.stderr.split()
    ours = [name.split(".")[1] for name in loaded if name.startswith("mirage_py.")]
    own = ["arguments", "cli", "errors", "pipeline", "progress", "reasons", "targets"]
    assert sorted(dict.fromkeys(ours)) == own
    assert len(loaded) < MAX_MODULES


HEAVY = """
import sys
from mirage_py.cli.shell.run import run
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("superoptimze", "did you mean superoptimize?"),
        ("frob", "there are superoptimize, optimize-graph,"),
    ],
)
def test_an_unknown_command(cli, given: str, said: str):
    outcome = cli(given, "x.math")
    assert outcome.code == 2
    assert f"No such command '{given}': {said}" in outcome.err


@pytest.mark.parametrize(
    ("words", "completed"),
    [("sup", "plain,superoptimize"), ("superoptimize --effo", "plain,--effort"),
     ("superoptimize --effort q", "plain,quick"), ("verify exam", "file,exam")],
)  # fmt: skip
def test_completion(words: str, completed: str):
    group = importlib.import_module("mirage_py.cli.shell.group").mirage_py
    *before, last = words.split()
    complete = BashComplete(group, {}, "mirage-py", "_MIRAGE_PY_COMPLETE")
    found = complete.get_completions(before, last)
    assert completed in [complete.format_completion(item) for item in found]
