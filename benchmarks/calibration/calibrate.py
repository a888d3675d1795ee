"""The calibration of the cost model: constants fitted to measured plans, and how well it ranks
them.

    python -m benchmarks.calibration.calibrate          # report, with the constants as they are
    python -m benchmarks.calibration.calibrate --fit    # fit, report before and after, print them
    python -m benchmarks.calibration.calibrate --gather RECORD.jsonl.gz ...   # take in a suite's

Of a fit each third workload is held out: its plans have no part in it. Only plans are there that
some version of the model ranked high enough to be measured, so figures say how well it orders
those, not what it never offered.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.calibration.fit import Values, minimise
from mirage_py.search.model.model_constants import ModelConstants, constants_of
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.json_form import from_json

MEASUREMENTS = Path(__file__).parents[1] / "results" / "h200-measurements.jsonl.gz"
TOP = (1, 5, 10, 40)
_HELD_OUT = 3
_ROUNDS = 9
# Within a workload an error of the logarithm beyond this counts linearly: a plan that spills or
# whose pipeline the compiler gave up is not worth bending the model for.
_ROBUST = 0.15
# Errors that all plans of a workload share do not change its ranking.
_SHARED_WEIGHT = 0.15

BOUNDS = {
    "sync_us": (0.01, 0.5),
    "step_us": (0.0, 0.2),
    "single_issue": (0.1, 1.0),
    "joint_issue": (0.3, 1.0),
    "overlap": (0.0, 0.3),
    "power": (1.5, 8.0),
    "stall": (0.2, 4.0),
    "plain_mma": (0.1, 1.0),
    "cache": (0.8, 2.5),
    "latency": (0.45, 1.5),
    "dram": (0.9, 1.1),
    "ramp": (0.0, 4.0),
    "restart_us": (0.0, 2.0),
    "operand_bytes_per_us": (0.5e5, 4.0e5),
    "reduced_ops": (0.0, 12.0),
    "transfer": (0.0, 1.2),
    "library_memory": (0.6, 1.0),
    "library_tensor": (0.6, 1.0),
    "library_us": (0.0, 4.0),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan of a workload and its time."""

    key: str
    us: float
    plan: Plan


@dataclass(frozen=True, slots=True)
class Ranking:
    """How the model orders one workload's plans.

    ``correlation`` is Spearman's; ``regret`` says how much slower than the best of all the best
    among the model's first 1, 5, 10 and 40 is; ``error`` is the median of
    \\|log(predicted / time)\\|.
    """

    key: str
    plans: int
    best_us: float
    correlation: float
    regret: tuple[float, ...]
    error: float


def read(path: Path, keys: Sequence[str] = ()) -> list[Measured]:
    """The plans of a measurements file that have a time; of these workloads, if any are named."""
    found = []
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        for text in file:
            # Most of the time goes into plans that nobody asked for.
            if keys and not any(f'"{key}"' in text for key in keys):
                continue
            line = json.loads(text)
            if line["us"] is None or not line.get("passed", True):
                continue
            if keys and line["key"] not in keys:
                continue
            plan = from_json(line["plan"])
            assert isinstance(plan, Plan)
            found.append(Measured(line["key"], float(line["us"]), plan))
    return found


def gather(records: Iterable[Path], out: Path) -> int:
    """Add the timed plans of suites' records to a measurements file: key, time and plan.

    Plans that were there before get the newer time. Returns how many there are then.
    """
    lines: dict[str, str] = {}
    for path in (*([out] if out.exists() else []), *records):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in map(json.loads, file):
                if line["us"] is None or not line.get("passed", True):
                    continue
                plan = json.dumps(line["plan"], separators=(",", ":"), sort_keys=True)
                kept = {"key": line["key"], "us": round(line["us"], 3), "plan": line["plan"]}
                lines[line["key"] + plan] = json.dumps(kept, separators=(",", ":"), sort_keys=True)
    text = "".join(f"{line}\n" for line in lines.values())
    # No time of writing inside: the same measurements are the same file.
    out.write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))
    return len(lines)


def ranking(key: str, predicted: Sequence[float], us: Sequence[float]) -> Ranking:
    """How well predictions order measured times."""
    order = np.argsort(predicted, kind="stable")
    times = np.asarray(us)
    best = float(times.min())
    ratios = np.abs(np.log(np.asarray(predicted) / times))
    return Ranking(
        key,
        len(us),
        best,
        _correlation(predicted, us),
        tuple(float(times[order[:k]].min()) / best for k in TOP),
        float(np.median(ratios)),
    )


