"""The learned ranker: trained on measured plans, judged on workloads that it has not seen.

    python -m benchmarks.calibration.learn            # the committed figures, recomputed
    python -m benchmarks.calibration.learn --train    # train, judge, write weights and scores

Training takes LightGBM (the extra ``bench``) and two minutes. Workloads are split into five folds:
the ranker of a fold has seen none of its workloads, in neither of the two runs. Its weights and the
scores of all plans are committed (``h200-ranker-folds.json.gz``), so that figures can be recomputed
without training; the package carries the ranker that has seen everything. ``by family`` holds out
whole kinds of programs, as all norms before matmuls of whatever model.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.calibrate import MEASUREMENTS, Measured, Ranking, ranking, read, report
from mirage_py.search.rank.plan_features import ROOFLINE, Features, all_names, plan_features
from mirage_py.search.rank.plan_features import with_others as rows_of
from mirage_py.search.rank.ranker import SCHEMA, Ranker
from mirage_py.targets import H200, Target

RUNS = (MEASUREMENTS, MEASUREMENTS.with_name("h200-measurements-held-out.jsonl.gz"))
FOLDS = MEASUREMENTS.with_name("h200-ranker-folds.json.gz")
WEIGHTS = Path(__file__).parents[2] / "search/rank/h200_ranker.json"
COMMAND = "python -m benchmarks.calibration.learn --train"
_FOLDS, _TREES, _DIGITS = 5, 120, 5
_SETTINGS = {
    "objective": "huber", "alpha": 0.15, "learning_rate": 0.1, "num_leaves": 12,
    "min_data_in_leaf": 40, "feature_fraction": 0.5, "bagging_fraction": 0.7, "bagging_freq": 1,
    "lambda_l2": 5.0, "max_bin": 63, "seed": 1, "num_threads": 1, "verbose": -1,
    "use_missing": False, "deterministic": True,
}  # fmt: skip
# The kinds of programs: the parts of models by what they are.
_PARTS = {
    "qkv": "norm", "down": "linear", "out": "linear", "mlp": "gated mlp", "token": "attention",
    "window": "attention", "prompt": "prefill",
}  # fmt: skip
_KINDS = {
    "rmsnorm": "norm", "rmsnorm_prefill": "norm", "qkv_prefill": "norm", "layernorm_linear": "norm",
    "gatedmlp": "gated mlp", "gatedmlp_prefill": "gated mlp", "lora": "lora", "lora4k": "lora",
    "gqa": "attention", "qknorm": "attention", "decode": "attention", "causal": "prefill",
}  # fmt: skip

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Group:
    """The plans of one workload in one run: what is ranked together."""

    key: str
    run: int
    us: Rows
    features: tuple[Features, ...]

    @property
    def predicted(self) -> Rows:
        """Logarithms of the roofline's microseconds."""
        return np.array([f[ROOFLINE] for f in self.features])


def groups_of(runs: Sequence[Sequence[Measured]], target: Target = H200) -> list[Group]:
    """Measured plans by workload and run."""
    found = []
    for number, run in enumerate(runs):
        by_key: dict[str, list[Measured]] = {}
        for measured in run:
            by_key.setdefault(measured.key, []).append(measured)
        for key, plans in sorted(by_key.items()):
            features = tuple(plan_features(m.plan, target) for m in plans)
            found.append(Group(key, number, np.array([m.us for m in plans]), features))
    return found


def fold_of(key: str, keys: Sequence[str]) -> int:
    """The fold of a workload: the same in every run, batches of one program in several."""
    return sorted(keys).index(key) % _FOLDS


def family_of(key: str) -> str:
    """The kind of program that a workload is."""
    name = key.rsplit("-", 1)[0]
    part = re.fullmatch(r"(?:llama8b|llama70b|qwen8b|gemma12b)_(\w+)", name)
    return _PARTS[part[1]] if part else _KINDS.get(name, name)


def train(groups: Sequence[Group]) -> dict[str, Any]:
    """The document of a ranker: how much slower than the roofline says a plan is, beside others."""
    import lightgbm

    names = all_names([f for g in groups for f in g.features])
    rows = np.vstack([rows_of(g.features, names) for g in groups])
    errors = [np.log(g.us) - g.predicted for g in groups]
    wanted = np.concatenate([e - np.median(e) for e in errors])
    # Workloads count alike, and fast plans more than slow ones.
    weights = np.concatenate([g.us.min() / g.us / len(g.us) for g in groups])
    data = lightgbm.Dataset(rows, wanted, weight=weights / weights.mean())
    dumped = lightgbm.train(_SETTINGS, data, _TREES).dump_model()["tree_info"]
    trees = [_arrays(tree["tree_structure"]) for tree in dumped]
    used = sorted({n for tree in trees for n in tree["feature"]})
    place = {n: i for i, n in enumerate(used)}
    for tree in trees:
        tree["feature"] = [place[n] for n in tree["feature"]]
    return {"schema": SCHEMA, "names": [names[n] for n in used], "trees": trees}


