"""Two products of a loop, one iteration apart: while this iteration's first product and what is
computed of it run, the tensor cores still multiply what the iteration before made of its own.

So does FlashAttention-3 (Shah et al., 2024, section 3.2) inside of a warp group: scores of the next
tile are under way with P V of this one. The launch option ``overlap`` asks for it; a loop has it
whose tiles the copy engine fetches, two stages or more, with one product of warp groups that others
read and others that take what was made of it from registers into their accumulators.
"""

from __future__ import annotations

from mirage_py.codegen.cuda.emission import Emission
from mirage_py.codegen.cuda.engine_pipeline import EnginePipeline
from mirage_py.codegen.cuda.pipeline import Pipeline
from mirage_py.codegen.cuda.products import Products
from mirage_py.codegen.cuda.value import Value

OVERLAP, ON = "overlap", "on"


class Overlap:
    """Products that are begun an iteration late."""

    def __init__(self, emission: Emission, pipeline: Pipeline, products: Products) -> None:
        self.out = emission
        self.facts = emission.facts
        self.pipeline = pipeline
        self.products = products
        # Accumulators whose products are late in the loop that is being written, each with the
        # operand of the iteration before.
        self._before: dict[int, Value] = {}
        # Accumulators of a loop that only adds products of tiles up.
        self._chained: tuple[int, ...] = ()
        self._early = -1
        self._is_first = False

    def accumulators(self, section: int) -> tuple[int, list[int]]:
        """The product that is early, and the accumulators whose products can be late; none if the
        loop is as it is.
        """
        facts, layouts = self.facts, self.out.layouts
        pipeline = self.pipeline
        if self.out.options.flag(OVERLAP) != ON or not isinstance(pipeline, EnginePipeline):
            return -1, []
        if section not in pipeline.loops or pipeline.depths[section] < 2:
            return -1, []
        if pipeline.live[section].firsts or pipeline.live[section].stops:
            return -1, []  # it may have no iteration at all
        nodes = facts.block.sections[section].nodes
        here = [n for n in nodes if n in layouts.products]
        early = [n for n in here if n not in facts.fused]
        late = [n for n in here if n in facts.fused]
        if len(early) != 1 or not all(layouts.products[n].by_warp_groups for n in here):
            return -1, []
        for product in late:
            plan = layouts.products[product]
            left = facts.root(plan.left)
            is_made = facts.section(left) == section and facts.block.nodes[left].op != "load"
            if not is_made or not plan.dtype.is_half:
                return -1, []
        return early[0], [facts.fused[n] for n in late]

    def _chain(self, section: int) -> tuple[int, ...]:
        """The accumulators of a loop that only adds products of tiles up: those of an iteration may
        be under way in the next one.
        """
        facts, layouts, pipeline = self.facts, self.out.layouts, self.pipeline
        if self.out.options.flag(OVERLAP) != ON or not isinstance(pipeline, EnginePipeline):
            return ()
        if section not in pipeline.loops or pipeline.depths[section] < 2:
            return ()
        nodes = facts.block.sections[section].nodes
        states = [facts.fused.get(n, -1) for n in nodes if n in layouts.products]
        for state in states:
            if state < 0 or facts.block.nodes[state].op != "accum_sum":
                return ()
            product = facts.fused_by[state]
            plan = layouts.products[product]
            left = facts.root(plan.left)
            from_tiles = self.products.groups.reads_from_tile(product, left)
            is_read = any(state in facts.inputs(n) for n in nodes if n in facts.emitted)
            if not plan.by_warp_groups or not from_tiles or is_read:
                return ()
        return tuple(states)

    def begin(self, section: int) -> bool:
        """In front of the loop: registers for what an iteration leaves to the next one. Says
        whether the first iteration differs from the others.
        """
        self._early, late = self.accumulators(section)
        for number in late:
            plan = self.out.layouts.products[self.facts.fused_by[number]]
            left = self.facts.root(plan.left)
            name = self.out.fresh(f"{self.out.names[left]}_before")
            value = Value(name, plan.fragments.left, plan.dtype, is_packed=True)
            self.out.line(value.declaration())
            self._before[number] = value
        self._chained = () if late else self._chain(section)
        self.products.groups.late = (*late, *self._chained)
        self._is_first = bool(late)
        if isinstance(self.pipeline, EnginePipeline):
            self.pipeline.lags = bool(self.products.groups.late)
        return bool(late)

    def end_iteration(self, has_one_before: str) -> None:
        """Products of tiles alone: those of the iteration before are there."""
        if self._chained:
            assert isinstance(self.pipeline, EnginePipeline)
            self.out.line(f"wgmma_wait<{len(self._chained)}>();")
            self.pipeline.give_back_before(has_one_before)

    def behind_first(self) -> None:
        """The first iteration is written: from here on there is one before."""
        self._is_first = False

    def is_late(self, accumulator: int) -> bool:
        """Whether the product of an accumulator is begun an iteration late."""
        return accumulator in self._before

    def after_early(self, product: int) -> None:
        """The early product was begun: now those of the iteration before."""
        if product == self._early and not self._is_first:
            self._multiply()

    def settle(self, accumulator: int) -> bool:
        """The product of the iteration before is there, and the last one gives its stage back.
        False in the first iteration, which has none before.
        """
        if self._is_first:
            return False
        groups = self.products.groups
        groups.wait_for([accumulator])
        assert isinstance(self.pipeline, EnginePipeline)
        if not groups.is_under_way:
            self.pipeline.give_back_before()
        return True

    def keep(self, accumulator: int) -> None:
        """What this iteration has made, for the next one."""
        kept = self._before[accumulator]
        product = self.facts.fused_by[accumulator]
        left = self.products.left_value(product)
        self.out.line(f"hand_over({kept.name}, {left.name});")

    def finish(self) -> None:
        """Behind the loop: the products of the last iteration."""
        if self._before:
            self.out.comment("The products of the last iteration.")
            self._multiply()
        if self._chained:
            assert isinstance(self.pipeline, EnginePipeline)
            with self.pipeline.stage_before():
                self.products.groups.wait()
        self._chained = ()
        self._before = {}
        self._early = -1
        self.products.groups.late = ()

    def _multiply(self) -> None:
        assert isinstance(self.pipeline, EnginePipeline)
        is_last = not self.pipeline.is_inside
        with self.pipeline.stage_before():
            for number, kept in self._before.items():
                (state, *_) = self.out.held(number)
                product = self.facts.fused_by[number]
                self.products.groups.multiply(product, number, kept, state, True)
            if is_last:
                self.products.groups.wait()
