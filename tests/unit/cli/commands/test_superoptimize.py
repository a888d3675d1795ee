"""The main job from the command line, end to end, on programs that take a second."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from document_schema import SCHEMA_1, faults

import mirage_py
from mirage_py.cli.shell.run import run
from mirage_py.errors import CompileError
from mirage_py.pipeline import pipeline, searching
from mirage_py.reasons import Code, reason
from mirage_py.result import Candidate, Timing
from mirage_py.ugraph.text.json_form import load_text


@pytest.fixture(scope="module")
def result():
    """A real result, for tests of what is said about one."""
    text = "B = 3, S = 10\nX[B, S] : f32\nY[b, s] = exp(X[b, s]) / sum[s](exp(X[b, s]))\n"
    return pipeline.optimize(mirage_py.parse(text, name="softmax"), target="h200", effort="none")


def test_json_of_a_spec(cli, softmax_spec: Path, tmp_path: Path):
    folder = tmp_path / "out"
    page = tmp_path / "report.html"
    outcome = cli(
        "superoptimize", softmax_spec, "--target", "h200", "--json", "-o", folder, "--report", page
    )
    assert outcome.code == 0, outcome.err
    document = outcome.document
    assert faults(document) == []
    assert document["record"]["command"] == f"mirage-py superoptimize {softmax_spec} --target h200"
    assert document["record"]["source"]["text"] == softmax_spec.read_text()
    written = page.read_text("utf-8")
    assert document["program"]["digest"] in written
    assert document["record"]["command"] in written
    # From the artifact alone it is the same.
    again = cli("report", folder, "-o", tmp_path / "again.html")
    assert (again.code, again.out.strip()) == (0, str(tmp_path / "again.html"))
    assert (tmp_path / "again.html").read_text("utf-8") == written
    assert document["schema"] == 1
    assert document["target"] == "h200"
    assert document["best"]["kernels"] == 1
    assert document["verification"]["trials"] >= 4
    assert len(document["verification"]["primes"]) == 4
    assert document["verification"]["max_rel_error"] <= document["verification"]["float_bound"]
    assert document["artifact"] == str(folder)
    assert document["best"]["ugraph"] == str(folder / "ugraph.ug.json")
    stored = json.loads((folder / "report.json").read_text())
    assert stored == document


def test_the_artifact_verifies_shows_and_loads(cli, softmax_spec: Path, tmp_path: Path):
    folder = tmp_path / "out"
    assert cli("superoptimize", softmax_spec, "--effort", "none", "-o", folder).code == 0
    checked = cli("verify", softmax_spec, folder)
    assert checked.code == 0
    # Another form of the program, an instance for a family: one bound.
    report = json.loads((folder / "report.json").read_text())
    assert f"error bound {report['verification']['error_bound']:.2g} (" in checked.out
    assert cli("verify", folder / "ugraph.ug.json", folder).code == 0
    assert cli("show", folder).out == (folder / "ugraph.txt").read_text()
    (kernel,) = (folder / "kernels").glob("*.py")
    assert cli("show", folder, "--as", "triton").out.strip() == kernel.read_text().strip()
    assert callable(mirage_py.load(folder))
    held = load_text((folder / "plan.json").read_text(), "plan.json")
    assert held.options


def test_words_say_all_of_it(cli, softmax_spec: Path, tmp_path: Path):
    folder = tmp_path / "out"
    outcome = cli("superoptimize", softmax_spec, "--target", "h200", "-o", folder)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("ugraph softmax\n")
    lines = {line[:10].strip(): line[11:] for line in outcome.out.splitlines()}
    assert "equal in 4 trials" in lines["verified"]
    assert "samples at full size" in lines["verified"]
    assert "Schwartz-Zippel" in lines["bound"]
    assert lines["float"].startswith("relative error")
    assert re.search(r"\d+ candidates in \d+ configurations; factored: exhausted", lines["search"])
    found = r"found \d+ families \(.*one kernel.*\); \d+ verified; \d+ plans ranked"
    assert re.search(found, outcome.out)
    assert lines["kernels"] == "one kernel (softmax)"
    assert Path(lines["triton"]).is_file()
    ast.parse(Path(lines["triton"]).read_text())
    assert lines["baseline"].endswith("us predicted (fused operators, library matmuls)")
    assert "us predicted" in lines["best"]
    assert "gap" in lines["best"]
    assert lines["speedup"].endswith("x predicted on h200")
    assert "no GPU" in lines["note"]
    assert lines["artifact"] == str(folder)
    assert outcome.err == ""


def test_a_torch_function(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\nprint('imported')\n"
        "def scaled(x, g):\n    print('traced')\n    return torch.relu(x) * g\n"
    )
    inputs = ("--input", "x=f16[5,24]", "--input", "g=f16[24]")
    outcome = cli("superoptimize", f"{path}:scaled", *inputs, "--json", "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert faults(outcome.document) == []
    assert outcome.document["program"]["inputs"] == ["x[5, 24] : f16", "g[24] : f16"]
    assert outcome.document["baseline"]["name"] == "fused operators, library matmuls"
    assert "imported" in outcome.err


NOISY = """
import os, subprocess, torch
print("printed at import")
os.write(1, b"written to the file descriptor\\n")
subprocess.run(["echo", "from a child"])

