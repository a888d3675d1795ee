"""Legal programs drawn at random that are as large as what is searched whole: 10 to 24 operators
over 2 to 6 dimensions, of sizes that are worth splits and grids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from adversarial.random_programs import KINDS, Draw

from mirage_py.errors import InputError, MirageError
from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.ugraph.building.composites import layer_norm, rms_norm, softmax
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import BOOL, F16, F32, I32, DType
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import LEAF, operator

FEWEST_OPERATORS, MOST_OPERATORS = 10, 24
MOST_DIMS = 6
# Draws of an operator, of which some are not used.
_DRAWS = 60
# How often what is drawn is a composite, and reads an input next to the last value.
_COMPOSITES = 0.12
_FROM_INPUT = 0.25


def large_program(seed: int) -> Program:
    """The program of a seed."""
    for attempt in range(1000):
        try:
            return _Large(np.random.default_rng([seed, attempt, 24])).program(f"large{seed}")
        except MirageError:
            continue
    raise AssertionError(f"no program for seed {seed}")


class _Large(Draw):
    tensors: Sequence[tuple[str, str, DType]] = (
        ("X", "bd", F16), ("W", "dn", F16), ("Z", "bk", F16), ("U", "kn", F16), ("V", "nm", F16),
        ("Q", "hbd", F16), ("K", "hkd", F16), ("P", "hkn", F16), ("O", "hnm", F16),
        ("R", "bm", F16), ("C", "b", F32), ("G", "d", F32), ("H", "h", F32), ("N", "n", F16),
        ("S", "hbk", F32), ("M", "bd", BOOL), ("A", "k", BOOL), ("L", "b", I32),
    )  # fmt: skip
    kinds = (*KINDS, *["contract"] * 4)
    most_tensors = 7
    extents: Mapping[str, Sequence[int]] = {
        "h": (2, 8, 32), "b": (1, 16, 256), "d": (64, 96, 1024), "k": (16, 512, 4096),
        "n": (8, 128, 4096), "m": (64, 300),
    }  # fmt: skip

    def program(self, name: str) -> Program:
        """Raises InputError where it has not the size that was drawn."""
        self.wanted = int(self.draw.integers(FEWEST_OPERATORS, MOST_OPERATORS + 1))
        found = super().program(name)
        used = {d for node in found.nodes for d in node.dims}
        if not FEWEST_OPERATORS <= operator_count(found) <= MOST_OPERATORS:
            raise InputError(f"{operator_count(found)} operators")
        if not 2 <= len(used) <= MOST_DIMS:
            raise InputError(f"{len(used)} dimensions")
        return found

    def _grow_all(self, numbers: list[int], truths: list[int]) -> None:
        inputs = list(numbers)
        for _ in range(_DRAWS):
            if self._operators(numbers[-1]) >= self.wanted:
                break
            if self.draw.random() < _FROM_INPUT:
                numbers.insert(-1, int(self._of(inputs)))  # type: ignore[call-overload]
            x = numbers[-1]
            dims = self.b.nodes[x].dims
            if dims and self.draw.random() < _COMPOSITES:
                dim = str(self._of(dims))
                kind = int(self.draw.integers(3))
                norm = (rms_norm, layer_norm)[kind % 2]
                made = norm(self.b, x, [dim], 1e-5) if kind < 2 else softmax(self.b, x, [dim])
                numbers.append(made)
            else:
                self._grow(numbers, truths)

    def _operators(self, end: int) -> int:
        return sum(operator(self.b.nodes[n].op).kind != LEAF for n in cone(self.b.nodes, [end]))
