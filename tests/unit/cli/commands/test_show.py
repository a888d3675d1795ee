"""``mirage-py show``: every form of a µGraph, and what has none."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import samples

from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.ugraph.text.mermaid import format_mermaid
from mirage_py.ugraph.text.text_form import format_program, parse_program, parse_ugraph


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "attention.ug.json"
    path.write_text(dump_text(samples.ugraph("split_attention")), encoding="utf-8")
    return path


def test_text_reads_back(cli, graph: Path):
    outcome = cli("show", graph)
    assert outcome.code == 0
    assert parse_ugraph(outcome.out) == samples.ugraph("split_attention")


def test_text_shows_itself(cli, graph: Path, tmp_path: Path):
    first = cli("show", graph).out
    (tmp_path / "again.txt").write_text(first, encoding="utf-8")
    assert cli("show", tmp_path / "again.txt").out == first


def test_svg(cli, graph: Path):
    outcome = cli("show", graph, "--as", "svg")
    assert outcome.code == 0
    root = ET.fromstring(outcome.out)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "kernel partial, grid h by 1, p by 1" in texts
    assert "loop s by 2" in texts
    assert "store O[t, h * 6 + e] = %12" in texts


def test_svg_keeps_boxes_inside_boxes(cli, graph: Path):
    root = ET.fromstring(cli("show", graph, "--as", "svg").out)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, w, h = (float(box.attrib[k]) for k in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height


def test_mermaid(cli, graph: Path):
    outcome = cli("show", graph, "--as", "mermaid")
    assert outcome.code == 0
    assert outcome.out == format_mermaid(samples.ugraph("split_attention"))


def test_triton(cli, graph: Path):
    outcome = cli("show", graph, "--as", "triton")
    assert outcome.code == 0
    assert outcome.out.count("@triton.jit") == 2
    compile(outcome.out.replace("from __future__ import annotations", ""), "triton", "exec")


def test_triton_of_a_plan(cli, tmp_path: Path):
    ugraph = samples.ugraph("softmax")
    plan = Plan(ugraph, (LaunchConfig(num_warps=2, num_stages=(1, 1)),))
    path = tmp_path / "plan.json"
    path.write_text(dump_text(plan), encoding="utf-8")
    assert "num_warps=2" in cli("show", path, "--as", "triton").out


def test_cuda(cli, graph: Path):
    outcome = cli("show", graph, "--as", "cuda")
    assert outcome.code == 0, outcome.err
    assert outcome.out.count('extern "C" __global__') == 2
    assert "import" not in outcome.out


@pytest.mark.parametrize(("form", "word"), [("triton", "@triton.jit"), ("cuda", "__global__")])
def test_a_plan_in_either_back_end(cli, tmp_path: Path, form: str, word: str):
    ugraph = samples.ugraph("softmax")
    plan = Plan(ugraph, (LaunchConfig(4, (1, 1)),), "cuda")
    path = tmp_path / "plan.json"
    path.write_text(dump_text(plan), encoding="utf-8")
    assert word in cli("show", path, "--as", form).out


@pytest.mark.parametrize(("form", "name"), [("triton", "Triton"), ("cuda", "CUDA")])
def test_a_family_has_no_source(cli, tmp_path: Path, form: str, name: str):
    path = tmp_path / "family.txt"
    path.write_text(samples.SOFTMAX.replace("grid b by 4", "grid b by ?"), encoding="utf-8")
    outcome = cli("show", path, "--as", form)
    assert outcome.code == 2
    assert "open ('?')" in outcome.err
    assert f"a family has no {name} source" in outcome.err


def test_a_program_shows_as_text_only(cli, tmp_path: Path):
    program = samples.ugraph("softmax").program
    path = tmp_path / "softmax.txt"
    path.write_text(format_program(program), encoding="utf-8")
    assert parse_program(cli("show", path).out) == program
    outcome = cli("show", path, "--as", "svg")
    assert outcome.code == 2
    assert "a program only" in outcome.err


def test_a_spec_shows_as_its_program(cli, softmax_spec: Path):
    assert cli("show", softmax_spec).out.startswith("program softmax\n")
