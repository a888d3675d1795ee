"""``mirage-py optimize-graph``: functions, modules and ONNX files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mirage_py.cli.shell.run import run

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
MODULE = """
import torch

torch.manual_seed(0)
W, V = torch.randn(64, 64), torch.randn(64, 64)

def pair(x):
    return torch.relu(x @ W) * (x @ V)

def example_inputs():
    return {"x": torch.ones(4, 64)}
"""


def test_a_function_is_rewritten_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, saved = tmp_path / "two.py", tmp_path / "two.pt2"
    source.write_text(MODULE)
    assert (
        run(["optimize-graph", f"{source}:pair", "--target", "h200", "--freeze", "-o", str(saved)])
        == 0
    )
    said = capsys.readouterr().out
    assert "rule 46: matmul, matmul as concat, matmul, split" in said
    assert "no GPU was used" in said
    program = torch.export.load(saved)
    called = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert sum("mm" in name for name in called) == 1


def test_an_onnx_file_has_constant_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    onnx = pytest.importorskip("onnx")
    helper, draw = onnx.helper, np.random.default_rng(0)
    weights = {f"w{n}": draw.normal(size=(8, 4, 1, 1)).astype("float32") for n in range(2)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w0"], ["a"]),
            helper.make_node("Conv", ["x", "w1"], ["b"]),
            helper.make_node("Relu", ["a"], ["c"]),
            helper.make_node("Mul", ["c", "b"], ["y"]),
        ],
        "two",
        [helper.make_tensor_value_info("x", 1, (1, 4, 8, 8))],
        [helper.make_tensor_value_info("y", 1, (1, 8, 8, 8))],
        [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    assert run(["optimize-graph", str(path), "--target", "h200", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["changed"]
    assert [s["rule"] for s in document["steps"]] == [
        "rule 84: conv2d, conv2d as concat, conv2d, split"
    ]
    assert document["verified"]["equal"]
    assert document["verified"]["tested"] == document["verified"]["parts"] == 1


def test_what_is_no_model_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["optimize-graph", "nothing"]) == 2
    assert run(["optimize-graph", str(tmp_path / "none.onnx")]) == 2
    assert "none.onnx: there is no such file" in capsys.readouterr().err
    (tmp_path / "text.onnx").write_text("no model")
    assert run(["optimize-graph", str(tmp_path / "text.onnx")]) == 2
    assert "is no ONNX model" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was an internal error, after the whole search."""
    (tmp_path / "model.py").write_text("def f(x):\n    return x.relu() + 1\n")
    place = tmp_path / "file" / "b.pt2"
    place.parent.write_text("")
    model = f"{tmp_path / 'model.py'}:f"
    code = run(["optimize-graph", model, "--input", "x=f32[4,8]", "-o", str(place)])
    assert code == 2
    said = capsys.readouterr().err
    assert f"error: {place}: the model cannot be written" in said
    assert "why: File exists" in said or "why: Not a directory" in said
