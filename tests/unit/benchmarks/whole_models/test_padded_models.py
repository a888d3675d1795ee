"""Padded batches through torch.compile; the other models are behind the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.whole_models import padded_models

RESULTS = Path(padded_models.__file__).parents[1] / "results" / "cpu-padded-models.json"


@pytest.mark.filterwarnings("ignore")
def test_left_padding_leaves_every_logit_a_number():
    pytest.importorskip("transformers")
    row = padded_models.compare("llama", "left", padded_models.Way())
    assert row.regions > 0
    assert (row.not_finite, row.eager_not_finite) == (0, 0)
    assert row.passed


def test_the_committed_table_has_every_case_and_all_are_equal():
    rows = [padded_models.Row(**row) for row in json.loads(RESULTS.read_text())["rows"]]
    assert [(r.model, r.padding) for r in rows] == padded_models.cases()
    assert all(r.passed and r.regions > 0 for r in rows)
