"""Faults of kernels as wrong programs: each differs from the right one in one node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mirage_py.errors import InputError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.ugraph.ir.index import Predicate, compare, const, dim
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.rebuild import Rule, copied, rebuild

_LOWEST = -3e38
_OTHER = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
_OFF = 1.02


def faults(program: Program) -> Iterator[tuple[str, Program]]:
    """Wrong programs, and what is wrong with each."""
    for number, node in enumerate(program.nodes):
        for what, rule in _of_node(program, node):
            try:
                yield f"{what} ({node.op}, node {number})", rebuild(program, {number: rule})
            except InputError:  # an input is not read any more
                continue


def _of_node(program: Program, node: Node) -> Iterator[tuple[str, Rule]]:
    if node.op in REDUCING:
        for d in node.reduced:
            size = program.sizes[d]
            for lost in sorted({1, max(1, size // 16)} if size > 1 else ()):
                yield f"without the last {lost} of {d}", partial(_without, node, d, size - lost)
        if node.op != "matmul" and len(node.reduced) == 1:
            yield f"with a zero behind {node.reduced[0]}", partial(_with_zero, program, node)
    if node.op in ("sum", "matmul"):
        yield f"times {_OFF}", lambda b, args: b.apply("mul", copied(b, node, args), b.const(_OFF))
    if node.op == "sum":
        half = F16 if program.matmul_type == F32 else program.matmul_type
        yield (
            f"rounded to {half}",
            lambda b, args: b.apply("cast", copied(b, node, args), attr=half),
        )
    if node.op in ("add", "sub", "mul", "div", "maximum", "minimum"):
        yield from _of_operands(program, node)
    if node.op == "mask" and isinstance(node.attr, Predicate):
        for other in _shifted(node.attr):
            yield f"where {other}", lambda b, _, other=other: b.mask(other)
    if node.op in _OTHER:
        yield "at its border", lambda b, args: b.apply(_OTHER[node.op], *args)


def _of_operands(program: Program, node: Node) -> Iterator[tuple[str, Rule]]:
    for place, other in enumerate(program.nodes[a] for a in node.args):
        if place == 0 and node.op in ("sub", "div"):
            continue
        is_row = node.op in ("add", "sub") and set(other.dims) < set(node.dims)
        if other.op == "const" or is_row:
            name = f"{other.attr}" if other.op == "const" else "its smaller operand"
            yield f"without {name}", lambda _, args, place=place: args[1 - place]
        if other.op == "const" and node.op in ("add", "mul", "div"):
            factor = 10.0 if node.op == "add" else _OFF
            yield f"{other.attr} times {factor}", partial(_with_factor, node, place, factor)


def _without(node: Node, d: str, size: int, b: ProgramBuilder, args: Sequence[int]) -> int:
    kept = b.mask(compare("lt", dim(d), const(size)))
    if node.op == "max":
        return b.max(b.apply("where", kept, args[0], b.const(_LOWEST)), node.reduced)
    return copied(b, node, [b.apply("mul", kept, args[0]), *args[1:]])


def _with_zero(program: Program, node: Node, b: ProgramBuilder, args: Sequence[int]) -> int:
    """As where a tile's padding counts: what is reduced, of inputs that are 0."""
    (d,) = node.reduced
    known: dict[Node, int] = {}

    def of(old: int, new: int | None) -> int:
        below = program.nodes[old]
        if d not in below.dims and new is not None:
            return new
        if below.op == "load" and d in below.dims:
            return b.const(0.0)
        if below.op in ("mask", "index") and d in below.dims:
            raise InputError("depends on the position itself")
        if below not in known:
            known[below] = copied(b, below, [of(a, None) for a in below.args])
        return known[below]

    beyond = of(node.args[0], args[0])
    return b.apply("maximum" if node.op == "max" else "add", copied(b, node, args), beyond)


def _with_factor(
    node: Node, place: int, factor: float, b: ProgramBuilder, args: Sequence[int]
) -> int:
    changed = [*args]
    changed[place] = b.apply("mul", args[place], b.const(factor))
    return copied(b, node, changed)


def _shifted(predicate: Predicate) -> Iterator[Predicate]:
    """Off by one in one of its comparisons, or without one."""
    if predicate.exprs:
        if predicate.op in _OTHER:
            yield Predicate(_OTHER[predicate.op], predicate.exprs)
        return
    for number, part in enumerate(predicate.args):
        for other in _shifted(part):
            yield replace(
                predicate,
                args=(*predicate.args[:number], other, *predicate.args[number + 1 :]),
            )
    if predicate.op == "and":
        yield from predicate.args
