"""wgmma: matmuls of warp groups on tiles in shared memory and fragments in registers.

The instructions are asynchronous: a group is committed, and awaited where its result is read or at
the end of an iteration, when the tiles are released. So independent matmuls overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from mirage_py.codegen.cuda.layout.fragments import TF32
from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition
from mirage_py.codegen.cuda.layout.wgmma_partitioning import (
    ROW_BITS,
    Matrix,
    matrix_of,
)
from mirage_py.codegen.cuda.schedule.concatenated_n import ConcatenatedMma, concatenated_sums
from mirage_py.codegen.cuda.text.c_text import added, weighted
from mirage_py.codegen.cuda.text.layout import Bit, Layout
from mirage_py.codegen.cuda.text.linear_text import register_part, thread_part
from mirage_py.codegen.cuda.text.prelude import wgmma_function
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A matmul that was begun: who holds its sums, and the tiles that it reads."""

    key: int
    result: Value
    tiles: tuple[int, ...]


class WgmmaEmitter:
    """Writes warpgroup matmuls, and the waits for them."""

    def __init__(self, emission: Emission, tile_at: Callable[[int], str]) -> None:
        self.out = emission
        self.facts = emission.facts
        self.tile_at = tile_at
        self._in_flight: list[_InFlight] = []
        # Matmuls whose instruction is written with the last one of them: who holds the sums.
        self._waiting: dict[ConcatenatedMma, list[tuple[int, Value]]] = {}
        # Whose sums are under way from one phase to the next, on purpose.
        self.late: Collection[int] = ()

    # -- the matmul ------------------------------------------------------------------------------

    def multiply(
        self,
        number: int,
        key: int,
        left: Value | None,
        result: Value,
        adds: bool,
        part: tuple[str, tuple[Bit, ...]] = ("0", ()),
    ) -> None:
        """Begin the matmul at ``number``, whose sums ``key`` holds: ``left`` in registers (None:
        from its tile) by its right operand's tile. What ``result`` held before counts if ``adds``.
        ``part``: the number of a slice of the tile, and the bits of a position that it stands for.
        """
        out, concatenated = self.out, self.out.plan.pipeline.concatenated.get(number)
        begun = [(key, result)]
        if concatenated is not None:
            begun = [*self._waiting.pop(concatenated, ()), *begun]
            if len(begun) < len(concatenated.matmuls):
                self._waiting[concatenated] = begun
                return  # with the last one of them
            number = concatenated.matmuls[0]
        plan = out.layouts.mmas[number]
        fragments = plan.fragments
        right = self.facts.root(plan.right)
        tiles = [right]
        b = matrix_of(self.facts, right, fragments.shape.columns, fragments.shape.inner)
        assert b is not None
        a = None
        if left is None:
            a = out.plan.operands.lefts[number]
            assert a is not None
            tiles.insert(0, self.facts.root(plan.left))
        for tile in (*tiles, *(concatenated.loads if concatenated is not None else ())):
            self.tile_at(tile)  # any of them may end a phase: names come after all waits
        texts = [
            self._descriptor(t, m, fragments.result.warps)
            for t, m in zip(tiles, (b,) if a is None else (a, b), strict=True)
        ]
        own_rows = tuple(b for b in self._row_bits(plan) if b not in part[1])
        rows = 1 << len(own_rows)
        steps = tuple(bit for bit in fragments.left.registers if bit in self._steps(plan))
        columns = 8 * fragments.column_tiles if concatenated is None else sum(concatenated.columns)
        columns >>= sum(b in fragments.shape.columns for b in part[1])
        name, _ = wgmma_function(
            columns,
            "tf32" if fragments.kind == TF32 else plan.dtype.name,
            a is None,
            a is not None and a.is_transposed,
            b.is_transposed,
        )
        sums = columns // 2
        out.line("wgmma_fence();")
        with out.unrolled("k", 1 << len(steps)) as k, out.unrolled("m", rows) as m:
            sums_text = (
                result.name if concatenated is None else concatenated_sums(out.names, concatenated)
            )
            if rows > 1:
                place = result.word(weighted((m, sums)))
                sums_text = f"reinterpret_cast<float (&)[{sums}]>({place})"
            if a is None:
                assert left is not None
                step = weighted((m, 1 << len(steps)), (k, 1))
                first = [left.word(weighted((step, 4), (str(i), 1))) for i in range(4)]
            else:
                first = [self._at(texts[0], a, {k: steps, m: own_rows}, part)]
            second = self._at(texts[-1], b, {k: steps}, part)
            flag = "true" if adds else ("false" if k == "0" else f"{k} > 0")
            out.line(f"{name}({sums_text}, {', '.join(first)}, {second}, {flag});")
        for holder, sums_of_one in begun:
            # Waits count matmuls: after several in one instruction there are empty groups.
            out.line("wgmma_commit();")
            self._in_flight.append(_InFlight(holder, sums_of_one, tuple(tiles)))

    def _row_bits(self, plan: MmaPartition) -> tuple[Bit, ...]:
        return tuple(
            b for b in plan.fragments.left.registers if b in plan.fragments.shape.rows[ROW_BITS:]
        )

    def _steps(self, plan: MmaPartition) -> tuple[Bit, ...]:
        inner = plan.fragments.shape.inner[plan.fragments.kind.inner :]
        return tuple(b for b in plan.fragments.left.registers if b in inner)

    def _descriptor(self, load: int, matrix: Matrix, warps: tuple[Bit | None, ...]) -> str:
        """The name of the descriptor of what this warp group has of a tile."""
        out = self.out
        # The warp's own 16 of 64 rows are no matter of the descriptor.
        groups = Layout((), (None,) * 5, tuple(b if n >= 2 else None for n, b in enumerate(warps)))
        place = added(self.tile_at(load), thread_part(groups, matrix.tile.places()))
        name = out.fresh(f"{out.names[load]}_matrix")
        swizzle = matrix.tile.swizzle_bytes
        out.line(
            f"const unsigned long long {name} = shared_descriptor({place}, "
            f"{matrix.leading_bytes}, {matrix.stride_bytes}, {swizzle});"
        )
        return name

    def _at(
        self,
        descriptor: str,
        matrix: Matrix,
        bits: dict[str, tuple[Bit, ...]],
        part: tuple[str, tuple[Bit, ...]],
    ) -> str:
        """The descriptor of a step along K, of a tile of rows and of a slice; it counts pieces of
        16 bytes.
        """
        places = {b: p - 4 for b, p in matrix.tile.places().items()}
        parts = [
            register_part(Layout(chosen, (None,) * 5, ()), places, variable)
            for variable, chosen in (*bits.items(), part)
        ]
        return added(descriptor, *parts)

    # -- waiting ---------------------------------------------------------------------------------

    def wait_for(self, keys: Collection[int]) -> None:
        """Wait for the sums that these hold, if they are under way."""
        places = [n for n, u in enumerate(self._in_flight) if u.key in keys]
        if places:
            self._wait(places[-1] + 1)

    def settle(self) -> None:
        """Wait for all that is not late."""
        self.wait_for([u.key for u in self._in_flight if u.key not in self.late])

    @property
    def is_in_flight(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self._in_flight)

    def wait(self) -> None:
        """Wait for all that is under way."""
        if self._in_flight:
            self._wait(len(self._in_flight))

    def forget(self) -> None:
        """All that was under way has been waited for by another text."""
        self._in_flight = []

    def _wait(self, count: int) -> None:
        done, self._in_flight = self._in_flight[:count], self._in_flight[count:]
        self.out.line(f"wgmma_wait<{len(self._in_flight)}>();")
        for one in done:
            self.out.line(f"keep({one.result.name});")
            for tile in one.tiles:
                self.tile_at(tile)  # in use until now
