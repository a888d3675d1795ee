"""Forms of SPEC, and the errors for anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage_py.cli.input.example_tensors import parse_input
from mirage_py.cli.input.source import parse_size, read_source
from mirage_py.errors import InputError

MODULE = """
import torch
import helper_beside_it

scale = 2.0
table = {"a": 1}

def scaled(x, w, times=3.0):
    return (x * times) @ w

def example_inputs():
    return torch.zeros(4, 8), torch.zeros(8, 5)

class Block(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

block = Block()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))  # and taken off again
    (tmp_path / "helper_beside_it.py").write_text("value = 1\n")
    path = tmp_path / "model.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def _shapes(source) -> dict[str, str]:
    return {t.name: f"{t.dtype}{list(t.shape)}" for t in source.program.inputs}


def test_a_spec_with_a_size(softmax_spec: Path):
    source = read_source(str(softmax_spec), sizes=["B=7"])
    assert _shapes(source) == {"X": "f32[7, 10]"}
    assert source.program.name == "softmax"
    assert source.baselines == {}


def test_a_function_with_inputs(module: Path):
    source = read_source(f"{module}:scaled", inputs=["x=f16[2,6]", "w=half[6, 3]"])
    assert _shapes(source) == {"x": "f16[2, 6]", "w": "f16[6, 3]"}
    assert source.program.name == "scaled"


def test_a_function_with_example_inputs(module: Path):
    assert _shapes(read_source(f"{module}:scaled")) == {"x": "f32[4, 8]", "w": "f32[8, 5]"}


def test_a_module_object(module: Path):
    assert _shapes(read_source(f"{module}:block", inputs=["x=bf16[2,6]"])) == {"x": "bf16[2, 6]"}


def test_the_function_is_the_baseline(module: Path):
    import torch

    source = read_source(f"{module}:scaled")
    (eager,) = source.baselines.values()
    x, w = torch.randn(4, 8), torch.randn(8, 5)
    assert torch.equal(eager(x, w), (x * 3.0) @ w)


def test_a_decorated_function(tmp_path: Path):
    path = tmp_path / "decorated.py"
    path.write_text(
        "import mirage_py, torch\n@mirage_py.superoptimize\ndef f(x):\n    return torch.relu(x)\n"
    )
    assert _shapes(read_source(f"{path}:f", inputs=["x=f32[3,4]"])) == {"x": "f32[3, 4]"}


def test_a_function_that_reads_other_tensors_is_no_baseline(tmp_path: Path):
    path = tmp_path / "closure.py"
    path.write_text("import torch\nw = torch.zeros(8, 5)\ndef f(x):\n    return x @ w\n")
    source = read_source(f"{path}:f", inputs=["x=f32[3,8]"])
    assert _shapes(source) == {"x": "f32[3, 8]", "w": "f32[8, 5]"}
    assert source.baselines == {}


@pytest.mark.parametrize(
    ("spec", "inputs", "says", "repair"),
    [
        ("{module}", [], "which function of the module?", "{module}:scaled"),
        ("{module}:scale", [], "'scale' is of type float, not a function", "name a function"),
        ("{module}:Block", ["x=f16[2]"], "'Block' is a class", "block = Block(...)"),
        ("{module}:scaled", [f"x=f16[{1 << 40},{1 << 40}]"], "no tensor of this shape", "smaller"),
        ("{module}:scald", [], "no function 'scald'", "did you mean 'scaled'?"),
        ("{module}:scaled", ["y=f16[2]"], "no parameter 'y'", "name one of them"),
        ("{module}:scaled", ["x=f16[2,6]"], "no shape for w", "--input w=f16["),
        ("{module}:scaled", ["x=f16[2]", "x=f16[2]"], "'x' is given twice", "leave one out"),
        ("{module}:scaled", ["x"], "'x' is not an input", "for instance x=f16[16,4096]"),
        ("{module}:scaled", ["x=f16"], "'x=f16' is not an input", "for instance"),
        ("{module}:scaled", ["x=f16[2;3]"], "is not an input", "for instance"),
        ("{module}:scaled", ["x=f16[2,0]"], "'[2,0]' is not a shape", "for instance"),
        ("{module}:scaled", ["x=f16[2,,3]"], "'[2,,3]' is not a shape", "for instance"),
        ("{module}:scaled", ["x=f17[2,3]"], "unknown element type 'f17'", "use one of f64"),
        ("nowhere.py:f", [], "the module does not exist", "check the path"),
        ("{folder}.py:f", [], "the module is a folder", "check the path"),
    ],
)
def test_what_is_wrong_with_a_function(
    cli, module: Path, spec: str, inputs: list[str], says: str, repair: str
):
    (module.parent / "folder.py").mkdir()
    places = {"module": str(module), "folder": str(module.parent / "folder")}
    options = [part for text in inputs for part in ("--input", text)]
    outcome = cli("superoptimize", spec.format(**places), *options)
    assert outcome.code == 2
    assert says in outcome.err
    assert repair.format(**places) in outcome.err


