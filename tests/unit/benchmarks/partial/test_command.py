"""The benchmark of mutants checks what it times, and says so without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.partial.cases import CASES
from benchmarks.partial.command import Runner, lines, main
from mirage_py.networks.ir.builder import GraphBuilder


@pytest.mark.skipif(torch.cuda.is_available(), reason="times are for people")
def test_mutants_compute_what_the_layer_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--smoke", "--most", "3", "-o", str(tmp_path / "out.json")]) == 0
    assert "small: 3 mutants" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert len(row["mutants"]) == 4
    assert all(m["error"] < 0.02 for m in row["mutants"])


def test_a_wrong_mutant_is_shown():
    rows = [
        {"mutant": "program", "error": 0.0, "us": 2.0},
        {"mutant": "m", "error": 1.0, "us": 1.0},
    ]
    assert "2.00x      1.0 us  m  WRONG BY 1" in lines({"case": "c", "mutants": rows})[1]


def test_weights_are_computed_beforehand():
    b = GraphBuilder()
    x, w = b.input("x", (2, 3)), b.input("w", (4, 3), constant=True)
    graph = b.build(b.apply("matmul", x, b.apply("transpose", b.apply("neg", w), perm=(1, 0))))
    one, other = torch.randn(2, 3), torch.randn(4, 3)
    (found,) = Runner(graph, [one, other])()
    torch.testing.assert_close(found, -one @ other.T)


def test_every_case_has_shapes():
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert len(case.graph().output_types) == len(case.calls)