def f(x):
    print("printed while traced")
    return torch.relu(x) + 1

def example_inputs():
    return torch.zeros(4, 6)
"""


def test_stdout_holds_the_document_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """What file descriptor 1 gets, which is what the user's shell reads."""
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    code = run(["superoptimize", "noisy.py:f", "--effort", "none", "--json"])
    out, err = capfd.readouterr()
    assert code == 0, err
    document = json.loads(out)
    assert faults(document) == []
    assert document["artifact"] == "f.mirage"
    assert (tmp_path / "f.mirage" / "report.json").exists()
    for noise in ("printed at import", "file descriptor", "from a child", "printed while traced"):
        assert noise in err


def _replaced(monkeypatch: pytest.MonkeyPatch, result) -> None:
    monkeypatch.setattr(pipeline, "run", lambda *args, **kwargs: result)


def test_require_speedup(cli, softmax_spec, tmp_path, result, monkeypatch):
    same = replace(result, best=result.baseline, plan=None, evidence=None)
    _replaced(monkeypatch, same)
    arguments = ("superoptimize", softmax_spec, "-o", tmp_path / "out", "--json", "--no-cache")
    assert cli(*arguments).code == 0
    outcome = cli(*arguments, "--require-speedup")
    assert outcome.code == 3
    assert faults(outcome.document) == []
    assert "no improvement, 1.00x: the original program stays" in outcome.err
    slower = replace(result.baseline, time_us=2.0 * result.baseline.time_us)
    _replaced(monkeypatch, replace(result, best=slower))
    assert "0.50x: the artifact has its best" in cli(*arguments, "--require-speedup").err
    faster = replace(result.best, time_us=0.5 * result.baseline.time_us)
    _replaced(monkeypatch, replace(result, best=faster))
    assert cli(*arguments, "--require-speedup").code == 0


def test_a_result_that_is_the_original_program(cli, softmax_spec, tmp_path, result, monkeypatch):
    _replaced(monkeypatch, replace(result, best=result.baseline, plan=None, evidence=None))
    outcome = cli("superoptimize", softmax_spec, "-o", tmp_path / "out")
    assert outcome.code == 0
    assert "none: eager: the original program is faster than every candidate" in outcome.out
    assert cli("show", tmp_path / "out").out.startswith("program softmax\n")
    assert cli("verify", softmax_spec, tmp_path / "out").code == 0


def test_no_candidate_launched(cli, softmax_spec, tmp_path, result, monkeypatch):
    why = reason(Code.NOT_COMPILED, "it does not compile")
    failed = Candidate(result.plan, Timing("k", 0.0, "measured"), False, why)
    nothing = replace(
        result, best=result.baseline, plan=None, evidence=None, candidates=(failed, failed)
    )
    _replaced(monkeypatch, nothing)
    outcome = cli("-v", "superoptimize", softmax_spec, "-o", tmp_path / "out")
    assert outcome.code == 6
    assert "it does not compile" in outcome.err
    assert (tmp_path / "out" / "report.json").exists()


def test_measured_is_called_measured(cli, softmax_spec, tmp_path, result, monkeypatch):
    timed = replace(
        result, baseline=Timing("eager", 30.0, "measured"), best=Timing("k", 10.0, "measured")
    )
    _replaced(monkeypatch, timed)
    out = cli("superoptimize", softmax_spec, "-o", tmp_path / "out").out
    assert "30.00 us measured (eager)" in out
    assert "3.00x measured on h200" in out
    assert "predicted" not in out