def test_example_inputs_that_fail_name_their_line(cli, tmp_path: Path):
    path = tmp_path / "failing.py"
    path.write_text("def f(x):\n    return x\n\ndef example_inputs():\n    return 1 / 0\n")
    outcome = cli("superoptimize", f"{path}:f")
    assert outcome.code == 2
    assert f"error: {path}:5: example_inputs() failed: ZeroDivisionError" in outcome.err


def test_shapes_that_do_not_fit_name_the_line(cli, module: Path):
    outcome = cli(
        "superoptimize", f"{module}:scaled", "--input", "x=f16[2,3]", "--input", "w=f16[4,5]"
    )
    assert outcome.code == 2
    assert f"error: {module}:9: the function fails on these inputs: " in outcome.err
    assert "check shapes and types: x is float16[2, 3], w is float16[4, 5]" in outcome.err


def test_a_function_that_raises_is_no_operator_that_is_not_supported(cli, tmp_path: Path):
    path = tmp_path / "raises.py"
    path.write_text("def f(x):\n    raise ValueError('mine')\n")
    outcome = cli("superoptimize", f"{path}:f", "--input", "x=f16[2,3]")
    assert outcome.code == 2
    assert f"error: {path}:2: the function fails on these inputs: mine" in outcome.err
    assert "called by itself it raises ValueError" in outcome.err


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("x = 1\ny = unknown\n", 2, "NameError: name 'unknown' is not defined"),
        ("x = 1\n\ndef f(:\n", 3, "SyntaxError"),
        ("import no_such_module_anywhere\n", 1, "ModuleNotFoundError"),
        ("def g():\n    raise SystemExit(7)\ng()\n", 2, "SystemExit: 7"),
        ("raise ValueError('no')\n", 1, "ValueError: no"),
    ],
)
def test_a_module_that_fails(cli, tmp_path: Path, text: str, line: int, says: str):
    path = tmp_path / "broken.py"
    path.write_text(text, encoding="utf-8")
    outcome = cli("superoptimize", f"{path}:f")
    assert outcome.code == 2
    assert f"{path}:{line}: the module cannot be imported: {says}" in outcome.err


def test_input_is_for_functions_and_size_for_specs(cli, softmax_spec: Path, module: Path):
    outcome = cli("superoptimize", softmax_spec, "--input", "x=f16[2]")
    assert outcome.code == 2
    assert "--size NAME=NUMBER" in outcome.err
    outcome = cli("superoptimize", f"{module}:scaled", "--size", "B=2")
    assert outcome.code == 2
    assert "--input NAME=dtype[d0,d1,...]" in outcome.err


@pytest.mark.parametrize("text", ["B", "B=", "=3", "B=x", "B=-1", "B=1.5", "2=3", ""])
def test_bad_sizes(text: str):
    with pytest.raises(InputError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["Q=3", "B=0"])
def test_sizes_that_the_spec_refuses(cli, softmax_spec: Path, text: str):
    assert cli("superoptimize", softmax_spec, "--size", text).code == 2


def test_inputs_are_read_loosely():
    assert parse_input(" x=torch.float16[ 2 , 3 ] ") == ("x", "float16", (2, 3))
    assert parse_input("x=f32[]") == ("x", "float32", ())


@pytest.mark.parametrize("name", ["missing.math", "folder.math"])
def test_a_spec_that_cannot_be_read(cli, tmp_path: Path, name: str):
    (tmp_path / "folder.math").mkdir()
    outcome = cli("superoptimize", tmp_path / name)
    assert outcome.code == 2
    assert str(tmp_path / name) in outcome.err
