"""Every way a command can end has its code (DESIGN, section 10), and says why on stderr."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mirage_py import errors
from mirage_py.cli.shell.group import mirage_py as group
from mirage_py.cli.shell.run import show_warning
from mirage_py.errors import LostGpuError, MirageWarning, SourcePosition, SpecError

CODES = {
    errors.MirageError: 1,
    errors.InputError: 2,
    errors.FormatError: 2,
    errors.VerificationError: 4,
    errors.UnsupportedError: 5,
    errors.ValidationError: 1,
    errors.ScheduleError: 6,
    errors.CompileError: 6,
}


def _raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make every command line end in an error of the command."""

    def command(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(group, "invoke", command)


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_an_error_of_ours(cli, monkeypatch: pytest.MonkeyPatch, kind: type[errors.MirageError]):
    _raising(monkeypatch, kind("it broke", where="here", why="a reason", repair="a way out"))
    outcome = cli("doctor")
    assert outcome.code == CODES[kind]
    assert outcome.out == ""
    assert outcome.err == "error: here: it broke\n  why: a reason\n  try: a way out\n"


def test_every_error_has_a_row():
    own = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.MirageError)
    ]
    others = (SpecError, LostGpuError)
    assert [kind for kind in own if kind not in CODES and kind not in others] == []


def test_a_spec_error_shows_the_caret(cli, monkeypatch: pytest.MonkeyPatch):
    place = SourcePosition("a.math", 3, 2, "Y = $", 1)
    _raising(monkeypatch, SpecError("unexpected '$'", place, repair="remove it"))
    outcome = cli("doctor")
    assert outcome.code == 2
    assert "a.math:3:2: unexpected '$'" in outcome.err
    assert "\n       |  ^\n" in outcome.err


def test_a_lost_gpu_names_what_was_launched(cli, monkeypatch: pytest.MonkeyPatch):
    _raising(monkeypatch, LostGpuError("plan 3 broke it", launched="plan 3", repair="start again"))
    outcome = cli("doctor")
    assert outcome.code == 6
    assert outcome.err == "error: plan 3 broke it\n  try: start again\n"


def test_a_warning_is_a_line_without_a_place_in_the_code(capsys: pytest.CaptureFixture[str]):
    show_warning(MirageWarning("no room"), MirageWarning, "cache.py", 3)
    show_warning(FutureWarning("it will change"), FutureWarning, "torch.py", 4, None, None)
    assert capsys.readouterr().err == "warning: no room\nwarning: FutureWarning: it will change\n"


def test_a_bug_is_called_a_bug(cli, monkeypatch: pytest.MonkeyPatch):
    _raising(monkeypatch, ZeroDivisionError("division by zero"))
    outcome = cli("doctor")
    assert outcome.code == 1
    assert "ZeroDivisionError: division by zero" in outcome.err
    assert "this is a bug" in outcome.err
    assert "Traceback" not in outcome.err


def test_verbose_shows_where_a_bug_is(cli, monkeypatch: pytest.MonkeyPatch):
    _raising(monkeypatch, ZeroDivisionError("division by zero"))
    assert "Traceback" in cli("-v", "doctor").err


def test_interrupted(cli, monkeypatch: pytest.MonkeyPatch):
    _raising(monkeypatch, KeyboardInterrupt())
    outcome = cli("doctor")
    assert outcome.code == 130
    assert outcome.out == ""
    assert "interrupted" in outcome.err


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.UnsupportedError("it broke", where="here", repair="a way out"), None, 5),
        (ZeroDivisionError("it broke"), None, 1),
        (KeyboardInterrupt(), "Interrupted", 130),
    ],
    ids=["ours", "bug", "interrupt"],
)
def test_a_failure_is_one_json_document_too(
    cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, kind: str | None, code: int
):
    _raising(monkeypatch, error)
    outcome = cli("verify", "a", "b", "--json")
    assert outcome.code == code
    assert outcome.document["schema"] == 1
    assert outcome.document["error"]["kind"] == (kind or type(error).__name__)
    assert outcome.document["error"]["exit_code"] == code


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["superoptimize"], "Missing argument 'SPEC'"),
        (["superoptimize", "a.math", "--target", "v100"], "'v100' is not one of"),
        (["superoptimize", "a.math", "--backend", "metal"], "'metal' is not one of"),
        (["superoptimize", "a.math", "--effort", "max"], "'max' is not one of"),
        (["superoptimize", "a.math", "--budget", "0"], "--budget"),
        (["superoptimize", "a.math", "--budget", "soon"], "--budget"),
        (["superoptimize", "a.math", "--seed", "x"], "--seed"),
        (["superoptimize", "a.math", "--nonsense"], "No such option"),
        (["superoptimize", "a.math", "b.math"], "unexpected extra argument"),
        (["verify", "a.math"], "Missing argument 'B'"),
        (["verify", "a.math", "b.math", "--trials", "0"], "--trials"),
        (["show", "a.math", "--as", "png"], "'png' is not one of"),
        (["--color", "blue", "doctor"], "'blue' is not one of"),
    ],
)
def test_wrong_usage(cli, arguments: list[str], says: str):
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.out == ""


def test_wrong_usage_with_json_is_a_document(cli):
    outcome = cli("verify", "a.math", "--json")
    assert outcome.code == 2
    assert outcome.document["error"] == {
        "kind": "UsageError",
        "exit_code": 2,
        "what": "Missing argument 'B'.",
    }


def test_the_process_returns_the_code(tmp_path: Path):
    missing = tmp_path / "missing.math"
    done = subprocess.run(
        [sys.executable, "-m", "mirage_py", "superoptimize", missing],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{missing}: cannot read the spec" in done.stderr


def test_a_reader_that_leaves_is_no_error():
    """As in `mirage-py ... | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "mirage_py", "--version"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


def test_a_full_disk_is_no_bug(cli, monkeypatch: pytest.MonkeyPatch):
    _raising(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    outcome = cli("verify", "a", "b", "--json")
    assert outcome.code == 2
    assert outcome.document["error"]["what"] == "No space left on device"
    assert "bug" not in outcome.err
    assert "try: make room" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("superoptimize", "a.math", "--budget", "nan"), "'nan' is not a number of seconds"),
        (("bench", "--seconds", "nan"), "'nan' is not a number of seconds"),
        (("superoptimize", "a.math", "--seed", "-1"), "-1 is not a seed"),
        (("verify", "a.math", "b.math", "--seed", "-1"), "-1 is not a seed"),
        (("explain", "a.math", "--seed", str(1 << 63)), "is not a seed"),
    ],
)
def test_numbers_that_nothing_can_be_done_with(cli, arguments: tuple[str, ...], says: str):
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert says in outcome.err
