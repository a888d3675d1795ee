"""A replay of first timings without a GPU: how much is lost by the order in which plans are timed.

    python -m benchmarks.search.replay -o OUT.json.gz [--only NAMES]   # 3 to 15 CPU s each
    python -m benchmarks.search.replay --show RESULT                   # the tables again

Each workload with committed measurements is ranked as effort quick does without a clock. A plan has
the least committed time of plans of its back end with the same tiles, warps and stages; launch
options are what hill climbing adds. A plan without one is timed in vain, which is the worst it can
be. The learned scores are those of the fold that has not seen the workload, so all figures are of
workloads that the ranker has not seen. The loss is against the fastest of the list that was
measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration.calibrate import read
from benchmarks.calibration.learn import RUNS, committed, fold_of
from benchmarks.report.provenance import commit
from benchmarks.search.first_plans import ranked_plans, shape_of
from benchmarks.workloads.workloads import suites
from mirage_py.search.rank.plan_features import ROOFLINE, plan_features
from mirage_py.search.rank.ranker import Ranker
from mirage_py.search.rank.trial_order import in_turns, roofline_places
from mirage_py.targets import H200

Json = dict[str, Any]
Order = Callable[[Sequence["Plan"]], list[int]]

TIMED = (5, 8, 10, 13, 16, 24, 40)
_LOST = 0.05
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of the list: ``name`` is its structure, ``score`` and ``roofline`` are logarithms of
    predicted microseconds, ``us`` is 0 where nothing was measured, ``grid`` numbers the grids of
    the kernel that takes longest.
    """

    name: str
    backend: str
    doubt: str
    roofline: float
    score: float
    us: float
    grid: int = 0


def by_both(plans: Sequence[Plan]) -> list[int]:
    """The order up to 2026-11-23: learned and roofline in turns."""
    orders = (np.argsort([value(p) for p in plans], kind="stable") for value in (_score, _roofline))
    turns = dict.fromkeys(int(n) for turn in zip(*orders, strict=True) for n in turn)
    return sorted(turns, key=lambda n: bool(plans[n].doubt))


def by_score(plans: Sequence[Plan]) -> list[int]:
    """The learned order alone."""
    order = map(int, np.argsort([_score(p) for p in plans], kind="stable"))
    return sorted(order, key=lambda n: bool(plans[n].doubt))


def by_roofline(plans: Sequence[Plan]) -> list[int]:
    """The roofline's order alone."""
    order = map(int, np.argsort([_roofline(p) for p in plans], kind="stable"))
    return sorted(order, key=lambda n: bool(plans[n].doubt))


def by_structure(plans: Sequence[Plan]) -> list[int]:
    """The order of effort quick: learned, structures and roofline in turns."""
    scores, roofline = [_score(p) for p in plans], [_roofline(p) for p in plans]
    places = roofline_places(plans, [p.backend for p in plans], scores, roofline)
    return in_turns(plans, scores, places)


def by_roofline_and_structure(plans: Sequence[Plan]) -> list[int]:
    """That of a GPU of which nothing was learned."""
    scores = [_roofline(p) for p in plans]
    return in_turns(plans, scores, scores)


ORDERS: Mapping[str, Order] = {
    "learned, roofline (before)": by_both,
    "learned alone": by_score,
    "learned, structures, roofline": by_structure,
    "roofline alone": by_roofline,
    "roofline, structures": by_roofline_and_structure,
}


def losses(
    plans: Sequence[Plan], order: Sequence[int], timed: Sequence[int] = TIMED
) -> list[float]:
    """By how much of its time the fastest of the first plans is slower than the fastest of all;
    infinite where none of them was measured.
    """
    best = min(p.us for p in plans if p.us)
    return [min((plans[n].us or inf) for n in order[:most]) / best - 1.0 for most in timed]


