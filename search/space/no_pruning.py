"""The no-pruning baseline: a class table that accepts everything, to measure what pruning saves."""

from __future__ import annotations

from itertools import product
from typing import Literal

from mirage_py.axioms.terms.class_table import ClassTable, Row
from mirage_py.axioms.terms.term import REDUCTIONS

Pruning = Literal["classes", "none"]


def without_pruning(table: ClassTable) -> ClassTable:
    """The table in which all terms are equal.

    It has the leaves, scalars and operators of ``table``, and reduces every axis that some row
    there reduces. So a closure takes every combination that the rules of loops and shapes allow.
    """
    facts = {row[:2]: len(row.args) for row in table.rows}
    reductions = [op for op in REDUCTIONS if any(op == name for name, _ in facts)]
    axes = [attr for op, attr in facts if op in REDUCTIONS]
    facts |= dict.fromkeys(product(reductions, axes), 1)
    rows = sorted(Row(op, attr, (0,) * arity, 0) for (op, attr), arity in facts.items())
    axes_of_all = tuple(dict.fromkeys(axis for dims in table.dependence for axis in dims))
    roots = (0,) * len(table.roots)
    return ClassTable(tuple(rows), roots, (axes_of_all,), table.ring, table.rounds, table.bound)
