"""The tables of the documents are those of the result files that lie beside them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.pages.page import CHART, PAPER, ROOT, WHOLE_MODELS_FILE, suite_table, summary
from benchmarks.report import ahead
from benchmarks.report.marks import filled
from benchmarks.report.record import read_document
from benchmarks.report.speedup_chart import speedup_chart
from benchmarks.whole_models.table import whole_models_table

RESULTS = ROOT / "benchmarks/results"


def between(path: Path, mark: str) -> str:
    _, _, rest = path.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    text, _, _ = rest.partition(f"\n<!-- /{mark} -->")
    return text


def test_the_documents_show_the_committed_results():
    document = read_document(RESULTS / "h200-suite.json")
    assert between(ROOT / "docs/notes/h200.md", "suite") == suite_table(document)
    assert between(ROOT / "README.md", "results") == summary(document)
    assert CHART.read_text(encoding="utf-8") == speedup_chart(document)
    winners = json.loads((RESULTS / "ahead.json").read_text(encoding="utf-8"))
    assert between(ROOT / "docs/notes/h200.md", "ahead") == ahead.table(winners["lines"])


def test_the_table_of_whole_models():
    page = between(ROOT / "docs/notes/whole_models.md", "whole-models")
    path = RESULTS / WHOLE_MODELS_FILE
    if path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
        assert page == whole_models_table(document)
    else:
        assert page == "Not measured yet."


def row(name: str, batch: int, ours: float | None, **peers: float) -> dict[str, object]:
    kernel = {"grid": {"b": 1, "n": 64}, "loops": [["d", 128]], "num_warps": 4, "num_stages": [3]}
    plan = [{**kernel, "flags": {"copies": "descriptors"}}, {"library": "matmul"}]
    return {
        "workload": name,
        "batch": batch,
        "ours_us": ours,
        "peers_us": peers,
        "floor_us": 5.0,
        "kind": "library",
        "plan": plan,
    }


def test_wins_and_losses():
    rows = [
        row("other", 16, 10.0, eager=40.0, cublas=8.0),
        row("other", 2, 10.0, eager=40.0),
        row("gqa", 1, 10.0, eager=40.0, sdpa_flash=20.0, cublas=15.0),
    ]
    text = suite_table({"rows": rows})
    lines = [line.split(" | ") for line in text.splitlines()[2:]]
    assert [line[0] for line in lines] == ["| gqa-b1", "| other-b2", "| other-b16"]
    assert lines[0][1:8] == ["10.0", "cublas", "15.0", "1.50x", "4.00x", "-", "50 %"]
    assert lines[2][4] == "**0.80x**"
    assert lines[0][9] == "n 64, loop d 128, 4 warps, 3 stages, TMA; library matmul |"
    short = summary({"rows": rows})
    assert "the 1 rows of the paper's programs: " in short
    assert "the best of eager, torch.compile in both modes and SDPA 2.00x" in short
    assert "the best of all peers 1.50x" in short


def test_the_picture_has_every_row_and_its_losses_on_top():
    rows = [
        row("won", 1, 10.0, eager=40.0, compile_max_autotune=20.0),
        row("lost", 2, 10.0, eager=40.0, cublas=8.0),
        row("unmeasured", 4, None, eager=40.0),
    ]
    machine = {"gpu": "a GPU"}
    root = ET.fromstring(speedup_chart({"rows": rows, "machine": machine}))
    texts = [part.text for part in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.index("lost-b2") < texts.index("won-b1")
    assert ["0.80x", "over cublas"] == texts[texts.index("lost-b2") + 1 :][:2]
    assert ["2.00x", "over compile_max_autotune"] == texts[texts.index("won-b1") + 1 :][:2]
    assert "unmeasured-b4" not in texts
    bars = root.iter("{http://www.w3.org/2000/svg}rect")
    assert [bar.get("fill") for bar in bars].count("#b3261e") == 1


def test_the_programs_of_the_paper_are_eighteen_cells():
    assert len(PAPER) == 18


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="no marks"):
        filled("nothing", "suite", "text")