def plans_of(name: str) -> list[Plan]:
    """The list of a workload with what is known of it."""
    known: dict[tuple[str, str], float] = {}
    for one in (m for path in RUNS for m in read(path, [name])):
        key = one.plan.backend, shape_of(one.plan)
        known[key] = min(known.get(key, inf), one.us)
    instances = ranked_plans(name, inf)
    features = [plan_features(i.plan, H200) for i in instances]
    scores = _fold(name).scores(features)
    grids = {g: n for n, g in enumerate(dict.fromkeys(i.grid for i in instances))}
    return [
        Plan(
            i.name, i.plan.backend, i.doubt, round(f[ROOFLINE], _DIGITS),
            round(float(score), _DIGITS), known.get((i.plan.backend, shape_of(i.plan)), 0.0),
            grids[i.grid],
        )
        for i, f, score in zip(instances, features, scores, strict=True)
    ]  # fmt: skip


@cache
def _folds() -> Json:
    return committed()


def workloads() -> list[str]:
    """Those with committed measurements, the paper's cells first."""
    measured = {name.split()[0] for name in _folds()["scores"]}
    paper = [w.key for w in suites()["paper"]]
    return [*(n for n in paper if n in measured), *sorted(measured.difference(paper))]


def _fold(name: str) -> Ranker:
    keys = sorted({key.split()[0] for key in _folds()["scores"]})
    return Ranker.read(_folds()["folds"][fold_of(name, keys)])


def table(lists: Mapping[str, Sequence[Plan]]) -> list[str]:
    """Lines: for each order mean, worst, and number of workloads that lose more than 5 %."""
    lines = [f"{len(lists)} workloads; of the plans timed {TIMED}"]
    for title, order in ORDERS.items():
        lost = np.array([losses(plans, order(plans)) for plans in lists.values()])
        finite = np.where(np.isfinite(lost), lost, np.nan)
        mean = " ".join(f"{100 * x:5.1f}" for x in np.nanmean(finite, axis=0))
        worst = " ".join(f"{100 * x:4.0f}" for x in lost.max(axis=0))
        many = " ".join(f"{n:2d}" for n in (lost > _LOST).sum(axis=0))
        lines.append(f"{title:30s} mean, % {mean} | worst, % {worst} | over 5 %: {many}")
    return lines


def _score(plan: Plan) -> float:
    return plan.score


def _roofline(plan: Plan) -> float:
    return plan.roofline


def read_lists(path: Path) -> dict[str, list[Plan]]:
    """The lists of a result file."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    names = document["fields"]
    return {
        key: [Plan(**dict(zip(names, plan, strict=True))) for plan in plans]
        for key, plans in document["lists"].items()
    }


def show(lists: Mapping[str, Sequence[Plan]]) -> None:
    """Print the tables."""
    paper = {w.key for w in suites()["paper"]}
    told = {k: p for k, p in lists.items() if any(x.us for x in p)}
    for title, names in (("the paper's", paper), ("others", told.keys() - paper)):
        chosen = {k: p for k, p in told.items() if k in names}
        if chosen:
            print(f"\n{title}: " + "\n".join(table(chosen)))
    for name in (n for n in told if n in paper):
        first, last = (losses(told[name], ORDERS[o](told[name])) for o in list(ORDERS)[:3:2])
        words = (" ".join(f"{100 * x:5.1f}" for x in row) for row in (first, last))
        print(f"{name:16s} before {next(words)}   now {next(words)}")


def main() -> None:
    """Write after each workload, or show what was written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, help="result file")
    parser.add_argument("--show", type=Path, help="a result file whose table is printed")
    parser.add_argument("--only", default="", help="names or their beginnings, by comma")
    chosen = parser.parse_args()
    if chosen.show:
        show(read_lists(chosen.show))
        return
    asked = tuple(name for name in chosen.only.split(",") if name)
    lists: dict[str, list[Plan]] = {}
    for name in (n for n in workloads() if not asked or n.startswith(asked)):
        lists[name] = plans_of(name)
        if chosen.out:
            write(lists, chosen.out)
    show(lists)


def write(lists: Mapping[str, Sequence[Plan]], path: Path, made_by: str = "") -> None:
    """Write a result file, packed if its name ends in ``.gz``."""
    document = {
        "commit": made_by or commit(),
        "command": "python -m benchmarks.search.replay -o OUT",
        "fields": list(Plan.__dataclass_fields__),
        "lists": {key: [list(asdict(p).values()) for p in plans] for key, plans in lists.items()},
    }
    data = json.dumps(document, separators=(",", ":")).encode("utf-8")
    # No time of writing inside: the same lists are the same file.
    path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)


if __name__ == "__main__":
    main()
