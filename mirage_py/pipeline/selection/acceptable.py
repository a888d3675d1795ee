"""Programs that may be optimised as asked: element types, and rows that are computed alike."""

from __future__ import annotations

from dataclasses import replace

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.pipeline.selection.request import AUTO, Request
from mirage_py.ugraph.checks.row_invariance import why_no_rows
from mirage_py.ugraph.ir.dtypes import F64
from mirage_py.ugraph.ir.program import Program


def about_rows(program: Program, request: Request) -> Request:
    """The request with a back end that takes any number of rows; raises UnsupportedError where the
    program's rows meet.
    """
    if not request.rows:
        return request
    absent = next((row for row in request.rows if row not in program.dim_names), None)
    if absent is not None:
        raise InputError(
            f"the program has no dimension '{absent}'",
            where=program.name,
            why=f"its dimensions are {', '.join(program.dim_names)}",
            repair="name one that nothing is reduced over",
        )
    reason = why_no_rows(program, request.rows)
    if reason:
        raise UnsupportedError(
            f"{', '.join(request.rows)} cannot be rows that are computed alike",
            where=program.name,
            why=reason,
            repair="name dimensions that nothing is reduced over",
        )
    return replace(request, backend="triton") if request.backend == AUTO else request


def require_float32(program: Program) -> None:
    """Raises UnsupportedError for a program with float64 tensors."""
    for tensor in program.tensors.values():
        if tensor.dtype == F64:
            raise UnsupportedError(
                f"tensor '{tensor.name}' is of float64",
                where=program.name,
                why="kernels compute and accumulate in float32",
                repair="declare it f32, if that is accurate enough",
            )
