"""Handlers of the ATen operators that are one elementwise operator and nothing else."""

from __future__ import annotations

from mirage_py.frontend.torch.handlers.registry import Handler, handles
from mirage_py.frontend.torch.lower.lowering import Lowering, Operand
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.operators import Operator, all_operators


def _handler(row: Operator) -> Handler:
    def handler(t: Lowering, *operands: Operand) -> NamedArray:
        return t.apply(row.name, *operands)

    handler.__doc__ = row.about
    return handler


for _row in all_operators():
    handles(*_row.aten)(_handler(_row))
