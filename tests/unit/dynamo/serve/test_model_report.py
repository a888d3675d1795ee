"""The report on a whole model grows with each graph that is compiled."""

from __future__ import annotations

from pathlib import Path

from mirage_py.dynamo.serve.model_report import add_to_report
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.targets import target

OURS = "inference: region [mm add] -> f16[4]: modelled 1.0 us, outside 2.0 us; served by 1 kernels"
LEFT = "inference: 5 x aten.cat.default left to inductor: it saves nothing"


def test_graphs_are_added_and_a_second_time_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.html"
    options = BackendOptions(report=str(path))
    add_to_report([OURS], options, target("h200"))
    assert "1 of 1" in path.read_text("utf-8")
    for _ in range(2):
        add_to_report([LEFT], options, target("h200"))
    text = path.read_text("utf-8")
    assert "1 of 2" in text
    assert text.count("aten.cat.default") == 1
    assert "served by 1 kernels" in text
