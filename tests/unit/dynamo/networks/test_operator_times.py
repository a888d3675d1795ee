"""Measured times of operators, in a file that several processes write."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mirage_py.dynamo.networks import operator_times
from mirage_py.search.networks.costs import LibraryCall
from mirage_py.search.networks.egraph import ENode


def test_what_another_process_timed_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "times.json"

    def timed(entries: Any, sets: int, *, reps: int) -> Any:
        path.write_text(json.dumps({"theirs": 2.0}))
        return {"it": SimpleNamespace(ran=True, median_us=3.0)}

    monkeypatch.setattr(operator_times, "_path", lambda _device: path)
    monkeypatch.setattr(operator_times, "_entry", lambda *_: None)
    monkeypatch.setattr(operator_times, "time_interleaved", timed)
    call = LibraryCall("ours", ENode("matmul", (), (0, 1)), (), 1.0)
    want = {"ours": 3.0, "theirs": 2.0}
    assert operator_times.operator_times([call], torch.device("cpu")) == want
    assert json.loads(path.read_text()) == want
