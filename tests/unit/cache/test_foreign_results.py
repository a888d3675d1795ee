"""Results of others: a forged report, a wrong µGraph, a derivation that does not hold."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mirage_py.cache import foreign_results, installed_plans
from mirage_py.cache.cached_results import Question, cached_result, is_cached, trusted_entry
from mirage_py.cache.foreign_results import NOTE, verified_here
from mirage_py.cache.stored_result import stored_result
from mirage_py.errors import MirageError, MirageWarning
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import optimize
from mirage_py.result import Result
from mirage_py.runtime.base.atomic import write_folder
from mirage_py.runtime.store.artifact import Artifact, artifact_files
from mirage_py.runtime.store.cache import ResultCache
from mirage_py.ugraph.ir.ugraph import BlockGraph

SPEC = "B = 48, N = 96\nX[B, N] : f16\nY[b, n] = softmax[n](X[b, n])"
KEY = "ab" * 32
QUESTION = Question(parse(SPEC), "h200", "triton", "none", 0, measured=False)


@pytest.fixture(scope="module")
def result() -> Result:
    return optimize(parse(SPEC), target="h200", backend="triton", effort="none")


def forged(result: Result) -> dict[str, Any]:
    report = copy.deepcopy(result.document())
    report["best"] |= {"time_us": 0.001, "speedup": 1e6, "source": "measured"}
    report["baseline"] |= {"time_us": 1e6, "source": "measured"}
    report["verification"] |= {"error_bound": 0.0, "trials": 10**6, "max_rel_error": 0.0}
    report["notes"] = ["believe me"]
    return report


def damaged(found: Artifact) -> Artifact:
    """One operator of the winning kernel is another."""
    assert found.plan is not None
    kernels = tuple(
        replace(k, nodes=tuple(replace(n, op="mul") if n.op == "div" else n for n in k.nodes))
        for k in found.plan.ugraph.kernels
        if isinstance(k, BlockGraph)
    )
    ugraph = replace(found.plan.ugraph, kernels=kernels)
    return replace(found, plan=replace(found.plan, ugraph=ugraph))


def other_proof(found: Artifact) -> Artifact:
    report = copy.deepcopy(dict(found.report))
    other = optimize(
        parse("B = 48, N = 96\nX[B, N] : f16\nY[b, n] = X[b, n] / sqrt(mean[n](X[b, n]^2) + 1)"),
        target="h200",
        backend="triton",
        effort="none",
    )
    assert other.evidence is not None
    assert other.evidence.proof is not None
    report["verification"]["proof"] = other.evidence.proof
    return replace(found, report=report)


def broken_proof(found: Artifact) -> Artifact:
    report = copy.deepcopy(dict(found.report))
    report["verification"]["proof"] = {"steps": "trust me"}
    return replace(found, report=report)


def with_version(found: Artifact, version: int | None) -> Artifact:
    report = copy.deepcopy(dict(found.report))
    report["verification"]["proof"].pop("version")
    if version is not None:
        report["verification"]["proof"]["version"] = version
    return replace(found, report=report)


def later_proof(found: Artifact) -> Artifact:
    return with_version(found, 4)


def test_the_report_is_made_anew(result: Result):
    found = verified_here(Artifact(result.program, result.plan, forged(result)), "h200")
    report = found.report
    assert report["notes"] == [NOTE]
    assert report["best"]["source"] == report["baseline"]["source"] == "model"
    assert report["best"]["speedup"] < 100
    assert report["verification"]["trials"] == 4
    assert report["verification"]["error_bound"] > 0
    assert report["verification"]["max_rel_error"] > 0
    assert report["verification"]["proved"] is True
    assert report["candidates"] == []
    assert stored_result(result.program, found) is not None


def test_a_claim_without_a_derivation_is_no_proof(result: Result):
    report = forged(result)
    report["verification"]["proof"] = None
    assert report["verification"]["proved"] is True
    found = verified_here(Artifact(result.program, result.plan, report), "h200")
    assert found.report["verification"]["proved"] is False


@pytest.mark.parametrize("harm", [damaged, other_proof, broken_proof, later_proof])
def test_what_is_wrong_is_refused(result: Result, harm: Callable[[Artifact], Artifact]):
    with pytest.raises(MirageError):
        verified_here(harm(Artifact(result.program, result.plan, forged(result))), "h200")


def plant(cache: ResultCache, found: Artifact) -> None:
    """As somebody writes it who can write to the cache."""
    write_folder(cache.folder("h200", KEY), artifact_files(found.program, found.plan, found.report))


def test_a_planted_entry_is_verified_before_it_is_used(result: Result, tmp_path: Path):
    cache = ResultCache(tmp_path)
    plant(cache, damaged(Artifact(result.program, result.plan, forged(result))))
    with pytest.warns(MirageWarning, match="not used"):
        assert trusted_entry(cache, result.program, "h200", KEY) is None
    assert cache.entries() == ()


def test_a_sound_entry_of_others_is_verified_once(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = ResultCache(tmp_path)
    plant(cache, Artifact(result.program, result.plan, forged(result)))
    first = trusted_entry(cache, result.program, "h200", KEY)
    assert first is not None
    assert first.report["notes"] == [NOTE]

    def again(*_: object, **__: object) -> None:
        raise AssertionError("verified twice")

    monkeypatch.setattr(foreign_results, "verified_here", again)
    second = trusted_entry(cache, result.program, "h200", KEY)
    assert second is not None
    assert second.report == first.report
    # One byte of what it says, and it is of somebody else again.
    plant(cache, replace(second, report={**second.report, "notes": ["faster"]}))
    with pytest.raises(AssertionError, match="verified twice"):
        trusted_entry(cache, result.program, "h200", KEY)


def test_our_own_entries_are_believed(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = ResultCache(tmp_path)
    cache.put("h200", KEY, program=result.program, plan=result.plan, report=result.document())
    monkeypatch.setattr(foreign_results, "verified_here", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = trusted_entry(cache, result.program, "h200", KEY)
    assert found is not None
    assert found.plan == result.plan


@pytest.fixture
def package(tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The plans of an installed package, which nobody may import."""
    site = tmp_path / "site"
    place = site / "acme_plans" / QUESTION.target / QUESTION.key
    write_folder(place, artifact_files(result.program, result.plan, forged(result)))
    (site / "acme_plans/__init__.py").write_text("raise AssertionError('imported')\n")
    facts = site / "acme_plans-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plans\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[mirage_py.plans]\nacme = acme_plans\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "cache"))
    installed_plans.folders.cache_clear()
    yield place
    installed_plans.folders.cache_clear()


def test_an_installed_package_serves_its_plans_once_they_are_verified(
    package: Path, result: Result
):
    assert is_cached(QUESTION)
    found = cached_result(QUESTION)
    assert found is not None
    assert found.plan == result.plan
    assert found.notes[-1] == NOTE
    assert found.best.time_us == pytest.approx(result.best.time_us, abs=1e-3)
    # From now on it lies in the cache.
    (package / "plan.json").unlink()
    assert cached_result(QUESTION) == found


def test_a_package_with_another_programs_plan_serves_nothing(package: Path):
    other = replace(QUESTION, program=parse(SPEC.replace("N = 96", "N = 64")))
    place = package.parents[1] / other.target / other.key
    place.parent.mkdir(parents=True, exist_ok=True)
    package.rename(place)
    assert cached_result(other) is None
    assert cached_result(QUESTION) is None