def loss_of(
    models: Mapping[str, Sequence[tuple[Callable[[ModelConstants], float], float]]],
    base: ModelConstants,
) -> Callable[[Values], float]:
    """The loss of constants, over workloads alike: robust errors of the logarithm around their
    median, of fast plans more than of slow ones.
    """
    times = {key: np.log([us for _, us in plans]) for key, plans in models.items()}
    weights = {key: np.exp(2 * (logs.min() - logs)) for key, logs in times.items()}

    def loss(values: Values) -> float:
        constants = dataclasses.replace(base, **values)
        total = 0.0
        for key, plans in models.items():
            error = np.log([predict(constants) for predict, _ in plans]) - times[key]
            shared = float(np.median(error))
            apart = np.abs(error - shared)
            robust = np.where(apart < _ROBUST, apart**2 / (2 * _ROBUST), apart - _ROBUST / 2)
            total += float((robust * weights[key]).sum() / weights[key].sum())
            total += _SHARED_WEIGHT * abs(shared)
        return total / len(models)

    return loss


def fitted(
    models: Mapping[str, Sequence[tuple[Callable[[ModelConstants], float], float]]],
    start: ModelConstants,
) -> ModelConstants:
    """Constants that fit these plans better, within bounds that make sense."""
    values = {name: float(getattr(start, name)) for name in BOUNDS}
    return dataclasses.replace(
        start, **minimise(loss_of(models, start), values, BOUNDS, rounds=_ROUNDS)
    )


def held_out(keys: Iterable[str]) -> tuple[str, ...]:
    """The workloads that have no part in the fit."""
    return tuple(sorted(keys)[1::_HELD_OUT])


def report(rankings: Sequence[Ranking]) -> str:
    """A table with a row for each workload, and the means."""
    lines = [f"{'workload':24s} plans  best us  rank  first 1   5     10    40   error"]
    for r in rankings:
        regrets = "  ".join(f"{x:.2f}" for x in r.regret)
        lines.append(
            f"{r.key:24s} {r.plans:5d} {r.best_us:8.2f} {r.correlation:5.2f}   {regrets}   "
            f"{r.error:.2f}"
        )
    if rankings:
        regrets = "  ".join(
            f"{np.mean([r.regret[k] for r in rankings]):.3f}" for k in range(len(TOP))
        )
        rank = np.mean([r.correlation for r in rankings])
        lines.append(f"{'mean':24s} {'':14s} {rank:5.2f}   {regrets}")
    return "\n".join(lines)


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) < 3:
        return math.nan
    ranks = [np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def main() -> None:
    """Report, fit or gather."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=MEASUREMENTS)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--all", action="store_true", help="fit: hold nothing out")
    parser.add_argument("--gather", type=Path, nargs="+", default=[])
    chosen = parser.parse_args()
    if chosen.gather:
        print(f"{gather(chosen.gather, chosen.file)} plans in {chosen.file}")
        return
    target = target_named(chosen.target)
    models: dict[str, list[tuple[Callable[[ModelConstants], float], float]]] = {}
    for measured in read(chosen.file):
        model = PlanModel(measured.plan, target)

        def predict(constants: ModelConstants, model: PlanModel = model) -> float:
            return model.predicted(constants).time_us

        models.setdefault(measured.key, []).append((predict, measured.us))

    def rankings(constants: ModelConstants, keys: Iterable[str]) -> list[Ranking]:
        return [
            ranking(key, [p(constants) for p, _ in models[key]], [us for _, us in models[key]])
            for key in keys
        ]

    constants = constants_of(target)
    if not chosen.fit:
        print(report(rankings(constants, sorted(models))))
        return
    apart = () if chosen.all else held_out(models)
    fitting = [key for key in sorted(models) if key not in apart]
    found = fitted({k: models[k] for k in fitting}, constants)
    # The constants that the fit starts from may know all workloads.
    for title, known in (("as they are", constants), ("fitted", found)):
        print(f"constants {title}, workloads of the fit:\n{report(rankings(known, fitting))}\n")
        print(f"constants {title}, other workloads:\n{report(rankings(known, apart))}\n")
    for name in BOUNDS:
        print(f"    {name}={getattr(found, name):.4g},")


if __name__ == "__main__":
    main()
