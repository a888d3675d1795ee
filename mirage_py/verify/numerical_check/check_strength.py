"""Strength of a numerical check: how much it compared, input set by input set.

An element is significant where rounding may move it by less than its size, or than the mean size of
the elements of its row. A set in which less than half of the evaluated elements are significant is
weak. A plan that was compared on weak sets only, or on zeros only, was not checked; nor was one
with an output of which every set says little, whatever they say of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

from mirage_py.reasons import Code, Reason, read_reason, reason
from mirage_py.verify.numerical_check.float_case import FloatEvidence, SetFinding

# The results of zeros are zeros, of a wrong kernel too.
_ALWAYS_EQUAL = "zeros"
_ENOUGH = 0.5


def is_strong(found: SetFinding) -> bool:
    """Whether the results of a set say something about a kernel."""
    return found.name != _ALWAYS_EQUAL and found.telling >= max(1.0, _ENOUGH * found.evaluated)


def is_checked(sets: Iterable[SetFinding]) -> bool:
    """Whether any set says something, and of each output."""
    known = list(sets)
    return any(map(is_strong, known)) and not unknown_outputs(known)


def unknown_outputs(sets: Sequence[SetFinding]) -> list[str]:
    """The outputs of which no set says much."""
    said = [set(s.weak) for s in sets if s.name != _ALWAYS_EQUAL]
    return sorted(set.intersection(*said)) if said else []


def of_set(name: str, found: FloatEvidence) -> FloatEvidence:
    """The evidence of one set, which names it."""
    finding = SetFinding(
        name=name,
        elements=found.elements,
        evaluated=found.evaluated,
        telling=found.telling,
        vague=found.compared - found.telling,
        nonfinite=found.nonfinite,
        excess=found.excess,
        weak=found.weak,
    )
    fault = found.reason.at(f"{name} inputs") if found.reason else None
    return replace(found, reason=fault, sets=(finding,), outputs=())


def joined(parts: Sequence[FloatEvidence]) -> FloatEvidence:
    """The evidence of several sets as one: that of the first that did not pass, else the largest
    error on a strong set if there is one.
    """
    sets = tuple(s for part in parts for s in part.sets)
    failed = [p for p in parts if not p.passed]
    strong = [p for p in parts if any(map(is_strong, p.sets))] or list(parts)
    worst = failed[0] if failed else max(strong, key=lambda p: p.max_rel_error)
    spreads = [p.spread for p in parts if p.spread is not None]
    return replace(worst, sets=sets, spread=max(spreads, default=None))


def required(found: FloatEvidence) -> FloatEvidence:
    """The evidence of all sets; it has not passed where they were all weak."""
    if not found.passed or not found.sets or is_checked(found.sets):
        return found
    return replace(found, passed=False, reason=why_unchecked(found.sets))


def why_unchecked(sets: Sequence[SetFinding]) -> Reason:
    """What to say where all sets are weak."""
    best = max(sets, key=lambda s: s.telling / max(1, s.evaluated), default=None)
    if best is None:
        return reason(Code.UNCHECKED, "there was no set of inputs")
    if any(map(is_strong, sets)):
        names = ", ".join(unknown_outputs(sets))
        why = f"rounding may be more than most results in {names} on every set of inputs"
        return reason(Code.UNCHECKED, why)
    every = "rounding may be more than most results on every set of inputs"
    return reason(Code.UNCHECKED, f"{every}; at best {set_words(best)}")


def set_words(found: SetFinding) -> str:
    """How much of a set was compared, and why not the rest."""
    rest = found.evaluated - found.telling - found.vague - found.nonfinite
    why = [
        (found.vague, "that rounding may move by more than they are"),
        (found.nonfinite, "without a finite value in their type"),
        (rest, "at the end of their type's range"),
        (found.elements - found.evaluated, "not evaluated in float64"),
    ]
    others = "; ".join(f"{count} {words}" for count, words in why if count)
    told = f"{found.name}: {found.telling} of {found.elements} elements compared"
    return f"{told} ({others})" if others else told


def sets_text(sets: Sequence[SetFinding]) -> str:
    """How many sets say something, the one with the largest error, and which ones say nothing."""
    strong = [s for s in sets if is_strong(s)]
    weak = [s.name for s in sets if not is_strong(s) and s.name != _ALWAYS_EQUAL]
    text = f"{len(strong)} of {len(sets)}"
    if strong:
        worst = max(strong, key=lambda s: s.excess)
        text += f"; largest error {worst.excess:.2g} of what is allowed ({worst.name})"
    return text + (f"; weak: {', '.join(weak)}" if weak else "")


def plain(sets: Sequence[SetFinding]) -> tuple[dict[str, Any], ...]:
    """The JSON form of findings."""
    return tuple({**asdict(s), "weak": [*s.weak]} for s in sets)


def plain_evidence(found: FloatEvidence) -> dict[str, Any]:
    """Evidence as plain values, for ``evidence_of``; of all outputs together."""
    fault = found.reason.document() if found.reason else None
    return {**asdict(replace(found, reason=None, outputs=())), "reason": fault}


def evidence_of(held: Mapping[str, Any]) -> FloatEvidence:
    """What ``plain_evidence`` gave."""
    sets = tuple(SetFinding(**{**s, "weak": tuple(s.get("weak", ()))}) for s in held["sets"])
    fault = read_reason(held["reason"]) if held["reason"] else None
    weak = tuple(held.get("weak", ()))
    return FloatEvidence(**{**held, "sets": sets, "reason": fault, "weak": weak, "outputs": ()})


def failed(why: Reason) -> FloatEvidence:
    """The evidence of a plan that gave no results."""
    return FloatEvidence(inf, 0.0, None, False, why)
