"""Prediction of the cost model for an existing plan, wherever it comes from.

The search predicts while it chooses tiles; this module predicts plans whose tiles are set, such as
the measured ones from which the model's constants are fitted.
"""

from __future__ import annotations

from dataclasses import replace

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.search.model.cost_model import Estimate, KernelModel, estimate
from mirage_py.search.model.kernel_load import KernelLoad
from mirage_py.search.model.library_model import clearing_us, library_estimate
from mirage_py.search.model.model_constants import ModelConstants, constants_of
from mirage_py.search.rank.forms import form_of
from mirage_py.search.rank.instance import PlanEstimate
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import LibraryCall


class PlanModel:
    """One plan, measured out once; predicts it under any constants."""

    def __init__(self, plan: Plan, target: Target) -> None:
        self.target = target
        self._form = form_of(plan.ugraph, target, {})
        scope = self._form.ugraph.scope
        found: list[KernelLoad | LibraryCall] = []
        for kernel, options, cached in zip(
            self._form.ugraph.kernels, plan.options, self._form.in_cache, strict=True
        ):
            if isinstance(kernel, LibraryCall):
                found.append(kernel)
                continue
            tiled = TiledKernel(Tiling(scope, kernel), backend=plan.backend)
            found.append(KernelModel(tiled, target, cached).load(options))
        # What each kernel asks of the target.
        self.loads = tuple(found)

    def predicted(self, constants: ModelConstants | None = None) -> PlanEstimate:
        """The prediction; infinite where a kernel does not fit."""
        known = constants or constants_of(self.target)
        return PlanEstimate(tuple(self._kernel(n, known) for n in range(len(self.loads))))

    def _kernel(self, number: int, constants: ModelConstants) -> Estimate:
        load, ugraph = self.loads[number], self._form.ugraph
        cached = self._form.in_cache[number]
        if isinstance(load, LibraryCall):
            return library_estimate(load, ugraph, self.target, cached, constants)
        kernel = ugraph.kernels[number]
        assert not isinstance(kernel, LibraryCall)
        found = estimate(load, self.target, constants)
        added = (ugraph.tensors[t] for t in kernel.added_tensors)
        clearing = sum(clearing_us(t, self.target, cached) for t in added)
        return replace(found, time_us=found.time_us + clearing)
