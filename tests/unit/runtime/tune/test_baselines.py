"""Which baselines a program is timed beside."""

from __future__ import annotations

import pytest
from idle_baselines import IdleBaselines

from mirage_py.frontend.spec import parse
from mirage_py.runtime.tune import baselines as baselines_module
from mirage_py.runtime.tune.baselines import baselines, compiling

PROGRAM = parse("M = 8, K = 16, N = 8\nA[M, K], B[K, N] : f16\nC[m, n] = sum[k](A[m, k] * B[k, n])")
ALL = ["eager", "compile", "compile_max_autotune"]


@pytest.mark.parametrize(("effort", "names"), [("none", ["eager"]), ("quick", ALL), ("full", ALL)])
def test_torch_compile_is_timed_in_both_modes(effort: str, names: list[str]):
    assert list(baselines(PROGRAM, effort=effort)) == names


def test_who_gives_a_torch_compile_gives_all(monkeypatch: pytest.MonkeyPatch):
    """One that compiles in a thread waits for a lock of dynamo's, which the giver may hold."""
    monkeypatch.setattr(baselines_module, "WarmUp", IdleBaselines)
    assert list(compiling(PROGRAM, {"vendor": max, "eager": abs}, "quick")) == [*ALL, "vendor"]
    assert compiling(PROGRAM, {"vendor": max, "eager": abs}, "quick")["eager"] is abs
    given = compiling(PROGRAM, {"eager": abs, "compile": max}, "quick")
    assert given == {"eager": abs, "compile": max}
    assert compiling(PROGRAM, given, "full") is given
