"""One workload and its peers on this GPU: a row of the result file, and every measurement."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.suite.families import Searched
from benchmarks.suite.plan_format import best_of_kinds, described, digest, resources
from benchmarks.suite.roofline import roofline
from benchmarks.workloads.workload import Workload
from mirage_py.runtime.base.emission import BACKENDS
from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
from mirage_py.runtime.tune.measured import MARGIN, Measured, TuneReport
from mirage_py.runtime.tune.tuner import CLIMBING_ROUNDS, tune
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.ugraph.text.json_form import to_json

Call = Callable[..., Any]
Json = dict[str, Any]

# What a peer may be off by: rounding every intermediate to half precision costs no more.
_PEER_ERROR = 1e-2
# Plans slower than a baseline that are tried on the inputs which only finalists see.
_TRIED = 3
# The baselines that an optimisation without further wishes compares with.
_OWN_BASELINES = ("eager", "compile", "compile_max_autotune")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for all rows of a worker; ``launch_us`` is that of an empty kernel."""

    target: Target
    effort: str
    compile_workers: int
    launch_us: float


def measure_row(
    workload: Workload,
    searched: Searched,
    peers: Mapping[str, Call],
    setting: Setting,
    note_stage: Callable[[str], None] = lambda _: None,
) -> tuple[Json, list[Json]]:
    """The row of a workload, and a line for each of its plans."""
    started = time.perf_counter()
    stages: list[tuple[float, str]] = []

    def progress(stage: str) -> None:
        note_stage(stage)
        if not stage.startswith("compiled"):
            stages.append((round(time.perf_counter() - started, 1), stage))

    try:
        report = tune(
            searched.program,
            searched.plans,
            peers,
            target=setting.target,
            neighbours=lambda plan: neighbours(plan, setting.target),
            climbing_rounds=CLIMBING_ROUNDS[setting.effort],
            compile_workers=setting.compile_workers,
            progress=progress,
        )
    finally:
        _forget_compiled()
    tune_s = time.perf_counter() - started
    row = {
        "workload": workload.name,
        "batch": workload.batch,
        "sizes": dict(workload.sizes),
        **_times(searched, report),
        **_bounds(searched, setting),
        "search_s": round(searched.search_s, 2),
        "verify_s": round(searched.verify_s, 2),
        "compile_s": stages[0][0] if stages else None,
        "stages": [[s, stage] for s, stage in stages],
        "peers_compile_s": {n: round(s, 2) for n, s in report.first_calls.items()},
        "tune_s": round(tune_s, 1),
        "candidates": len(searched.candidates),
        "dropped": _dropped(report),
        "model_rank_correlation": _rank_correlation(searched, report),
        "notes": list(report.notes),
    }
    return row, _measurements(workload, searched, report)


def _times(searched: Searched, report: TuneReport) -> Json:
    """Who was how fast, and how right."""
    timed = [m for m in report.measured if m.plan is not None and m.timed]
    rivals = {m.name: m for m in report.measured if m.plan is None}
    ours = _ours(searched, report, timed)
    own = [rivals[n] for n in _OWN_BASELINES if n in rivals and rivals[n].timed]
    result = _result(ours, own)
    eager = rivals.get("eager")
    found: Json = {
        "backend": ours.plan.backend if ours is not None and ours.plan is not None else None,
        "ours_us": _round(ours.time_us) if ours else None,
        **{f"{backend}_us": _best_of(backend, timed) for backend in BACKENDS},
        "result_us": _round(result.time_us) if result else None,
        "result": None if result is None else "ours" if result is ours else result.name,
        "peers_us": {n: _round(m.time_us) for n, m in rivals.items()},
        "peers": {n: _rival(m) for n, m in rivals.items()},
        "peers_wrong": [n for n, m in rivals.items() if m.timed and not _agrees(m)],
        "max_rel_error": ours.max_rel_error if ours else None,
        "error_bound": ours.bound if ours else None,
        "eager_rel_error": eager.max_rel_error if eager and eager.passed else None,
        "timed": len(timed),
        "kinds": best_of_kinds(timed),
    }
    if ours is not None and ours.plan is not None:
        found |= {
            "kind": describe(ours.plan.ugraph),
            "plan": described(ours.plan),
            "resources": resources(ours),
            "digest": digest(ours.plan),
            "spread_us": [_round(ours.p20_us), _round(ours.p80_us)],
            "climbed": ours.plan not in searched.plans,
        }
    return found