def test_options_reach_the_pipeline(cli, softmax_spec, tmp_path, result, monkeypatch):
    seen = []

    def run(program, request):
        seen[:] = program, request
        return result

    monkeypatch.setattr(pipeline, "run", run)
    options = "--target A100 --backend triton --effort full --budget 2.5 --seed 7 --size S=20"
    options += " --journal search.journal --limit max_loops=5"
    cli("superoptimize", softmax_spec, *options.split(), "-o", tmp_path / "out")
    program, request = seen
    assert (request.target, request.backend, request.effort) == ("a100", "triton", "full")
    assert (request.budget, request.seed) == (2.5, 7)
    assert program.sizes["s"] == 20
    assert request.journal == Path("search.journal")
    assert request.limits.max_loops == 5
    assert request.should_stop() is False


def test_the_second_run_searches_nothing(cli, softmax_spec, tmp_path, monkeypatch):
    arguments = ("superoptimize", softmax_spec, "--target", "h200", "--effort", "none", "--json")
    first = cli(*arguments, "-o", tmp_path / "first").document

    def never(*_, **__):
        raise AssertionError("this was done before")

    for module, name in ((pipeline, "run"), (pipeline, "rank_plans"), (searching, "search")):
        monkeypatch.setattr(module, name, never)
    again = cli(*arguments, "-o", tmp_path / "again").document
    assert faults(again) == []
    assert (first["cached"], again["cached"]) == (False, True)
    for document, folder in ((first, "first"), (again, "again")):
        document.pop("cached")
        assert document.pop("artifact") == str(tmp_path / folder)
        assert document["best"].pop("ugraph") == str(tmp_path / folder / "ugraph.ug.json")
    # Of rounded times.
    speedups = [document["best"].pop("speedup") for document in (first, again)]
    assert speedups[0] == pytest.approx(speedups[1], rel=1e-3)
    assert again == first
    for name in ("plan.json", "kernels/softmax.py"):
        held = (tmp_path / "again" / name).read_text()
        assert held == (tmp_path / "first" / name).read_text()
    out = cli(*arguments[:-1], "-o", tmp_path / "words").out
    assert "from the cache" in out
    assert "predicted on h200" in out


def test_a_program_that_is_known_by_another_name_says_so(cli, softmax_spec, tmp_path):
    arguments = ("--target", "h200", "--effort", "none", "-o", tmp_path / "out")
    assert "searched as" not in cli("superoptimize", softmax_spec, *arguments).out
    other = softmax_spec.with_name("rows.math")
    other.write_text(softmax_spec.read_text(encoding="utf-8"), encoding="utf-8")
    out = cli("superoptimize", other, *arguments).out
    assert "the same program was searched as 'softmax', and its kernels are called so" in out


def test_what_may_change_the_result_is_another_question(
    cli, softmax_spec, tmp_path, result, monkeypatch
):
    searched = []
    monkeypatch.setattr(pipeline, "run", lambda *how: searched.append(how) or result)
    arguments = ("superoptimize", softmax_spec, "--target", "h200", "-o", tmp_path / "out")
    changes = (
        (), ("--effort", "full"), ("--seed", "1"), ("--backend", "triton"), ("--budget", "9"),
        ("--limit", "max_loops=5"), ("--size", "S=11"), ("--target", "a100"), ("--no-cache",),
    )  # fmt: skip
    for number, change in enumerate(changes):
        cli(*arguments, *change)
        assert len(searched) == number + 1, change
        cli(*arguments)
        assert len(searched) == number + 1
    monkeypatch.setenv("MIRAGE_PY_NO_CACHE", "1")
    cli(*arguments)
    assert len(searched) == len(changes) + 1


def test_an_interrupted_result_is_not_kept(cli, softmax_spec, tmp_path, result, monkeypatch):
    _replaced(monkeypatch, replace(result, interrupted=True))
    arguments = ("superoptimize", softmax_spec, "-o", tmp_path / "out", "--json")
    for _ in range(2):
        outcome = cli(*arguments)
        assert (outcome.code, outcome.document["cached"]) == (130, False)


def test_an_interrupt_is_130(cli, softmax_spec, tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "run", interrupted)
    outcome = cli("superoptimize", softmax_spec, "-o", tmp_path / "out", "--json")
    assert outcome.code == 130
    assert outcome.document["error"]["kind"] == "Interrupted"


