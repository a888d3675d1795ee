"""MMA/softmax overlap: the second matmul of a loop runs one iteration late, while this iteration's
first matmul and the code that reads it run.

FlashAttention-3 (Shah et al., 2024, section 3.2) does so within a warp group: the scores of the
next tile are in flight together with P V of this one. The launch option ``overlap`` requests it;
``plan/overlap.py`` says which loops can have it.

With ``overlap on`` a late matmul is awaited where its accumulator is rescaled, and its next operand
is copied, since it still reads the current one. ptxas moves that wait up within the iteration,
before the exponentials that were meant to run beside the matmul. With ``overlap across`` (cross-
iteration MMA pipelining) the wait is at the head of the next iteration, where ptxas leaves it;
until then the next operand stays in float32. Only timing tells which of the two is faster.

With the option ``turns`` (ping-pong scheduling, section 3.1 there) warp groups issue their matmuls
one after the other: while one uses the tensor cores, another computes exponentials.
"""

from __future__ import annotations

from mirage_py.codegen.cuda.mma.matmul import MatmulEmitter
from mirage_py.codegen.cuda.mma.ping_pong import PingPong
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.pipeline.tma_pipeline import TmaPipeline
from mirage_py.codegen.cuda.softmax.accumulators import Accumulators
from mirage_py.codegen.cuda.softmax.elementwise import ThreadGraphs
from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.launch_choices import OverlapMode


