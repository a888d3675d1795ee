"""The tables of docs/notes/cuda.md are those of the result files, or say that there is none."""

from __future__ import annotations

import json

from benchmarks.pages import cuda_page
from benchmarks.pages.page import ROOT

RESULTS = ROOT / "benchmarks/results"
MARKS = ("cuda", "ablation", "ahead")


def row(name: str, cuda: float | None, triton: float | None, **peers: float) -> dict[str, object]:
    fastest = min(us for us in (cuda, triton) if us is not None)
    return {
        "workload": name,
        "batch": 1,
        "backend": "cuda" if fastest == cuda else "triton",
        "ours_us": fastest,
        "cuda_us": cuda,
        "triton_us": triton,
        "peers_us": peers,
    }


SUITE = {
    "rows": [
        row("softmax", 8.0, 10.0, eager=32.0, compile=16.0),
        row("lora", 4.0, 3.0, cublas=3.0),
        row("gqa", None, 7.5, eager=15.0),
    ]
}


def test_both_back_ends_side_by_side():
    lines = cuda_page.cuda_table(SUITE).splitlines()
    assert lines[2] == "| softmax-b1 | 8.00 | 10.0 | 1.25x | compile | 16.0 | 2.00x |"
    assert lines[3] == "| lora-b1 | 4.00 | 3.00 | **0.75x** | cublas | 3.00 | **0.75x** |"
    assert lines[4] == "| gqa-b1 | - | 7.50 | - | eager | 15.0 | - |"
    assert lines[-1] == (
        "Geometric mean of CUDA against Triton: 0.97x; CUDA is as fast or faster in 1 of 2."
    )


def test_tables_are_written_for_the_files_that_are_there(tmp_path):
    assert list(cuda_page.tables(tmp_path)) == []
    (tmp_path / "h200-suite.json").write_text(json.dumps(SUITE))
    assert list(cuda_page.tables(tmp_path)) == [("cuda", cuda_page.cuda_table(SUITE))]


def test_the_document_shows_the_committed_results():
    page = (ROOT / "docs/notes/cuda.md").read_text(encoding="utf-8")
    shown = {}
    for mark in MARKS:
        _, _, rest = page.partition(f"<!-- {mark} -->\n")
        shown[mark] = rest.partition(f"\n<!-- /{mark} -->")[0]
    expected = dict.fromkeys(MARKS, "Not measured yet.") | dict(cuda_page.tables(RESULTS))
    assert shown == expected
