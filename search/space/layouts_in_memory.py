"""The order of axes in which a value is stored between kernels."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.ugraph.ir.program import Program


def axes_as_read(program: Program, dims: Sequence[str]) -> tuple[str, ...]:
    """The dimensions in the order in which an input has them: a value computed from it row by row
    is then stored in the order of the reads, not transposed. Of several inputs the one with the
    fewest other dimensions counts; if no input has them all, the order does not change.
    """
    orders = [n.access.dims() for n in program.nodes if n.op == "load"]
    able = [order for order in orders if all(d in order for d in dims)]
    nearest = min(able, key=len, default=tuple(dims))
    return tuple(d for d in nearest if d in dims)
