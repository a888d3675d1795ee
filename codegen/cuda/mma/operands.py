"""Operands in the layouts that their readers need: as held, loaded again, or converted."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.exchange.barriers import Barriers
from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.mma.wgmma import WgmmaEmitter
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Layout
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.copies import Copies, vector_of
from mirage_py.codegen.cuda.writer.emission import Emission, Key
from mirage_py.errors import ScheduleError


class Operands:
    """Finds what a writer reads; waits for it where it is still in parts or under way."""

    def __init__(
        self,
        emission: Emission,
        copies: Copies,
        exchange: Exchange,
        pipeline: Pipeline,
        barriers: Barriers,
        wgmma: WgmmaEmitter,
    ) -> None:
        self.out = emission
        self.facts = emission.facts
        self.copies = copies
        self.exchange = exchange
        self.pipeline = pipeline
        self.barriers = barriers
        self.wgmma = wgmma
        self.staged = emission.plan.staged

    def need(self, key: Key, target: Layout) -> Value:
        """A value in registers of a layout, or of one with the same elements in each thread."""
        if isinstance(key, int) and self.barriers.waits(key):
            self.barriers.synchronize(())
        held = self.out.held(key)
        for value in held:
            if value.layout.has_same_threads(target):
                return value
        is_load = isinstance(key, int) and self.facts.block.nodes[key].op == "load"
        if isinstance(key, int) and is_load and not self._goes_in_crumbs(key, held, target):
            value = self._read_again(key, target)
        else:
            self.wgmma.wait_for([key] if isinstance(key, int) else ())
            value = self.exchange.converted(held[0], target)
        self.out.hold(key, value)
        return value

    def _goes_in_crumbs(self, load: int, held: Sequence[Value], target: Layout) -> bool:
        """Whether a tile that threads hold would be read again in smaller pieces, as one that is
        transposed: through shared memory it comes in fewer instructions, and from memory once.
        """
        if load in self.staged or not held:
            return False
        threads = 1 << LANE_BITS + self.out.warp_bits
        pieces = (vector_of(self.facts, load, layout) for layout in (target, held[0].layout))
        again, before = pieces
        return again < before and self.facts.elements(load) >= threads * before

    def _read_again(self, load: int, target: Layout) -> Value:
        if load in self.staged:
            buffer = self.pipeline.tile_at(load)
            name = self.out.value_name(load)
            return self.copies.read(self.staged[load], buffer, target, name, {})
        return self.copies.loaded(load, target)

    def made(self, number: int) -> Value:
        """A node's value in its own layout."""
        root = self.facts.root(number)
        if root not in self.out.layouts.own:
            raise ScheduleError(f"%{number} goes to other blocks", where=self.facts.block.name)
        self.wgmma.wait_for([root])
        return self.need(root, self.out.layouts.own[root])
