"""Optimistic softmax: exponentials are shifted by the running maximum so far, and recomputed if
that was too small.

A running maximum only shifts exponents, and any shift is valid that keeps the results finite. So a
loop need not know the maximum of its tile: with the launch option ``rescaling optimistic`` it
computes the exponentials with the current one. Exponentials are not negative, so a thread's own sum
of them bounds each; where such a sum is 2^15 or more (or NaN), the warp votes, finds the maximum,
rescales and computes them again. After the first tile that is rare: a new maximum is set 2^4 above
the values it covers, which leaves room for 2^19.

That takes the maximum, its shuffles and the rescaling out of an iteration. The vote also ends a
basic block, so that ptxas leaves the wait for late matmuls (``overlap``) after the exponentials.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.schedule.operand_layouts import crosses_warps
from mirage_py.codegen.cuda.schedule.warp_shifts import chain_of
from mirage_py.codegen.cuda.softmax.elementwise import ThreadGraphs
from mirage_py.codegen.cuda.softmax.rescaling import ONE, Rescaling
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.ugraph.ir.dtypes import BOOL, F32
from mirage_py.ugraph.ir.node import REDUCING

# What a thread's sum of a tile's exponentials stays below; float16 holds twice as much.
_LIMIT = "32768.0f"


@dataclass(frozen=True, slots=True)
class Guess:
    """A running maximum ``chain[-1]``, and the nodes from the tile's maximum to it; ``before`` are
    those that the maximum is of. ``readers`` are what is computed of it in one thread graph, with
    these, and ``sums`` the accumulators among them.
    """

    chain: tuple[int, ...]
    before: tuple[int, ...]
    readers: tuple[int, ...]
    sums: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The running maximum."""
        return self.chain[-1]


class Optimistic:
    """Finds running maxima that need not be known, and writes what says whether one has to be."""

    def __init__(self, emission: Emission, graphs: ThreadGraphs) -> None:
        self.out = emission
        self.facts = emission.facts
        self.graphs = graphs
        self.rescaling: Rescaling = graphs.rescaling

    def chain(self, group: Sequence[int], pending: Sequence[int]) -> tuple[int, ...]:
        """The nodes from the maximum in a ``group`` to a running one that need not be known; none
        if it has to be, or the group does more than that.
        """
        facts, nodes = self.facts, self.facts.block.nodes
        for peak in pending:
            if nodes[peak].op != "accum_max" or not self.rescaling.is_optimistic(peak):
                continue
            chain = chain_of(facts, peak)
            if chain[:1] and chain[0] in group:
                others = [n for n in group if n not in chain]
                crosses = crosses_warps(facts, self.out.layouts, chain[0])
                if not crosses and all(map(facts.is_in_thread_graph, others)):
                    return tuple(n for n in chain if n in facts.emitted)
        return ()

    def guess(
        self, chain: Sequence[int], before: Sequence[int], readers: Sequence[int]
    ) -> Guess | None:
        """The guess, where ``readers`` are all that reads the maximum in its loop but sums that are
        rescaled: exponentials with their sum over the tile, and no other reduction.
        """
        facts, nodes, peak = self.facts, self.facts.block.nodes, chain[-1]
        section = facts.section(peak)
        sums = tuple(n for n in readers if nodes[n].op.startswith("accum"))
        layout = self.out.held(peak)[0].layout
        for n in sums:
            if nodes[n].op != "accum_rescaled" or nodes[n].args[1:] != (peak,):
                return None
        for n in self._users(peak):
            if facts.section(n) != section or n in readers:
                continue
            if n not in facts.fused_by or nodes[n].op != "accum_rescaled":
                return None
            state = self.out.held(n)[0].layout
            if nodes[n].args[1:] != (peak,) or state.of_dims(facts.live(peak)) != layout:
                return None
        reduces = any(nodes[n].op in REDUCING for n in readers)
        bounded = {self._bounded(n, peak) for n in sums}
        powers = [n for n in facts.block.sections[section].nodes if self._is_power(n, peak)]
        if reduces or not powers or not bounded.issuperset(powers):
            return None
        return Guess(tuple(chain), tuple(before), tuple(readers), sums)

    def _users(self, number: int) -> Iterator[int]:
        """Who reads a node, through nodes that are no text of their own."""
        for user in self.facts.users[number]:
            if user in self.facts.emitted:
                yield user
            else:
                yield from self._users(user)

    def _is_power(self, number: int, peak: int) -> bool:
        """Whether a node is an exponential that a maximum shifts."""
        node, nodes = self.facts.block.nodes[number], self.facts.block.nodes
        return node.op == "exp" and peak in nodes[self.facts.root(node.args[0])].args

    def _bounded(self, number: int, peak: int) -> int | None:
        """The exponential that an accumulator's sum over a tile is of: of all its positions, or of
        those that a mask leaves to whoever reads it. Elsewhere it may be as large as it likes.
        """
        facts, nodes = self.facts, self.facts.block.nodes
        if number not in facts.deferred_by:
            return None
        power, is_masked = nodes[facts.deferred_by[number]].args[0], False
        while nodes[power].op in ("cast", "mul", "where"):
            args = [a for a in nodes[power].args if facts.dtypes[a] != BOOL]
            if len(args) != 1:
                return None
            is_masked = is_masked or len(nodes[power].args) > 1
            power = args[0]
            if is_masked and len(facts.users[power]) > 1:
                return None
        return power if self._is_power(power, peak) else None

    def declare_sums(self, guess: Guess) -> dict[int, Value]:
        """Registers for what the tile adds to each accumulator."""
        out, found = self.out, {}
        for number in guess.sums:
            layout = out.held(number)[0].layout
            found[number] = Value(out.fresh(f"{out.names[number]}_tile"), layout, F32)
            out.line(found[number].declaration("0.0f"))
        return found

    def vote(self, guess: Guess, sums: dict[int, Value]) -> str:
        """Says, by the name of a variable, whether the guess was wrong for a row of the warp."""
        out, peak = self.out, guess.peak
        value = Value(out.fresh(f"{out.names[peak]}_rises"), ONE, BOOL)
        counted = [s for n, s in sums.items() if self._bounded(n, peak) is not None]
        words = [s.word(str(i)) for s in counted for i in range(s.words)]
        fine = " && ".join(f"{w} < {_LIMIT}" for w in words)
        out.line(value.declaration(f"__any_sync(0xffffffffu, !({fine}))"))
        out.hold(("rises", peak, 0), value)
        return value.name

    def start_again(self, sums: Collection[Value]) -> None:
        """The tile's sums are zero again."""
        for value in sums:
            with self.out.unrolled("r", value.words) as r:
                self.out.line(f"{value.word(r)} = 0.0f;")

    def add(self, sums: dict[int, Value]) -> None:
        """Accumulators take what the tile has."""
        for number, value in sums.items():
            (state, *_) = self.out.held(number)
            with self.out.unrolled("r", value.words) as r:
                self.out.line(f"{state.word(r)} += {value.word(r)};")