class MmaPipelining:
    """Matmuls that are begun an iteration late."""

    def __init__(
        self,
        emission: Emission,
        pipeline: Pipeline,
        matmul: MatmulEmitter,
        accumulators: Accumulators,
        graphs: ThreadGraphs,
    ) -> None:
        self.out = emission
        self.facts = emission.facts
        self.pipeline = pipeline
        self.matmul = matmul
        self.states = accumulators
        self.graphs = graphs
        self.ping_pong = PingPong(emission)
        # Whether late matmuls are waited for at the head of the next iteration.
        self._is_cross_iteration = emission.options.overlap is OverlapMode.ACROSS
        # Accumulators whose matmuls are late in the loop that is being written, each with the
        # operand of the iteration before.
        self._before: dict[int, Value] = {}
        # Factors of these accumulators.
        self._scales: tuple[tuple[str, int, int], ...] = ()
        # Accumulators of a loop that only adds matmuls of tiles up.
        self._chained: tuple[int, ...] = ()
        self._early = -1
        self._is_first = False

    def begin_work_tiles(self) -> None:
        """Before all work tiles of a persistent block."""
        self.ping_pong.begin_work_tiles(any(o.late for o in self.out.plan.overlap.values()))

    def end_work_tiles(self) -> None:
        """After all work tiles."""
        self.ping_pong.end_work_tiles()

    def begin(self, section: int) -> bool:
        """Before the loop: registers for what an iteration leaves to the next one. Says
        whether the first iteration differs from the others.
        """
        overlap = self.out.plan.overlap[section]
        self._early, late, self._chained = overlap.early, overlap.late, overlap.chained
        keys: dict[tuple[str, int, int], None] = {}
        for number in late:
            plan = self.out.layouts.mmas[self.facts.fused_by[number]]
            left = self.facts.root(plan.left)
            if self._is_cross_iteration and left not in self.graphs.given:
                name = self.out.fresh(f"{self.out.names[left]}_floats")
                made = Value(name, self.out.layouts.own[left], F32)
                self.out.line(made.declaration())
                self.graphs.given[left] = made
            name = self.out.fresh(f"{self.out.names[left]}_before")
            value = Value(name, plan.fragments.left, plan.dtype, is_packed=True)
            self.out.line(value.declaration())
            self._before[number] = value
            if self._is_cross_iteration and self.facts.block.nodes[number].op == "accum_rescaled":
                keys.update((key, None) for key in self.states.rescaling.factors(number))
        self._scales = tuple(keys)
        for _, peak, _ in keys:
            self.states.declare_scales(peak)
        self.matmul.wgmma.late = overlap.under_way
        self._is_first = bool(late)
        if isinstance(self.pipeline, TmaPipeline):
            self.pipeline.lags = bool(self.matmul.wgmma.late)
        self.ping_pong.begin(bool(late))
        return bool(late)

    def begin_iteration(self, variable: str, bounds: tuple[str, int]) -> None:
        """At the head of an iteration, before its tiles: the late matmuls that the iteration
        before has begun are there, and what it has made of its own is packed for the next ones.
        ``bounds``: the loop's first position, and the step to the next.
        """
        if not self._is_cross_iteration or not self._before or self._is_first:
            return
        assert isinstance(self.pipeline, TmaPipeline)
        first, step = bounds
        self.out.line("wgmma_wait<0>();")
        self.matmul.wgmma.forget()
        for number in self._before:
            self.out.line(f"keep({self.out.held(number)[0].name});")
        self.pipeline.give_back(2, f"{variable} > {added(first, str(step))}")
        self._take_over()

    def _take_over(self) -> None:
        """Accumulators are rescaled by what their running maxima have changed by since; what they
        add next is packed.
        """
        for number, kept in self._before.items():
            if self.facts.block.nodes[number].op == "accum_rescaled":
                self.states.rescaling.rescale(number)
            plan = self.out.layouts.mmas[self.facts.fused_by[number]]
            made = self.graphs.given[self.facts.root(plan.left)]
            with self.out.unrolled("r", kept.words) as r:
                low, high = (made.read_by(kept.layout, f"(2 * {r} + {n})") for n in (0, 1))
                self.out.line(f"{kept.word(r)} = pack_{kept.dtype.name}({low}, {high});")

    def end_iteration(self, has_one_before: str) -> None:
        """Matmuls of tiles alone: those of the iteration before are there."""
        if self._chained:
            assert isinstance(self.pipeline, TmaPipeline)
            self.out.line(f"wgmma_wait<{len(self._chained)}>();")
            self.pipeline.give_back(1, has_one_before)

    @property
    def is_first(self) -> bool:
        """Whether the first iteration of a loop is being written, which differs from the others."""
        return self._is_first

    def after_first(self) -> None:
        """The first iteration is written: from here on there is one before."""
        self._is_first = False

    def is_late(self, accumulator: int) -> bool:
        """Whether the matmul of an accumulator is begun an iteration late."""
        return accumulator in self._before

    def late(self, accumulator: int) -> None:
        """The place of a late matmul in its iteration. The one of the iteration before is there,
        its accumulator is rescaled, and what this iteration has made is kept for the next one.
        """
        if self._is_cross_iteration:
            return  # all of this at the head of the next iteration
        product = self.facts.fused_by[accumulator]
        self.matmul.prepare(product)
        if not self._is_first:
            wgmma = self.matmul.wgmma
            wgmma.wait_for([accumulator])
            assert isinstance(self.pipeline, TmaPipeline)
            if not wgmma.is_in_flight:
                self.pipeline.give_back(1, "")
            if self.facts.block.nodes[accumulator].op == "accum_rescaled":
                self.states.rescaling.rescale(accumulator)
        left = self.matmul.left_value(product)
        self.out.line(f"hand_over({self._before[accumulator].name}, {left.name});")

    def before_early(self, product: int) -> None:
        """Before the early matmul: it is this warp group's turn."""
        if product == self._early:
            self.ping_pong.wait()

    def after_early(self, product: int) -> None:
        """The early matmul was begun: now those of the iteration before."""
        if product == self._early:
            if not self._is_first:
                self._multiply()
            self.ping_pong.pass_on()

    def finish(self, has_two: str) -> None:
        """After the loop: the matmuls of the last iteration. ``has_two`` is the C condition of
        two iterations or more.
        """
        if self._before:
            self.out.comment("The products of the last iteration.")
            if self._is_cross_iteration:
                assert isinstance(self.pipeline, TmaPipeline)
                with self.pipeline.stage_before():
                    self.matmul.wgmma.wait()
                self.pipeline.give_rest_back(2, has_two)
                self._take_over()
            self._multiply()
            self.ping_pong.end()
        if self._chained:
            assert isinstance(self.pipeline, TmaPipeline)
            with self.pipeline.stage_before():
                self.matmul.wgmma.wait()
        if self.matmul.wgmma.late:
            assert isinstance(self.pipeline, TmaPipeline)
            self.pipeline.give_rest_back(1)
        for key in self._scales:
            self.out.drop(key)
            self.out.drop(("rises", key[1], 0))
        self._chained, self._scales = (), ()
        self._before = {}
        self._early = -1
        self.graphs.given.clear()
        self.matmul.wgmma.late = ()

    def _multiply(self) -> None:
        assert isinstance(self.pipeline, TmaPipeline)
        is_last = not self.pipeline.is_inside
        with self.pipeline.stage_before():
            for number, kept in self._before.items():
                (state, *_) = self.out.held(number)
                product = self.facts.fused_by[number]
                self.matmul.wgmma.multiply(product, number, kept, state, True)
            if is_last:
                self.matmul.wgmma.wait()
