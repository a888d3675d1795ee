"""Joint evidence and search counters of several parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mirage_py.pipeline.selection.code_reports import CodeReports
from mirage_py.reasons import Code, reason
from mirage_py.result import Evidence, SearchSummary
from mirage_py.verify.numerical_check.check_strength import plain
from mirage_py.verify.numerical_check.float_case import SetFinding


def joint_evidence(parts: Sequence[Evidence]) -> Evidence:
    """That of all parts: as weak as the weakest. Probabilities of a mistake add up."""
    bounds = [e.error_bound for e in parts if e.error_bound is not None]
    reasons = dict.fromkeys(str(e.bound_reason) for e in parts)
    worst = max(parts, key=lambda e: e.max_rel_error / e.float_bound if e.float_bound else 0.0)
    return Evidence(
        trials=min(e.trials for e in parts),
        primes=parts[0].primes,
        error_bound=sum(bounds) if len(bounds) == len(parts) else None,
        bound_reason=reason(Code.PART_BY_PART, "; ".join(reasons)),
        proved=all(e.proved for e in parts),
        max_rel_error=worst.max_rel_error,
        float_bound=worst.float_bound,
        float_source=worst.float_source,
        samples=sum(e.samples for e in parts),
        float_sets=_joint_sets(parts),
        code=CodeReports(lambda: (kernel for e in parts for kernel in e.code)),
    )


def _joint_sets(parts: Sequence[Evidence]) -> tuple[Mapping[str, Any], ...]:
    """Counts of all parts together, by the name of the set."""
    found: dict[str, SetFinding] = {}
    for one in (SetFinding(**s) for e in parts for s in e.float_sets):
        known = found.get(one.name)
        found[one.name] = one if known is None else known.with_more(one)
    return plain(list(found.values()))


def joint_summary(
    parts: Sequence[tuple[str, SearchSummary]], floor_us: float, best_us: float
) -> SearchSummary:
    """The searches of all parts in numbers; words say of which part they are."""
    found = [summary for _, summary in parts]
    pruned: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for summary in found:
        pruned.update(summary.pruned)
        kinds.update(summary.kinds)
    return SearchSummary(
        seconds=sum(s.seconds for s in found),
        candidates=sum(s.candidates for s in found),
        valid=sum(s.valid for s in found),
        exhausted=bool(found) and all(s.exhausted for s in found),
        pruned=dict(sorted(pruned.items())),
        gap=best_us / floor_us - 1.0,
        lower_bound_us=floor_us,
        examples={rule: text for s in reversed(found) for rule, text in s.examples.items()},
        reasons=tuple(f"{name}: {reason}" for name, s in parts for reason in s.reasons),
        # All parts are searched with the same bounds.
        limits=next((s.limits for _, s in parts if s.limits), {}),
        rings=tuple(f"{name}, {ring}" for name, s in parts for ring in s.rings),
        evaluations=sum(s.evaluations for s in found),
        merged=sum(s.merged for s in found),
        tensors=sum(s.tensors for s in found),
        configurations=sum(s.configurations for s in found),
        hits=sum(s.hits for s in found),
        kinds=dict(sorted(kinds.items())),
        unsafe=sum(s.unsafe for s in found),
        tested=sum(s.tested for s in found),
        ranked=sum(s.ranked for s in found),
        codes={
            **{rule: code for s in found for rule, code in s.codes.items()},
            **{f"{name}: {r}": s.codes[r] for name, s in parts for r in s.reasons if r in s.codes},
        },
    )