def _best_of(backend: str, timed: Sequence[Measured]) -> float | None:
    """The fastest time of a back end's plans."""
    times = [m.time_us for m in timed if m.plan is not None and m.plan.backend == backend]
    return _round(min(times)) if times else None


def _ours(searched: Searched, report: TuneReport, timed: Sequence[Measured]) -> Measured | None:
    """The fastest plan that is right on every input set.

    The winner is. Where a baseline won, the report does not say which plans were tried on all
    sets: the fastest are tried here.
    """
    if report.best.plan is not None:
        return report.best
    fastest = sorted(timed, key=lambda m: m.time_us)[:_TRIED]
    if not fastest:
        return None
    with NumericalCheck(searched.program, seed=0, device=0) as check:
        for measured in fastest:
            assert measured.plan is not None
            (evidence,) = check.remaining([measured.plan])
            if evidence.passed:
                return measured
    return None


def _result(ours: Measured | None, baselines: Sequence[Measured]) -> Measured | None:
    """What the tuner returns where it has these baselines alone."""
    baseline = min(baselines, key=lambda m: m.time_us, default=None)
    if ours is None or baseline is None:
        return ours or baseline
    return ours if ours.time_us < (1.0 - MARGIN) * baseline.time_us else baseline


def _rival(measured: Measured) -> Json:
    found: Json = {
        "us": _round(measured.time_us),
        "error": measured.max_rel_error if measured.timed else None,
        "agrees": _agrees(measured) if measured.timed else None,
    }
    for name, text in (("reason", str(measured.reason or "")), ("note", measured.note)):
        if text:
            found[name] = text.strip().splitlines()[0][:300]
    return found


def _agrees(measured: Measured) -> bool:
    return measured.max_rel_error <= max(measured.bound, _PEER_ERROR)


def _bounds(searched: Searched, setting: Setting) -> Json:
    bound = roofline(searched.program, setting.target)
    return {
        "floor_us": _round(bound.floor_us),
        "bound_by": bound.bound_by,
        "moved_bytes": bound.moved_bytes,
        "flops": bound.flops,
        "launch_us": _round(setting.launch_us),
    }


def _measurements(workload: Workload, searched: Searched, report: TuneReport) -> list[Json]:
    """A line for each plan, timed or not: what the cost model said, and what came out.

    ``n`` is its place among those searched; what was reached by climbing has none, and no
    prediction.
    """
    places = {c.plan: (n, c) for n, c in enumerate(searched.candidates)}
    lines = []
    for m in report.measured:
        if m.plan is None:
            continue
        number, candidate = places.get(m.plan, (None, None))
        lines.append(
            {
                "key": workload.key,
                "n": number,
                "digest": digest(m.plan),
                "kind": describe(m.plan.ugraph),
                "predicted_us": candidate.predicted_us if candidate else None,
                "kernels": list(candidate.kernels) if candidate else [],
                "us": _round(m.time_us),
                "p20_us": _round(m.p20_us),
                "p80_us": _round(m.p80_us),
                "passed": m.passed,
                "reason": str(m.reason or "").strip().split("\n", 1)[0][:300],
                "error": m.max_rel_error if math.isfinite(m.max_rel_error) else None,
                "resources": resources(m),
                "plan": to_json(m.plan),
            }
        )
    return lines


def _dropped(report: TuneReport) -> dict[str, int]:
    """Why candidates fell out, by the first words of the reason."""
    counts: dict[str, int] = {}
    for measured in report.measured:
        if measured.plan is not None and not measured.passed:
            reason = str(measured.reason or "").strip().split("\n", 1)[0][:80]
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def _rank_correlation(searched: Searched, report: TuneReport) -> float | None:
    """Spearman's, between predicted and measured times."""
    predicted = dict(zip(searched.plans, searched.predicted_us, strict=True))
    pairs = [
        (predicted[m.plan], m.time_us)
        for m in report.measured
        if m.plan is not None and m.plan in predicted and m.timed
    ]
    if len(pairs) < 3:
        return None
    ranks = [np.argsort(np.argsort([p[k] for p in pairs])) for k in (0, 1)]
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 2)


def _round(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def _forget_compiled() -> None:
    """Leave the GPU to the next row as this one found it."""
    import torch

    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
