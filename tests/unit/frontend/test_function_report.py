"""A decorated function's report where no kernel serves: why, and what does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mirage_py
from mirage_py.errors import MirageWarning


def test_a_call_that_no_kernel_serves_has_a_report(tmp_path: Path) -> None:
    project = mirage_py.superoptimize(lambda x: x * 2 + 1)
    with pytest.warns(MirageWarning):
        path = project.report(tmp_path / "report.html", torch.ones(4))
    text = path.read_text("utf-8")
    assert "No kernel" in text
    assert "served by eager" in text
    assert "cpu" in text
