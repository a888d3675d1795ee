"""``mirage-py bench``: what it refuses, and what it hands on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.farm import gpus
from benchmarks.suite import command
from benchmarks.suite.command import Done
from benchmarks.suite.options import Options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--suite", "nonsense"), "unknown suite 'nonsense'"),
        (("--only", "gqa-b1,gqa-b2"), "unknown workload gqa-b2"),
        (("--peers", "compile,nonsense"), "unknown peer nonsense"),
        (("--families", "nowhere"), "there is no folder nowhere"),
        (("--compare", __file__, __file__), "cannot be read"),
    ],
)
def test_bad_input_is_refused_with_a_repair(cli, arguments: tuple[str, ...], words: str):
    outcome = cli("bench", *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.out == ""


def document(**more: object) -> dict[str, object]:
    return {"schema": 1, "rows": [], "failed": {}, "not_run": {}, "notes": [], **more}


class Suite:
    """Stands for the run itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, done: Done) -> None:
        self.options: Options | None = None
        self.done = done
        monkeypatch.setattr(command, "bench", self.bench)

    def bench(self, options: Options, say) -> Done:
        self.options = options
        say("a row")
        sys.stdout.write("what a library prints\n")
        return self.done


def test_options_arrive(cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    suite = Suite(monkeypatch, Done(document(), (tmp_path / "x.json",), interrupted=False))
    outcome = cli(
        "bench", "--suite", "paper", "--only", "gqa-b1, lora-b8", "--peers", "compile,flex",
        "-o", tmp_path, "--families", tmp_path, "--plans", 7, "--effort", "full", "--gpus", 2,
        "--seconds", 60, "--row-seconds", 30, "--resume", "--commit", "abc", "--json",
    )  # fmt: skip
    options = suite.options
    assert options is not None
    assert outcome.code == 0
    assert outcome.document == document()
    assert "a row\nwhat a library prints" in outcome.err
    assert [w.key for w in options.workloads] == ["gqa-b1", "lora-b8"]
    assert (options.peers, options.most_plans) == (("compile", "flex"), 7)
    assert (options.folder, options.families) == (tmp_path, tmp_path)
    assert (options.effort, options.gpus, options.seconds) == ("full", 2, 60.0)
    assert (options.row_seconds, options.resume, options.commit) == (30.0, True, "abc")


@pytest.mark.parametrize(
    ("done", "code"),
    [
        (Done(document(failed={"gqa-b1": "it hung"}), (), interrupted=False), 6),
        (Done(document(), (), interrupted=True), 130),
    ],
)
def test_exit_codes(cli, monkeypatch: pytest.MonkeyPatch, done: Done, code: int):
    Suite(monkeypatch, done)
    assert cli("bench").code == code


def test_without_a_gpu_the_small_suite_takes_the_place_of_any(monkeypatch: pytest.MonkeyPatch):
    from benchmarks.suite import smoke

    monkeypatch.setattr(gpus, "visible", lambda: ())

    def stop(*_: object) -> None:
        raise RuntimeError("smoke")

    monkeypatch.setattr(smoke, "run_smoke", stop)
    said: list[str] = []
    with pytest.raises(RuntimeError, match="smoke"):
        command.bench(Options(suite="paper"), said.append)
    assert said == ["no NVIDIA GPU here: in place of paper the suite smoke runs", smoke.NOTHING]
