"""Cost of one step of a block before tiles are known, used only to rank derivations.

The unit is the time of one block on one SM. A block takes a nominal tile of each dimension that can
be on the grid and all of every other. The effect of tile sizes is left to the cost model of
instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.targets import H200
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import operator

NOMINAL_TILE = 64
# A search is for no target: which derivations are cheap says an H200.
_RATES = H200
# Issue, address and loop arithmetic around any operator, each time it is executed.
_OVERHEAD_US = 0.002
_LOOP_US = 1.0


class WorkModel(Protocol):
    """Costs that extraction adds up. They must not be negative."""

    def step_us(self, op: str, attr: Attr, dims: tuple[str, ...], loop: str | None) -> float:
        """A step over ``dims`` in all iterations of ``loop``, or once if it is None."""

    def loop_us(self) -> float:
        """What one more loop costs besides its steps: filling and draining its pipeline."""


class BlockWork:
    """The default: rates of a GPU divided among its SMs.

    ``gridded`` are dimensions that the program reduces and this kernel shares out. ``given_us``
    has the cost of making each tensor that an earlier kernel stores.
    """

    def __init__(
        self,
        program: Program,
        *,
        gridded: Sequence[str] = (),
        given_us: Mapping[str, float] | None = None,
    ) -> None:
        self.program = program
        self._whole = tuple(d for d in reduced_dims(program) if d not in gridded)
        self._bytes = {t.name: t.dtype.bytes for t in program.tensors.values()}
        self._given_us = given_us or {}
        self._matmul_rate = (
            _RATES.fp32_flops_per_us(rounds=program.fp32_precision.rounds_matmuls)
            if program.matmul_type == F32
            else _RATES.tensor_flops_per_us
        )
        # What a step costs depends on no more than this.
        self._known_us: dict[tuple[str, str, tuple[str, ...], str | None], float] = {}

    def step_us(self, op: str, attr: Attr, dims: tuple[str, ...], loop: str | None) -> float:
        key = (op, attr.tensor if isinstance(attr, Access) else "", dims, loop)
        if key not in self._known_us:
            self._known_us[key] = self._step_us(op, attr, dims, loop)
        return self._known_us[key]

    def _step_us(self, op: str, attr: Attr, dims: tuple[str, ...], loop: str | None) -> float:
        if op in ("const", "size"):
            return 0.0
        points = 1.0
        for d in dims:
            points *= self._extent(d)
        executions = 1
        if loop is not None:
            executions = -(-self.program.sizes[loop] // NOMINAL_TILE)
            if loop not in dims:
                points *= executions
        made_us = self._given_us.get(attr.tensor, 0.0) if isinstance(attr, Access) else 0.0
        return points * self._point_us(op, attr) + executions * _OVERHEAD_US + made_us

    def store_us(self, dims: Sequence[str]) -> float:
        """Leaving a tensor over these dimensions to a later kernel."""
        return self.step_us("load", Access("", ()), tuple(dims), None)

    def loop_us(self) -> float:
        return _LOOP_US * _RATES.memory_latency_us

    def _extent(self, dim: str) -> int:
        size = self.program.sizes[dim]
        return size if dim in self._whole else min(size, NOMINAL_TILE)

    def _point_us(self, op: str, attr: Attr) -> float:
        if op == "load":
            tensor = Node(op, (), attr).access.tensor
            return self._bytes.get(tensor, F32.bytes) / (_RATES.l2_bytes_per_us / _RATES.sms)
        rate = self._matmul_rate if op == "matmul" else _RATES.vector_flops_per_us
        return operator(op).flops / (rate / _RATES.sms)


def waves(program: Program, gridded: Sequence[str]) -> float:
    """Blocks to an SM, of a kernel with nominal tiles over these dimensions. It compares kernels of
    which one has many small blocks and the other a few large ones.
    """
    blocks = 1
    for d in gridded:
        blocks *= -(-program.sizes[d] // NOMINAL_TILE)
    return blocks / H200.sms
