"""Winners of a result file for GPUs that are not here."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import samples
from unit.benchmarks.rows import document, row

from benchmarks import winners
from benchmarks.plan_words import digest
from benchmarks.record import MEASUREMENTS
from mirage_py.runtime.compile import CompiledFacts
from mirage_py.runtime.compile_pool import CompileOutcome
from mirage_py.targets import A100, H200
from mirage_py.ugraph.json_form import to_json
from mirage_py.ugraph.plan import LaunchOptions, Plan

PLAN = Plan(samples.ugraph("softmax"), (LaunchOptions(num_stages=(2, 2)),))
OTHER = Plan(samples.ugraph("softmax"), (LaunchOptions(8, num_stages=(2, 2)),))


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A folder as a run leaves it, whose winner takes 200 KiB of shared memory."""
    lost = row("ntrans", None, eager=1.0)
    won = row("softmax", 9.0, eager=20.0, digest=digest(PLAN))
    (tmp_path / "h200-suite.json").write_text(json.dumps(document(won, lost)))
    with gzip.open(tmp_path / MEASUREMENTS, "wt") as file:
        for plan in (OTHER, PLAN):
            line = {"key": "softmax-b1", "digest": digest(plan), "plan": to_json(plan)}
            file.write(json.dumps(line) + "\n")
    return tmp_path


class Pool:
    """Compiles nothing: every plan takes the same."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def __enter__(self):
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def compile(self, plans, capability):
        facts = CompiledFacts("k", capability, 200 << 10, 64, 2, 5000, 0.1)
        return [CompileOutcome((), self.reason) if self.reason else CompileOutcome((facts,))]


def test_what_fits_one_gpu_may_not_fit_another(
    result: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(winners, "CompilePool", Pool)
    winners.main([str(result), "--targets", "h200,a100", "-o", str(result / "winners.json")])
    (found,) = json.loads((result / "winners.json").read_text())["winners"]
    assert found["key"] == "softmax-b1"
    assert found["targets"]["h200"]["fault"] == ""
    assert found["targets"]["h200"]["kernels"][0]["registers"] == 64
    assert "204800 bytes of shared memory, a100 has" in found["targets"]["a100"]["fault"]
    assert "h200: 64 regs 2 spills 200 KiB" in capsys.readouterr().out


def test_the_winner_is_the_one_that_the_row_names(result: Path):
    found = winners.winners(winners.read_document(result), result / MEASUREMENTS)
    assert found == {"softmax-b1": PLAN}


def test_what_does_not_compile_says_why(result: Path):
    (found,) = winners.compiled({"a": PLAN}, [A100, H200], Pool("no such instruction\nand more"))
    assert found["targets"]["a100"] == {"fault": "no such instruction", "kernels": []}


def test_measurements_of_another_run_are_refused(result: Path, capsys: pytest.CaptureFixture[str]):
    with gzip.open(result / MEASUREMENTS, "wt") as file:
        file.write("")
    with pytest.raises(SystemExit):
        winners.main([str(result)])
    assert "no plan for softmax-b1" in capsys.readouterr().err
