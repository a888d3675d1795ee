"""``mirage-py verify``: equal is 0, different is 4 with the place."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from cuda_plans import cuda_plan

from mirage_py.errors import CompileError
from mirage_py.runtime.code_check import compile_ptx
from mirage_py.runtime.code_check.compile_ptx import ptx_of
from mirage_py.runtime.compile.cuda_compiler import cuda_compiler
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.ugraph.text.text_form import format_program

NORMALISED = """B = 4, S = 12
X[B, S], G[S] : f32
Y[b, s] = X[b, s] * G[s] / sqrt(mean[s](X[b, s]^2) + 1e-6)
"""
# The same with other letters, the scale folded in, and the mean spelled out.
REORDERED = """B = 4, S = 12
X[B, S], G[S] : f32
let V[r] = sum[k](X[r, k] * X[r, k]) / 12
Y[r, k] = G[k] * (X[r, k] / sqrt(V[r] + 1e-6))
"""
WITHOUT_EPSILON = NORMALISED.replace(" + 1e-6", "")


@pytest.fixture
def spec(tmp_path: Path):
    def write(text: str, name: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_equal_programs(cli, spec):
    outcome = cli("verify", spec(NORMALISED, "a.math"), spec(NORMALISED, "b.math"))
    assert outcome.code == 0
    assert outcome.out.startswith("equal: ")
    assert "4 trials" in outcome.out


def test_a_constant_that_stands_for_a_size(cli, spec):
    outcome = cli("verify", spec(NORMALISED, "a.math"), spec(REORDERED, "b.math"))
    assert outcome.code == 0
    assert "a constant stands for a size" in outcome.out


def test_different_programs(cli, spec):
    a, b = spec(NORMALISED, "a.math"), spec(WITHOUT_EPSILON, "b.math")
    outcome = cli("verify", a, b, "--json")
    assert outcome.code == 4
    document = outcome.document
    assert document["schema"] == 1
    assert document["equal"] is False
    assert document["difference"]["output"] == "Y"
    assert len(document["difference"]["element"]) == 2
    assert document["difference"]["trial"] == 0
    words = cli("verify", a, b)
    assert words.code == 4
    assert words.out.startswith("different: ")
    assert "first in Y[" in words.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("S = 12", "S = 13"), "input X is f32[4, 12] in the first, f32[4, 13] in the second"),
        ((": f32", ": f16"), "input X is f32[4, 12] in the first, f16[4, 12] in the second"),
        (("G", "H"), "input G is missing in the second, which has X, H"),
    ],
)
def test_different_tensors(cli, spec, change: tuple[str, str], says: str):
    other = spec(NORMALISED.replace(*change), "b.math")
    outcome = cli("verify", spec(NORMALISED, "a.math"), other, "--json")
    assert outcome.code == 4
    assert outcome.document["reason"] == says


@pytest.mark.parametrize("name", sorted(samples.TEXTS))
def test_a_ugraph_against_its_program(cli, tmp_path: Path, name: str):
    ugraph = samples.ugraph(name)
    program, graph = tmp_path / "program.txt", tmp_path / f"{name}.ug.json"
    program.write_text(format_program(ugraph.program), encoding="utf-8")
    graph.write_text(dump_text(ugraph), encoding="utf-8")
    outcome = cli("verify", program, graph, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.document["equal"] is True
    assert outcome.document["difference"] is None


def test_a_wrong_ugraph(cli, spec):
    right = spec(samples.SOFTMAX, "right.txt")
    wrong = spec(samples.SOFTMAX.replace("%5 = sum[s] %4", "%5 = sum[s] %3"), "wrong.txt")
    outcome = cli("verify", right, wrong, "--json")
    assert outcome.code == 4
    document = outcome.document
    assert f"the µGraph of {wrong} does not compute its program" in document["reason"]
    assert document["difference"]["output"] == "Y"


def test_trials_are_counted(cli, spec):
    path = spec(NORMALISED, "a.math")
    assert cli("verify", path, path, "--trials", "7", "--json").document["trials"] == 7


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.math", "B = ", "a.math:1:"),
        ("a.ug.json", "{", "a.ug.json"),
        ("a.ug.json", '{"schema": 1, "kind": "nonsense"}', "unknown kind"),
        ("a.txt", "ugraph x\nkernel {", "a.txt:2:"),
        ("a.txt", samples.SOFTMAX.replace("store Y[b, s]", "store Y[s, b]"), "a.txt"),
    ],
)
def test_bad_files(cli, spec, name: str, text: str, says: str):
    good = spec(NORMALISED, "good.math")
    outcome = cli("verify", good, spec(text, name))
    assert outcome.code == 2, outcome.err
    assert says in outcome.err


def test_a_missing_file(cli, spec, tmp_path: Path):
    outcome = cli("verify", spec(NORMALISED, "a.math"), tmp_path / "none")
    assert outcome.code == 2
    assert str(tmp_path / "none") in outcome.err
    assert "try: " in outcome.err


def test_a_folder_that_is_no_artifact(cli, spec, tmp_path: Path):
    outcome = cli("verify", spec(NORMALISED, "a.math"), tmp_path)
    assert outcome.code == 2
    assert "manifest.json" in outcome.err


SUMS = "X[8, 1024] : f16\nY[b, d] = X[b, d] / sum[d](X[b, d] * X[b, d])\n"
BY_THREADS = """
kernel scaled {
  grid b by 1
  %0 = load X[b, d]
  %1 = square %0
  %2 = sum[d] %1
  %3 = div %0, %2
  store Y[b, d] = %3
}
"""


def test_the_code_of_a_plan_is_checked_where_that_is_asked(cli, spec, monkeypatch):
    try:
        cuda_compiler()
    except CompileError as error:
        pytest.skip(str(error))
    program = spec(SUMS, "sums.math")
    plan = spec(dump_text(cuda_plan(SUMS, BY_THREADS)), "plan.json")
    outcome = cli("verify", program, plan, "--code")
    assert outcome.code == 0, outcome.out + outcome.err
    assert "code of scaled: checked" in outcome.out
    assert cli("verify", program, plan).out.count("code of") == 0
    (found,) = cli("verify", program, plan, "--code", "--json").document["code"]
    assert found["checked"]
    assert found["blocks"] == 8
    # The same without its barriers.
    monkeypatch.setattr(compile_ptx, "ptx_of", lambda k: ptx_of(k).replace("bar.sync", "//"))
    outcome = cli("verify", program, plan, "--code")
    assert outcome.code == 4
    assert "code of scaled: read before written" in outcome.out


def test_verify_says_it_once_and_holds_it_for_both(cli, tmp_path) -> None:
    text = "N = 24\nX[N] : f32\nY[n] = exp(X[n])"
    a, b = tmp_path / "a.math", tmp_path / "b.math"
    a.write_text(text)
    b.write_text(text.replace("exp(X[n])", "1 / exp(-X[n])"))
    out = cli("verify", a, b).out
    assert out.count("carries more than one exponential") == 1
    found = cli("verify", a, b, "--json").document["functions"]
    assert [entry["subject"] for entry in found] == [str(a), str(b)]
    assert all(entry["lax"] and entry["ugraph"] is None for entry in found)


def test_verify_does_not_bury_a_difference(cli, tmp_path) -> None:
    a, b = tmp_path / "a.math", tmp_path / "b.math"
    a.write_text("N = 24\nX[N] : f32\nY[n] = exp(X[n])")
    b.write_text("N = 24\nX[N] : f32\nY[n] = exp(-X[n])")
    outcome = cli("verify", a, b)
    assert outcome.code == 4
    assert "exponential" not in outcome.out
