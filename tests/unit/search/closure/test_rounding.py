"""Ways that rounding spoils: each is judged once, and as if it were judged in every pool."""

from __future__ import annotations

import pytest
from unit.search import programs
from unit.search.kernels import FACTORED

from mirage_py.search.closure.rounding import Rounding
from mirage_py.search.enumerate import jobs
from mirage_py.search.enumerate.draws import Draw
from mirage_py.search.space.spaces import configurations


class Forgetful(dict):
    """What is stored is not found again."""

    def get(self, key, default=None):
        return default


def pools_of(program, rounding=None):
    """What is left in the pool of each configuration, twice."""
    task = jobs.task_of(jobs.Setting(program, 0, FACTORED), "factored", None)
    drawn = Draw(task, 0, skip_divisions=True)
    if rounding is not None:
        drawn.rounding._errors_of = rounding
    choices = [*configurations(program, 2)] * 2
    return [[t.alternatives for t in drawn.close(c).tensors] for c in choices]


@pytest.mark.parametrize(
    "program",
    [programs.layernorm_linear(), programs.row_statistics(), programs.causal_attention()],
    ids=lambda program: program.name,
)
def test_what_is_known_of_a_way_is_what_would_be_found_again(program, monkeypatch):
    made = []
    original = Rounding._rounded
    monkeypatch.setattr(
        Rounding, "_rounded", lambda self, *way: [made.append(way), original(self, *way)][1]
    )
    remembered = pools_of(program)
    few = len(made)
    assert remembered == pools_of(program, Forgetful())
    assert few < len(made) - few