def _arrays(root: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A tree of LightGBM as the arrays of ``ranker.Tree``."""
    tree: dict[str, list[Any]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value")
    }

    def add(node: Mapping[str, Any]) -> int:
        if "leaf_value" in node:
            tree["value"].append(round(node["leaf_value"], _DIGITS))
            return ~(len(tree["value"]) - 1)
        number = len(tree["feature"])
        tree["feature"].append(int(node["split_feature"]))
        tree["threshold"].append(float(f"{node['threshold']:.6g}"))
        tree["left"].append(0)
        tree["right"].append(0)
        tree["left"][number] = add(node["left_child"])
        tree["right"][number] = add(node["right_child"])
        return number

    add(root)
    return tree


def judged(groups: Sequence[Group], scores: Sequence[Rows]) -> list[Ranking]:
    """How well scores order each group."""
    return [
        ranking(f"{g.key} ({g.run + 1})", list(np.exp(s)), list(g.us))
        for g, s in zip(groups, scores, strict=True)
    ]


def held_out_scores(
    groups: Sequence[Group], part_of: Mapping[str, Any], rankers: Mapping[Any, Ranker]
) -> list[Rows]:
    """Each group's scores by the ranker that has not seen its part."""
    return [rankers[part_of[g.key]].scores(g.features) for g in groups]


def winner_flips(runs: Sequence[Mapping[str, float]], least: int = 20) -> list[float]:
    """Of workloads with so many plans in both runs, by how much of its time the fastest plan of one
    run was slower than the fastest in the other. Names of plans begin with the workload's.
    """
    common: dict[str, list[tuple[float, float]]] = {}
    for name, us in runs[0].items():
        if name in runs[1]:
            common.setdefault(_key(name), []).append((us, runs[1][name]))
    found = []
    for _, pairs in sorted(common.items()):
        if len(pairs) >= least:
            both = np.array(pairs)
            for one, other in ((0, 1), (1, 0)):
                found.append(float(both[both[:, one].argmin(), other] / both[:, other].min()) - 1.0)
    return found


def _key(line: str) -> str:
    return line[8 : line.index('"', 8)]


def committed_lines(path: Path) -> dict[str, float]:
    """The times of a measurements file by the text of key and plan, which need not be read."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        parts = (line.rpartition(',"us":') for line in file)
        return {plan: float(us.rstrip("}\n")) for plan, _, us in parts}


def committed() -> dict[str, Any]:
    """The folds: weights, and by ``KEY RUN`` the scores of plans in the order of the files."""
    found: dict[str, Any] = json.loads(gzip.decompress(FOLDS.read_bytes()))
    return found


def committed_times() -> Iterator[tuple[str, list[float]]]:
    """By ``KEY RUN`` the measured times, in the order of the files."""
    for number, path in enumerate(RUNS):
        times: dict[str, list[float]] = {}
        for line, us in committed_lines(path).items():
            times.setdefault(_key(line), []).append(us)
        yield from ((f"{key} {number}", us) for key, us in sorted(times.items()))


def committed_rankings() -> list[Ranking]:
    """The figures of held-out workloads from the committed scores and times."""
    scores = committed()["scores"]
    return [ranking(name, list(np.exp(scores[name])), us) for name, us in committed_times()]


def held_out_rankings(groups: Sequence[Group]) -> list[Ranking]:
    """How well rankers order workloads that they have not seen, trained for that."""
    keys = sorted({g.key for g in groups})
    part_of = {k: fold_of(k, keys) for k in keys}
    return judged(groups, held_out_scores(groups, part_of, _trained(groups, part_of)[1]))


def _trained(
    groups: Sequence[Group], part_of: Mapping[str, Any]
) -> tuple[dict[Any, dict[str, Any]], dict[Any, Ranker]]:
    """The document and ranker of each part, of all but that part."""
    made = {
        part: train([g for g in groups if part_of[g.key] != part])
        for part in sorted(set(part_of.values()))
    }
    return made, {part: Ranker.read(document) for part, document in made.items()}


def _train_all() -> None:
    runs = [read(path) for path in RUNS]
    groups = groups_of(runs)
    keys = sorted({g.key for g in groups})
    print(f"the roofline:\n{report(judged(groups, [g.predicted for g in groups]))}\n")
    parts: dict[str, dict[str, Any]] = {
        "workload": {k: fold_of(k, keys) for k in keys},
        "family": {k: family_of(k) for k in keys},
    }
    documents: dict[str, Any] = {}
    for by, part_of in parts.items():
        made, rankers = _trained(groups, part_of)
        scores = held_out_scores(groups, part_of, rankers)
        print(f"held out by {by}:\n{report(judged(groups, scores))}\n")
        if by == "workload":
            documents = {
                "command": COMMAND,
                "folds": [made[n] for n in range(_FOLDS)],
                "scores": {
                    f"{g.key} {g.run}": [round(float(x), _DIGITS) for x in s]
                    for g, s in zip(groups, scores, strict=True)
                },
            }
    text = json.dumps(documents, separators=(",", ":"), sort_keys=True)
    FOLDS.write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))
    write_weights(train(groups), WEIGHTS, COMMAND)


def write_weights(document: Mapping[str, Any], path: Path, command: str) -> None:
    """A file that a person can read: a line for each tree."""
    trees = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in document["trees"])
    names = json.dumps(document["names"], indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'{{"schema": {SCHEMA},\n"command": {json.dumps(command)},\n"names": {names},\n'
        f'"trees": [\n{trees}\n]}}\n',
        encoding="utf-8",
    )


def main() -> None:
    """Recompute the committed figures, or train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", action="store_true")
    if parser.parse_args().train:
        _train_all()
        return
    print(report(committed_rankings()))
    flips = winner_flips([committed_lines(path) for path in RUNS])
    for beyond in (0.0, 0.01, 0.02, 0.05, 0.1):
        share = sum(loss > beyond for loss in flips) / len(flips)
        print(f"fastest of one run more than {beyond:.0%} slower in the other: {share:.0%}")


if __name__ == "__main__":
    main()
