"""Loop-carried state as Triton text: sums, running maxima and sums rescaled by them."""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.lowering.base_two_shifts import BaseTwoShifts
from mirage_py.codegen.text.writer import CodeWriter
from mirage_py.codegen.triton.contraction import ContractionEmitter, ValueText, reduced
from mirage_py.codegen.triton.tile_text import TileText
from mirage_py.ugraph.ir.ugraph import BlockGraph


class AccumulatorEmitter:
    """Writes the initial value and the update of each accumulator."""

    def __init__(
        self,
        block: BlockGraph,
        names: list[str],
        tiles: TileText,
        contraction: ContractionEmitter,
        shifts: BaseTwoShifts,
        deferred: Mapping[int, int],
        value: ValueText,
        out: CodeWriter,
    ) -> None:
        self.block = block
        self.names = names
        self.tiles = tiles
        self.contraction = contraction
        self.shifts = shifts
        # sums that are finished after the loop, by position, and their accumulators
        self.deferred = deferred
        self._lanes = {accumulator: total for total, accumulator in deferred.items()}
        self.value = value
        self.out = out
        # matmuls added straight into their accumulator, by position
        self.fused = self._fused_products()
        # of these the sums that are matrices inside the loop, and their matmuls
        plain = contraction.is_plain_dot
        self._matrices = {total: dot for dot, total in self.fused.items() if not plain(dot)}
        self._scales: dict[str, int] = {}

    def _fused_products(self) -> dict[int, int]:
        users = [0] * len(self.block.nodes)
        for node in self.block.nodes:
            for argument in node.args:
                users[argument] += 1
        fused = {}
        for number, node in enumerate(self.block.nodes):
            if node.op in ("accum_sum", "accum_rescaled"):
                product = node.args[0]
                if users[product] == 1 and self._adds_up(node.op, product):
                    fused[product] = number
        return fused

    def _adds_up(self, op: str, product: int) -> bool:
        """Whether a matmul adds to its accumulator itself. A sum that is rescaled has its axes one
        by one, as its factors have.
        """
        if op == "accum_rescaled":
            return self.contraction.is_plain_dot(product)
        return self.contraction.is_dot(product)

    def initialise(self, number: int, section: int) -> None:
        """The state before the loop's first iteration."""
        node = self.block.nodes[number]
        axes = self._state_axes(number, section)
        name = self.names[number]
        start = "0.0"
        if node.op == "accum_max":
            lowest = self.shifts.start(number)
            start = repr(lowest) if node.attr == "shift" else 'float("-inf")'
        if not axes:
            # A Python number would change its type in the loop.
            self.out.line(f"{name} = tl.full([], {start}, tl.float32)")
        else:
            shape = self.tiles.shape(axes, section)
            if number in self._matrices:
                shape = self.contraction.matrix_shape(self._matrices[number], section)
            self.out.line(f"{name} = tl.full({shape}, {start}, tl.float32)")

    def finish(self, number: int, section: int) -> None:
        """After the loop: reduce the lanes of a deferred sum; the axes of a sum of matrices."""
        if number in self._matrices:
            text = self.contraction.as_tile(self._matrices[number], section, self.names[number])
            self.out.line(f"{self.names[number]} = {text}")
        if number in self._lanes:
            total = self.block.nodes[self._lanes[number]]
            axes = self._state_axes(number, section)
            text = reduced(self.names[number], "sum", axes, total.reduced)
            self.out.line(f"{self.names[number]} = {text}")

    def _state_axes(self, number: int, section: int) -> tuple[str, ...]:
        """The axes of an accumulator inside its loop."""
        node = self.block.nodes[number]
        if number in self._lanes:
            node = self.block.nodes[self.block.nodes[self._lanes[number]].args[0]]
        return self.tiles.axes(node.dims, section)

    def _operand(self, number: int, section: int) -> str:
        node = self.block.nodes[number]
        if number in self._lanes:
            total = self.block.nodes[self._lanes[number]]
            return self.contraction.masked(total.args[0], total.reduced, section)
        return self.value(node.args[0], self._state_axes(number, section), section)

    def update(self, number: int, section: int) -> None:
        """One iteration's update."""
        node = self.block.nodes[number]
        axes = self._state_axes(number, section)
        name = self.names[number]
        operand = node.args[0]
        if node.op == "accum_max":
            self.out.line(f"{name}_old = {name}")
            top = self._operand(number, section)
            if number in self.shifts.shifts:
                top = self.shifts.scaled(operand, top)
            nan = "" if node.attr == "shift" else ", propagate_nan=tl.PropagateNan.ALL"
            self.out.line(f"{name} = tl.maximum({name}_old, {top}{nan})")
            return
        state = name
        if node.op == "accum_rescaled":
            factors = [
                self._scale(peak, degree, axes, section)
                for peak, degree in zip(node.args[1:], node.degrees, strict=True)
            ]
            state = " * ".join([name, *factors])
        if operand in self.fused:
            self.out.line(f"{name} = {self.contraction.dot(operand, section, state)}")
        else:
            self.out.line(f"{name} = {state} + {self._operand(number, section)}")

    def _scale(self, peak: int, degree: int, axes: tuple[str, ...], section: int) -> str:
        """exp(old - new) ** degree of a running maximum, named at its first use in a loop."""
        base = self.names[peak]
        name = f"{base}_scale" if degree == 1 else f"{base}_scale{degree}".replace("-", "m")
        if self._scales.get(name) != section:
            self._scales[name] = section
            difference = f"{base}_old - {base}"
            if degree != 1:
                difference = f"({difference}) * {float(degree)}"
            power = "exp2" if peak in self.shifts.shifts else "exp"
            self.out.line(f"{name} = tl.{power}({difference})")
        have = self.tiles.axes(self.block.nodes[peak].dims, section)
        return self.tiles.expand(name, have, axes)