def test_an_error_of_the_pipeline_keeps_its_code(cli, softmax_spec, tmp_path, monkeypatch):
    def failing(*args, **kwargs):
        raise CompileError("nothing compiled", repair="mirage-py doctor")

    monkeypatch.setattr(pipeline, "run", failing)
    outcome = cli("superoptimize", softmax_spec, "-o", tmp_path / "out", "--json")
    assert outcome.code == 6
    assert outcome.document["error"]["repair"] == "mirage-py doctor"


def _never(*args, **kwargs):
    raise AssertionError("a search was started although its result has no place")


@pytest.mark.parametrize("place", ["file", "file/below", "full"])
def test_an_output_folder_that_cannot_be(cli, softmax_spec, tmp_path, monkeypatch, place: str):
    monkeypatch.setattr(pipeline, "run", _never)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine too")
    outcome = cli("superoptimize", softmax_spec, "-o", tmp_path / place)
    assert outcome.code == 2
    assert str(tmp_path / place) in outcome.err
    assert "-o" in outcome.err
    assert (tmp_path / "full" / "thesis.tex").read_text() == "mine too"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_is_full(cli, softmax_spec, tmp_path, result, monkeypatch):
    def save(result, folder):
        raise OSError(28, "No space left on device", str(folder / "plan.json"))

    _replaced(monkeypatch, result)
    monkeypatch.setattr(pipeline, "save", save)
    outcome = cli("superoptimize", softmax_spec, "-o", tmp_path / "out")
    assert outcome.code == 2
    assert f"error: {tmp_path / 'out'}: the artifact cannot be written" in outcome.err
    assert "why: No space left on device" in outcome.err
    assert "choose another folder" in outcome.err


def test_an_artifact_is_replaced(cli, softmax_spec, tmp_path, result, monkeypatch):
    _replaced(monkeypatch, result)
    for _ in range(2):
        assert cli("superoptimize", softmax_spec, "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "manifest.json").exists()


def test_verbose_names_the_stages(cli, softmax_spec, tmp_path):
    outcome = cli("-v", "superoptimize", softmax_spec, "--effort", "none", "-o", tmp_path / "out")
    stages = outcome.err.splitlines()
    assert stages[0] == "reading"
    assert "searching" in stages
    assert stages[-1] == "saving"


def test_numbers_that_json_has_not_are_null(cli, softmax_spec, tmp_path, result, monkeypatch):
    endless = replace(result, search=replace(result.search, gap=float("inf")))
    _replaced(monkeypatch, endless)
    outcome = cli("superoptimize", softmax_spec, "--json", "-o", tmp_path / "out")
    assert outcome.document["search"]["gap"] is None


def test_the_checker_checks():
    assert faults({}) == [f"$.{key} is missing" for key in SCHEMA_1]
    assert faults({"a": True}, {"a": int}) == ["$.a is True"]
    assert faults({"a": 1, "b": 2}, {"a": int}) == ["$.b is not in the schema"]


def test_an_interrupted_measurement_keeps_the_best(
    cli, softmax_spec, tmp_path, result, monkeypatch
):
    _replaced(monkeypatch, replace(result, interrupted=True))
    outcome = cli("superoptimize", softmax_spec, "--json", "-o", tmp_path / "out")
    assert outcome.code == 130
    assert "with --journal FILE the next search goes on" in outcome.err
    assert faults(outcome.document) == []
    assert (tmp_path / "out" / "plan.json").exists()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_interrupt_before_a_kernel_was_found_keeps_an_earlier_artifact(
    cli, softmax_spec, tmp_path, result, monkeypatch, options
):
    """It was replaced by one that has no kernel."""
    _replaced(monkeypatch, result)
    asked = "superoptimize", softmax_spec, "-o", tmp_path / "out"
    assert cli(*asked).code == 0
    files = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert tmp_path / "out" / "plan.json" in files
    _replaced(monkeypatch, replace(result, interrupted=True, plan=None, best=result.baseline))
    outcome = cli(*asked, "--no-cache", *options)
    assert outcome.code == 130
    assert f"no kernel was found yet: {tmp_path / 'out'} stays as it was" in outcome.err
    assert files == {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}


def test_a_refused_program_has_a_report(cli, tmp_path: Path):
    spec, page = tmp_path / "bad.math", tmp_path / "report.html"
    spec.write_text("B = 4\nX[B] : f16\nY[b] = foo(X[b])\n")
    outcome = cli("superoptimize", spec, "--report", page)
    assert outcome.code == 2
    written = page.read_text("utf-8")
    for said in ("unknown function &#39;foo&#39;", "exit code 2", "Y[b] = foo(X[b])", str(spec)):
        assert said in written
