"""The search of a program and of its rewrites, up to families that are safe in float32."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mirage_py.pipeline.pools.search_pool import SearchPool
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.selection.time_budget import TimeBudget
from mirage_py.pipeline.trace import stages
from mirage_py.runtime.cpu.type_screen import TypeScreen
from mirage_py.runtime.process.executor import Executor
from mirage_py.search.enumerate.search import Family, SearchLimits, SearchResult, search
from mirage_py.search.rank.forms import sort_of
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.shortlist import Terms, best_families, likely_families
from mirage_py.search.rewrites.long_reductions import reduced_products
from mirage_py.search.rewrites.parallel_variance import cuts_into_parts
from mirage_py.search.rewrites.product_chains import (
    TWO_KERNELS_HOLD,
    chain_cuts,
    chained_products,
)
from mirage_py.search.rewrites.product_variance import has_long_products
from mirage_py.search.rewrites.rewrites import with_rewrites
from mirage_py.search.stabilize.safe import SafetyScreen
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph

# Seconds that a search takes before it is spread over processes, which start in about as long.
_ALONE_S = 3.0


class Searching:
    """The search of a program and of its rewrites, whose families a ``screen`` has made safe: what
    overflows or loses digits where the program does not is left out.
    """

    def __init__(
        self,
        normal: Program,
        request: Request,
        limits: SearchLimits,
        time_budget: TimeBudget,
        executor: Executor,
        ranker: KernelRanker,
    ) -> None:
        self._normal = normal
        self._request = request
        self._limits = limits
        self._time_budget = time_budget
        self._ranker = ranker
        self._searched_by = time_budget.searched_by()
        self._pool = SearchPool(executor, executor.places - executor.is_here, patience_s=_ALONE_S)
        self._ranked_by = time_budget.ranked_by()
        self.screen = SafetyScreen(self._late, self._over)

    def families(
        self, traced: Callable[..., None]
    ) -> tuple[SearchResult, list[UGraph], list[UGraph]]:
        """What was found, its safe families, and those of rewrites."""
        most = self._limits.max_kernels
        # Two kernels for a long chain of matmuls are many, and slow: it is searched in pieces
        # first. So is one whose matmuls have long reductions, of which no two kernels are fast.
        is_long = chained_products(self._normal) > TWO_KERNELS_HOLD
        is_long |= bool(reduced_products(self._normal))
        has_parts = has_long_products(self._normal)
        # Of long rows that are read once the rewrites are the fastest; all else may take any time.
        is_first = is_long or has_parts or bool(chain_cuts(self._normal))
        is_first |= bool(cuts_into_parts(self._normal, self._ranker.target))
        others = self._rewritten() if is_first else []
        if is_first and not others:
            # That was in vain: the whole has the time of a search of its own.
            self._searched_by = self._time_budget.searched_by()
            self._ranked_by = self._time_budget.ranked_by()
        # But for those that store statistics of tiles, where these fit.
        is_long |= has_parts and bool(others)
        found = self._searched(
            self._normal, self._request.journal, max_kernels=1 if is_long else most
        )
        traced(lambda: stages.families_stage(self._normal, found))
        # A search that ended late leaves this as much time as any.
        self._ranked_by = self._time_budget.ranked_by()
        stable = self._stable(found.families)
        others = others if is_first else self._rewritten()
        self._ranked_by = self._time_budget.ranked_by()
        return found, stable, others

    def terms(self, types: TypeScreen) -> Terms:
        """On which plans are ranked."""
        return Terms(self.screen.passes, self._late, self._over, types.doubt)

    def _stable(self, families: Sequence[Family]) -> list[UGraph]:
        """Those that a ranking may look at, made safe; of a sort of which none is, all."""
        likely = {u.digest for u in likely_families([f.ugraph for f in families], self._ranker)}
        first = [f for f in families if f.ugraph.digest in likely]
        safe = [*self.screen.stable(first)]
        sorts = {sort_of(u) for u in safe}
        others = [f for f in families if f.ugraph.digest not in likely]
        return [*safe, *self.screen.stable(f for f in others if sort_of(f.ugraph) not in sorts)]

    def _rewritten(self) -> list[UGraph]:
        parts = SafetyScreen(self._late, self._over)
        terms = Terms(parts.passes, self._late, self._over)
        return with_rewrites(
            self._normal,
            lambda p: parts.stable(self._searched(p).families),
            lambda p: parts.stable(self._searched(p, max_unsplit_kernels=1).families),
            lambda p: parts.stable(self._searched(p, max_kernels=1).families),
            lambda families: best_families(families, self._ranker, terms),
            parts.passes,
            self._ranker.target,
        )

    def _searched(
        self,
        what: Program,
        kept_in: Path | None = None,
        max_kernels: int | None = None,
        max_unsplit_kernels: int | None = None,
    ) -> SearchResult:
        limits = replace(
            self._limits,
            max_kernels=max_kernels or self._limits.max_kernels,
            max_unsplit_kernels=max_unsplit_kernels or self._limits.max_unsplit_kernels,
        )
        return search(
            what,
            seed=self._request.seed,
            limits=limits,
            deadline=self._searched_by,
            in_vain_by=self._time_budget.in_vain_by(),
            should_stop=self._request.should_stop,
            journal=kept_in,
            runner=self._pool,
        )

    def _late(self) -> bool:
        return self._is_past(self._ranked_by)

    def _over(self) -> bool:
        return self._is_past(self._time_budget.ranked_at_last(self._ranked_by))

    def _is_past(self, deadline: float | None) -> bool:
        return self._request.should_stop() or (
            deadline is not None and time.monotonic() >= deadline
        )
