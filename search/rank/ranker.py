"""A learned ranker: boosted trees that correct the roofline by what was measured.

The weights of a target lie beside this file as text, ``TARGET_ranker.json``, with the command that
made them; those that a machine has learned itself (``mirage-py calibrate``) come first. A GPU
without any is ranked by the roofline alone, which also explains every plan.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.plan_features import (
    LARGE_POINTWISE,
    ROOFLINE,
    Features,
    plan_features,
    with_others,
)
from mirage_py.search.rank.trial_order import in_turns, roofline_places
from mirage_py.targets import Target
from mirage_py.ugraph.ir.ugraph import BlockGraph

SCHEMA = 1
# A copy comes after plans that are predicted to take so much longer.
_AGAIN = 0.02


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree as arrays: inner nodes by number, ``~n`` for leaf n; at most the threshold is left."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]

    def of(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value of each row's leaf."""
        node = np.zeros(len(rows), dtype=np.int64)
        if not len(self.feature):
            return np.full(len(rows), self.value[0])
        while (inner := node >= 0).any():
            at = node[inner]
            left = rows[inner, self.feature[at]] <= self.threshold[at]
            node[inner] = np.where(left, self.left[at], self.right[at])
        return self.value[~node]


@dataclass(frozen=True, slots=True)
class Ranker:
    """Scores plans of one program, the lower the faster; a difference is one of log(time)."""

    names: tuple[str, ...]
    trees: tuple[Tree, ...]

    def scores(self, features: Sequence[Features]) -> NDArray[np.float64]:
        """A score for each plan beside the others."""
        rows = with_others(features, self.names)
        correction = sum((tree.of(rows) for tree in self.trees), np.zeros(len(rows)))
        return np.array([f[ROOFLINE] for f in features]) + correction

    @classmethod
    def read(cls, document: dict[str, Any]) -> Ranker:
        """From the document of a file of weights. Raises ValueError for another one."""
        if document.get("schema") != SCHEMA:
            raise ValueError("these are no weights of this version")
        trees = [
            Tree(
                np.array(tree["feature"], dtype=np.int64),
                np.array(tree["threshold"], dtype=np.float64),
                np.array(tree["left"], dtype=np.int64),
                np.array(tree["right"], dtype=np.int64),
                np.array(tree["value"], dtype=np.float64),
            )
            for tree in document["trees"]
        ]
        return cls(tuple(document["names"]), tuple(trees))


def ranked_by_measurements(
    instances: Sequence[Instance], target: Target, learned: Path | None = None
) -> list[Instance]:
    """The instances of one program, given in the roofline's order, in the order in which they are
    tried (``trial_order.py``): the fastest first as far as measurements teach, where there are some
    of the target; these also order what the roofline takes for equal. ``learned`` is a file of
    weights that comes before those of the package.

    Large pointwise programs are in the roofline's order alone: it knows of their accesses what no
    program that was learned from has.
    """
    if len(instances) < 2:
        return list(instances)
    scores = roofline = np.log(np.array([i.estimate.time_us for i in instances]))
    ranker = ranker_of(target.name, learned)
    if ranker is not None:
        features = [plan_features(i.plan, target) for i in instances]
        if all(f[LARGE_POINTWISE] for f in features):
            return _with_copies_later(instances)
        scores = ranker.scores(features)
        backends = [i.plan.backend for i in instances]
        roofline = roofline_places(instances, backends, scores, roofline)
    return [instances[n] for n in in_turns(instances, scores, roofline)]


def _with_copies_later(instances: Sequence[Instance]) -> list[Instance]:
    """By prediction, but of plans whose kernels differ in their formulas alone one is early: each
    takes long to be timed.
    """
    copies: dict[Hashable, int] = {}
    keys = []
    for instance in instances:
        plan = instance.plan
        grids = tuple(k.grid for k in plan.ugraph.kernels if isinstance(k, BlockGraph))
        same = plan.backend, grids, tuple(o.num_warps for o in plan.options)
        number = copies[same] = copies.get(same, -1) + 1
        keys.append((bool(instance.doubt), instance.estimate.time_us * (1 + _AGAIN * number)))
    return [instances[n] for n in sorted(range(len(instances)), key=keys.__getitem__)]


@lru_cache(maxsize=8)
def ranker_of(target: str, learned: Path | None = None) -> Ranker | None:
    """The ranker of a target; None where nothing was learned."""
    own = Path(__file__).with_name(f"{target}_ranker.json")
    for path in (learned, own):
        if path is not None and path.exists():
            return Ranker.read(json.loads(path.read_text(encoding="utf-8")))
    return None
