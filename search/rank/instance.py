"""An instance: a plan of a family, with the prediction of the cost model."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from mirage_py.search.model.cost_model import Estimate
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import UGraph


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """What the model says of each kernel; the time of a plan is their sum."""

    kernels: tuple[Estimate, ...]

    @property
    def time_us(self) -> float:
        """Microseconds of the whole plan, each kernel with its launch."""
        return sum(k.time_us for k in self.kernels)

    @property
    def bound(self) -> str:
        """What limits the kernel that takes longest."""
        return max(self.kernels, key=lambda k: k.time_us).bound


@dataclass(frozen=True, slots=True)
class Instance:
    """``family`` is as it was given; the plan may have another number of splits.

    ``kind`` and ``name`` say what kind of µGraph the plan is (see search.tilings.kinds). ``tiling``
    is equal for plans that differ in launch options only, ``leading`` for those that also differ in
    kernels other than the one that takes longest, ``leading_grid`` for those whose loops differ
    too. ``doubt`` says why the numerical check will likely refuse the plan, empty if nothing is
    known.
    """

    family: UGraph
    plan: Plan
    estimate: PlanEstimate
    kind: str
    name: str
    tiling: Hashable
    leading: Hashable
    leading_grid: tuple[Hashable, ...]
    doubt: str = ""

    @property
    def grid(self) -> Hashable:
        """Which kernel takes longest and the tiles of its grid, whatever the formula."""
        return self.leading_grid[1:]

    @property
    def sort(self) -> Hashable:
        """What has a quota of the plans: the kind, and how matmuls of float32 are computed, as one
        way may be less exact than an input set allows.
        """
        return self.kind, tuple(
            dict.fromkeys(o.precision for o in self.plan.options if o.precision)
        )
