"""Every candidate with its prediction, its time or the reason it fell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tried:
    """One plan. ``bytes`` go through memory, 0 where that is not recorded; ``fate`` is best,
    timed, ranked or fell, for the ``reason``.
    """

    kind: str
    tiles: str
    backend: str
    predicted_us: float | None
    measured_us: float | None
    bytes: int
    fate: str
    reason: str = ""

    @property
    def time_us(self) -> float | None:
        """The measured time, else the predicted one."""
        return self.predicted_us if self.measured_us is None else self.measured_us


def candidates(report: Json, *, has_plan: bool) -> tuple[Tried, ...]:
    """The best first, then by time, then those that fell."""
    ranked: dict[tuple[str, str, str], Json] = {}
    for row in report.get("record", {}).get("ranking", ()):
        ranked.setdefault((row["kind"], row["tiles"], row["backend"]), row)
    tried = list(_tried(report.get("candidates", ()), ranked))
    known = {(t.kind, t.tiles, t.backend) for t in tried}
    for key, row in ranked.items():
        if key not in known:
            tried.append(_of_ranking(row))
    fallen = [t for t in tried if t.fate == "fell"]
    others = sorted((t for t in tried if t.fate != "fell"), key=_order)
    if has_plan and others:
        best_us = (report.get("best") or {}).get("time_us")
        at = next((n for n, t in enumerate(others) if t.time_us == best_us), 0)
        best = others.pop(at)
        others.insert(0, _with_fate(best, "best"))
    return (*others, *fallen)


def _tried(rows: Sequence[Json], ranked: Mapping[tuple[str, str, str], Json]) -> Iterator[Tried]:
    for row in rows:
        of_model = ranked.get((row["kind"], row["tiles"], row["backend"]), {})
        measured = row["source"] == "measured"
        predicted = of_model.get("time_us") if measured else row["time_us"]
        yield Tried(
            kind=row["kind"] or row["name"],
            tiles=row["tiles"],
            backend=row["backend"],
            predicted_us=predicted,
            measured_us=row["time_us"] if measured else None,
            bytes=of_model.get("bytes", 0),
            fate=("timed" if measured else "ranked") if row["passed"] else "fell",
            reason=str(row.get("reason", "")).strip().partition("\n")[0],
        )


def _of_ranking(row: Json) -> Tried:
    return Tried(
        row["kind"], row["tiles"], row["backend"], row["time_us"], None, row["bytes"], "ranked"
    )


def _with_fate(tried: Tried, fate: str) -> Tried:
    return Tried(
        tried.kind, tried.tiles, tried.backend, tried.predicted_us, tried.measured_us, tried.bytes,
        fate, tried.reason,
    )  # fmt: skip


def _order(tried: Tried) -> tuple[bool, float]:
    """What was measured comes before what was not."""
    time_us = tried.time_us
    return tried.measured_us is None, float("inf") if time_us is None else time_us


def best_of_kinds(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """The first of each kind, as they come."""
    found: dict[str, Tried] = {}
    for one in tried:
        if one.fate != "fell":
            found.setdefault(one.kind, one)
    return tuple(found.values())


def why_not_one_kernel(tried: Sequence[Tried], kernels: int, families: Mapping[str, int]) -> str:
    """Why the best plan is not a single kernel, in a sentence."""
    if kernels == 1:
        return "It is one kernel."
    single = next((t for t in tried if t.kind.startswith("one kernel") and t.fate != "fell"), None)
    best = next((t for t in tried if t.fate == "best"), None)
    if single is not None and best is not None and single.time_us and best.time_us:
        said = "measured at" if single.measured_us is not None else "predicted to take"
        return (
            f"The best plan of one kernel is {said} {single.time_us:.2f} us, "
            f"{single.time_us / best.time_us:.2f} times as long."
        )
    count = families.get("one kernel", 0)
    if count:
        return f"{count} families of one kernel were found; none of their plans ranked among these."
    return "The search found no family of one kernel: the rules below say what stood in its way."
