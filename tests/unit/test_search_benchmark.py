"""The benchmark of the search: it runs, its page is that of its result file, its chart is drawn."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.search import command, search_page, search_published
from benchmarks.search.search_cell import Request, measure
from benchmarks.search.search_plot import Line, line_chart
from mirage_py.reasons import Code, reason

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks/results/search.json"
COUNTS = ("families", "candidates", "evaluations", "tensors", "classes", "rows", "peak_mib")
SVG = "{http://www.w3.org/2000/svg}"


def cell(status="finished", **more):
    measured = {"status": status, "wall_s": 1.0, "cpu_s": 1.0, "peak_mib": 70, "start_mib": 60}
    return {**measured, **dict.fromkeys(COUNTS, 3), "exhausted": True, "reasons": [], **more}


def check_document(document):
    assert document["schema"] == command.SCHEMA
    assert {"cpu", "cores", "python", "load"} == document["machine"].keys()
    assert document["commit"]
    assert document["published"] == search_published.document()
    for row in document["programs"]:
        assert set(row["reduced"]) <= row["dims"].keys()
        assert list(row["runs"]) == [run.name for run in command.RUNS]
    names = [variant.name for variant in command.ABLATION]
    for found in document["ablation"]:
        assert found["variant"] in names
    runs = [run for row in document["programs"] for run in row["runs"].values()]
    for found in [*runs, *document["ablation"]]:
        if found["status"] in ("finished", "unfinished"):
            assert all(found[count] >= 0 for count in COUNTS)
            assert sum(found["kinds"].values()) == found["families"]
        else:
            assert found["status"] in ("killed", "not run")  # and no failure in a record


def test_quick_measures_everything_once(tmp_path, capsys):
    out = tmp_path / "quick.json"
    command.main(["--quick", "--limit", "3600", "-o", str(out)])
    document = json.loads(out.read_text())
    check_document(document)
    (row,) = document["programs"]
    assert row["program"] == "softmax"
    assert row["runs"]["factored"]["families"] > 0
    assert [c["variant"] for c in document["ablation"]] == [v.name for v in command.ABLATION]
    by_name = {c["variant"]: c["candidates"] for c in document["ablation"]}
    assert by_name["without classes"] > by_name["whole"] == by_name["2 processes"]
    lines = len(command.RUNS) + len(command.ABLATION)
    assert capsys.readouterr().out.count("softmax") == lines


def test_a_search_in_a_process_of_its_own():
    found = measure(Request("softmax", 60.0, limits={"rings": ["factored"]}))
    assert found["status"] == "finished"
    assert found["exhausted"]
    assert found["runs_wall_s"] == [found["wall_s"]]
    assert 10 < found["start_mib"] <= found["peak_mib"] < 2_000


def test_no_bound_is_tried_behind_one_that_did_not_finish():
    tried = []

    def measured(request):
        most = request.limits["max_operators"]
        tried.append((request.limits.get("pruning", "classes"), most))
        return cell("finished" if most < 3 else "killed")

    cells = list(command.ablation_cells("lora", (1, 2, 3, 4), 1.0, measured))
    assert [c["status"] for c in cells[:4]] == ["finished", "finished", "killed", "not run"]
    assert ("classes", 3) in tried
    assert ("none", 4) not in tried
    assert len(cells) == 4 * len(command.ABLATION)


def test_every_example_is_measured():
    names = command.all_programs()
    assert {"lora", "large/lora_gated_mlp"} <= set(names)
    assert set(command.ABLATED) <= set(names)
    assert {run.program for run in search_published.MIRAGE_BUILT} <= set(names)


def test_an_unknown_program_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["--programs", "lara"])
    assert "lara" in capsys.readouterr().err


def test_the_page_says_what_bound_was_hit():
    def through(**more):
        return search_page._gone_through(cell(exhausted=False, **more))

    nodes = reason(Code.BOUND_ON_NODES, "whole").document()
    assert through(reasons=[nodes]) == "no: nodes"
    outgrew = reason(Code.POOL_OUTGREW, 3000, "no loop").document()
    assert through(reasons=[outgrew, outgrew]) == "no: 3000 tensors"
    assert through(reasons=[reason(Code.OUT_OF_TIME).document()]) == "no: time"
    assert search_page._gone_through({"status": "killed", "wall_s": 9.0}) == "no: time"


def test_seconds_that_are_only_a_lower_bound():
    assert search_page._seconds(cell(wall_s=0.123)) == "0.12"
    assert search_page._seconds(cell("unfinished", wall_s=60.2)) == "> 60"
    assert search_page._seconds({"status": "not run"}) == "–"


def test_a_page_without_its_marks_is_refused():
    with pytest.raises(ValueError, match="machine"):
        search_page.filled("no marks", json.loads(RECORD.read_text()))


def test_the_chart_is_svg_with_a_point_for_each_figure():
    lines = [
        Line("ours & theirs", "#000000", [(1, 0.5), (2, 40.0)]),
        Line("cut", "#ff0000", [(1, 3.0), (2, 60.0)], ends_open=True),
    ]
    root = ET.fromstring(line_chart("title", "x", "y", lines))
    assert len(root.findall(f"{SVG}circle")) == 3
    assert len(root.findall(f"{SVG}polygon")) == 1
    heights = [float(c.get("cy")) for c in root.findall(f"{SVG}circle")]
    assert heights[0] > heights[2] > heights[1]  # 0.5, 3, 40 upwards
    ticks = [t.text for t in root.findall(f"{SVG}text")]
    assert {"0.1", "100", "ours & theirs", "cut"} <= set(ticks)


def test_the_page_of_record_is_that_of_its_file():
    document = json.loads(RECORD.read_text())
    check_document(document)
    page = (ROOT / "docs/notes/search_time.md").read_text(encoding="utf-8")
    assert search_page.filled(page, document) == page
    assert (ROOT / "docs/notes" / search_page.PICTURE).read_text() == search_page.picture(document)


def test_a_search_that_was_stopped_at_a_smaller_bound_says_so():
    plotted = {"program": "rmsnorm_matmul", "variant": "without classes"}
    cells = [
        {**plotted, "max_operators": 4, **cell()},
        {**plotted, "max_operators": 5, **cell("unfinished", wall_s=60.4)},
        {**plotted, "max_operators": 6, "status": "not run"},
    ]
    row = search_page._published(cells).splitlines()[-1]
    assert row.split(" | ")[1:4] == ["> 60", "> 60 at 5", "> 60 at 5"]
