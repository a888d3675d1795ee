"""``mirage-py explain`` end to end: artifacts, specs, µGraphs; what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from mirage_py.cli.explain.explanation import of_artifact
from mirage_py.cli.explain.explanation_text import explanation_text
from mirage_py.cli.input import subject
from mirage_py.cli.input.source import Source
from mirage_py.errors import FormatError
from mirage_py.runtime.store.artifact import Artifact, load_artifact

SPEC = "B = 3, S = 10\nX[B, S] : f32\nY[b, s] = exp(X[b, s]) / sum[s](exp(X[b, s]))\n"
ROW = "B = 4, N = 4194304\nX[B, N] : f16\nY[b] = sum[n](X[b, n])\n"
# Too few for anything but a row that is whole in a block.
LIMITS = ("--limit", "max_tensors=1", "--limit", "max_kernels=1")


def _candidate(
    name: str, time_us: float | None, *, reason: str = "", code: str = ""
) -> dict[str, object]:
    return {
        "name": name,
        "kind": "one kernel",
        "tiles": f"tiles of {name}",
        "time_us": time_us,
        "source": "measured",
        "passed": not reason,
        "reason": reason,
        "code": code,
    }


@pytest.fixture(scope="module")
def artifact_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mirage_py.cli.shell.run import run

    folder = tmp_path_factory.mktemp("explain")
    (folder / "softmax.math").write_text(SPEC)
    arguments = ["superoptimize", str(folder / "softmax.math"), "--effort", "none", "--seed", "3"]
    arguments += ["--backend", "triton"]
    assert (
        run([*arguments, "--target", "h200", "-o", str(folder / "softmax.mirage"), "--json"]) == 0
    )
    return folder / "softmax.mirage"


@pytest.fixture
def artifact(artifact_folder: Path) -> Artifact:
    return load_artifact(artifact_folder)


def _without_measurements(text: str) -> str:
    """Seconds, and a rounding error that depends on the order in which the processor adds."""
    text = re.sub(r"\(\d+\.\d\d s\)", "(N s)", text)
    return re.sub(r"off from float64 by \d\.\de-\d\d", "off from float64 by N", text)


def test_an_artifact(cli, golden, artifact_folder, monkeypatch):
    monkeypatch.chdir(artifact_folder.parent)
    outcome = cli("explain", "softmax.mirage")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    golden.check(_without_measurements(outcome.out), "cli/explain_artifact.txt")


def test_a_spec(cli, golden, artifact_folder, monkeypatch):
    monkeypatch.chdir(artifact_folder.parent)
    outcome = cli("explain", "softmax.math", "--target", "h200", "--seed", "3")
    assert outcome.code == 0, outcome.err
    golden.check(_without_measurements(outcome.out), "cli/explain_spec.txt")
    assert not (artifact_folder.parent / "softmax").exists()


def test_nothing_found(cli, golden, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("row.math").write_text(ROW)
    outcome = cli("explain", "row.math", "--target", "h200", *LIMITS)
    assert outcome.code == 0, outcome.err
    golden.check(_without_measurements(outcome.out), "cli/explain_nothing.txt")


def test_json_of_an_artifact(cli, artifact_folder, artifact):
    document = cli("explain", artifact_folder, "--json").document
    assert document["schema"] == 1
    assert document["winner"]["kernels"][0]["steps"]
    assert len(document["evidence"]) >= 4
    counts = {row["what"].split(":")[0]: row["count"] for row in document["funnel"]}
    assert counts["plans ranked by the cost model"] == artifact.report["search"]["ranked"]
    assert document["rings"][0]["ring"] == "factored"
    assert document["next_best"]
    assert document["diagnoses"] == []


def test_json_of_a_spec_that_finds_nothing(cli, tmp_path):
    path = tmp_path / "row.math"
    path.write_text(ROW)
    document = cli("explain", path, *LIMITS, "--target", "h200", "--json").document
    assert document["winner"] is None
    assert document["diagnoses"][0]["repair"]
    assert json.dumps(document, allow_nan=False)


def test_a_ugraph(cli, artifact_folder):
    outcome = cli("explain", artifact_folder / "ugraph.ug.json")
    assert outcome.code == 0, outcome.err
    assert "softmax: a µGraph without a report" in outcome.out
    assert "What it does" in outcome.out
    assert "mirage-py verify" in outcome.out
    assert "How it was found" not in outcome.out


def test_inputs_reach_the_function(cli, artifact_folder, monkeypatch):
    seen = {}

    def read_source(text, *, inputs, sizes):
        seen.update(text=text, inputs=inputs, sizes=sizes)
        return Source(load_artifact(artifact_folder).program)

    monkeypatch.setattr(subject, "read_source", read_source)
    outcome = cli("explain", "model.py:softmax", "--input", "x=f16[3,10]", "--target", "h200")
    assert outcome.code == 0, outcome.err
    assert seen == {"text": "model.py:softmax", "inputs": ("x=f16[3,10]",), "sizes": ()}


def test_sizes_reach_the_spec(cli, artifact_folder):
    spec = artifact_folder.parent / "softmax.math"
    outcome = cli("explain", spec, "--target", "h200", "--size", "B=65536", "--size", "S=4096")
    assert "2.15 GB of inputs and outputs" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--limit", "max_loops=2"], "--limit is for a search"),
        (["--size", "B=2"], "--size is for a search"),
        (["--target", "a100"], "--target is for a search"),
    ],
)
def test_an_artifact_has_its_search(cli, artifact_folder, arguments, says):
    outcome = cli("explain", artifact_folder, *arguments)
    assert outcome.code == 2
    assert says in outcome.err


def test_a_bad_limit_is_bad_usage(cli, artifact_folder):
    outcome = cli("explain", artifact_folder.parent / "softmax.math", "--limit", "speed=1")
    assert outcome.code == 2
    assert "there is no limit 'speed'" in outcome.err


def test_a_missing_file(cli, tmp_path):
    assert cli("explain", tmp_path / "nothing.mirage").code == 2


def _explained(artifact: Artifact, **changes: object) -> str:
    report = {**artifact.report, **changes}
    held = Artifact(artifact.program, changes.pop("plan", artifact.plan), report)
    return explanation_text(of_artifact("out", held))


def test_measured_candidates_are_told(artifact):
    best = {**artifact.report["best"], "name": "plan 1", "time_us": 2.0, "source": "measured"}
    candidates = [
        _candidate("plan 1", 2.0),
        _candidate("plan 2", 2.5),
        _candidate("plan 3", None),
        _candidate("plan 4", None, reason="k does not compile\n  why: ...", code="not_compiled"),
        _candidate("plan 5", 1.0, reason="wrong on huge inputs", code="too_far"),
        _candidate("plan 6", None, reason="l does not", code="not_compiled"),
    ]
    text = _explained(artifact, best=best, candidates=candidates)
    assert "2.00 us measured" in text
    after = text.partition("Next best")[2]
    assert "2.50 us measured  plan 1, one kernel: tiles of plan 2" in after
    assert "tiles of plan 1" not in after
    dropped = [line.strip() for line in text.partition("Dropped")[2].splitlines()[1:]]
    assert dropped[0] == "2  k does not compile (first: one kernel; tiles of plan 4)"
    assert "wrong on huge inputs" in dropped[1]
    assert "6  compiled and checked against float64" in text


def test_a_search_that_was_cut_says_so(artifact):
    search = {
        **artifact.report["search"],
        "rings": ["factored: cut"],
        "reasons": ["the pool outgrew 3000 tensors (no loop)"],
        "codes": {"the pool outgrew 3000 tensors (no loop)": "pool_outgrew"},
    }
    text = _explained(artifact, search=search)
    assert "ring  factored: cut" in text
    assert "try: --limit max_tensors=6000" in text


def test_the_original_program_as_the_result(artifact):
    search = {**artifact.report["search"], "families": {"one kernel": 4}, "tested": 0, "ranked": 0}
    nothing = {"trials": 0}
    text = _explained(artifact, plan=None, search=search, verification=nothing, candidates=[])
    assert "the original program stays" in text
    assert "What it does" not in text
    assert "there is nothing to prove" in text
    assert "4 families were found, none fits the target" in text


def test_families_that_overflow_are_no_result(artifact):
    search = {**artifact.report["search"], "families": {"split": 2}, "unsafe": 2, "ranked": 0}
    text = _explained(artifact, plan=None, search=search, candidates=[])
    assert "2  of them dropped: they overflow" in text
    assert "2 families were found, and each may overflow" in text


def test_families_that_are_refuted_are_called_a_bug(artifact):
    search = {**artifact.report["search"], "tested": 3, "ranked": 0, "valid": 0}
    text = _explained(artifact, plan=None, search=search, candidates=[])
    assert "3 families were tested, and none computes the program" in text


@pytest.mark.parametrize("lacking", ["search", "search.limits"])
def test_a_report_without_a_funnel(artifact, lacking: str):
    first, _, second = lacking.partition(".")
    report = {k: v for k, v in artifact.report.items() if second or k != first}
    if second:
        report[first] = {k: v for k, v in report[first].items() if k != second}
    with pytest.raises(FormatError, match=f"the report has no {lacking}"):
        of_artifact("out", Artifact(artifact.program, artifact.plan, report))


def test_no_line_is_wider_than_a_terminal(cli, artifact_folder):
    assert max(map(len, cli("explain", artifact_folder).out.splitlines())) <= 100


def test_headings_are_bold_where_there_is_color(cli, artifact_folder):
    assert "\x1b[1mWhat it does" in cli("--color", "always", "explain", artifact_folder).out


def test_why_not_answers_each_question(cli, artifact_folder):
    questions = [w for q in ("split", "tile b 64", "1", "cuda") for w in ("--why-not", q)]
    outcome = cli("explain", artifact_folder, *questions)
    assert outcome.code == 0
    answers = outcome.out.split("\n\n")
    assert [a.splitlines()[0] for a in answers[:2]] == ["Why not split?", "Why not b by 64?"]
    assert len(answers) == 4
    assert "us predicted" in answers[1]
    document = cli("explain", artifact_folder, "--why-not", "0", "--json").document
    assert document["answers"][0]["verdict"].startswith("It is the result")


def test_why_not_of_a_spec_searches_once(cli, artifact_folder):
    spec = artifact_folder.parent / "softmax.math"
    outcome = cli("explain", spec, "--target", "h200", "--why-not", "two kernels")
    assert outcome.code == 0
    assert "2 kernels" in outcome.out.splitlines()[0]
    assert "us predicted" in outcome.out


@pytest.mark.parametrize(
    ("subject", "question", "says"),
    [
        ("softmax.mirage", "a better one", "is no question about this result"),
        ("softmax.mirage", "999", "there is no plan 999"),
        ("softmax.mirage/ugraph.ug.json", "split", "a µGraph has nothing to compare it with"),
        ("nothing.mirage", "split", "No such file"),
    ],
)
def test_why_not_refuses_with_a_way_out(cli, artifact_folder, subject, question, says):
    outcome = cli("explain", artifact_folder.parent / subject, "--why-not", question)
    assert outcome.code == 2
    assert says in outcome.err
    assert "try: " in outcome.err


def test_why_not_of_a_broken_artifact(cli, artifact_folder, tmp_path):
    shutil.copytree(artifact_folder, tmp_path / "broken")
    (tmp_path / "broken" / "report.json").write_text("{}")
    outcome = cli("explain", tmp_path / "broken", "--why-not", "split")
    assert outcome.code == 2
    assert "was altered after it was written" in outcome.err
