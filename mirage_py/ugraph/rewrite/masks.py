"""Removal of minus infinity from programs.

A mask is written where(mask, x, -inf), and minus infinity has no value in a finite field. Its
consumers turn it into a number again: exp(where(mask, x, -inf)) is exp(x) times the 0/1 mask, and
so for whatever vanishes there. So masks move through sums, positive factors and casts to their
consumer and become a factor there. A maximum over where(mask, x, -inf) stays: it is a running
maximum that the removal of free shifts takes away. An output may select it, as samplers do; over a
field it is a number like no other there. Anything else that minus infinity reaches is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.masked_exp import MaskSplitter, factored
from mirage_py.ugraph.ir.data_flow import infinities
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.predicates import negation
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.operators import ELEMENTWISE, named, operator
from mirage_py.ugraph.rewrite.logs import logs_apart

# Functions that are 0 at minus infinity.
_VANISHING = named(lambda o: o.vanishes)
_LOWEST = frozenset([-math.inf])


def lower_masks(program: Program) -> Program:
    """The same program with masks as 0/1 factors and minus infinity only under a maximum.

    where(mask, x, 0) on a mask of indices becomes a product with the mask too, and the logarithm of
    a product with an exponential a sum (mirage_py.ugraph.rewrite.logs).

    Raises:
        UnsupportedError: minus infinity reaches an operator that does not take it away.
    """
    program = logs_apart(program)
    if not any(n.op == "where" or n.attr in (math.inf, -math.inf) for n in program.nodes):
        return program
    builder = ProgramBuilder(program.name, program.fp32_precision)
    for dim in program.dims:
        builder.dim(dim.name, dim.size)
    for tensor in program.inputs:
        builder.input(tensor.name, tensor.shape, tensor.dtype, tensor.strides)
    splitter = MaskSplitter(builder)
    new: list[int] = []
    for node in program.nodes:
        new.append(_lowered(splitter, node, [new[a] for a in node.args]))
        splitter.split(new[-1])  # operands first, so that no depth of a program is too much
    for old in program.outputs:
        builder.output(old.tensor.name, new[old.node], old.index, old.tensor.dtype)
    lowered = builder.build()
    outputs = tuple(
        Output(old.tensor, now.node, old.index)
        for old, now in zip(program.outputs, lowered.outputs, strict=True)
    )
    lowered = replace(lowered, outputs=outputs)
    _refuse_infinities(lowered)
    return lowered


def _lowered(splitter: MaskSplitter, node: Node, args: Sequence[int]) -> int:
    """The node over operands that are lowered already."""
    builder = splitter.builder
    if node.op == "load":
        return builder.load(node.access.tensor, node.access.index)
    if node.op == "read":
        return builder.read(args[0], node.access.index)
    if node.op in ("const", "size", "index", "mask"):
        return _leaf(builder, node)
    if node.op in _VANISHING:
        masked = splitter.split(args[0])
        return factored(builder, builder.apply(node.op, masked.finite), masked)
    if node.op == "where":
        return _where(builder, *args)
    if operator(node.op).kind == ELEMENTWISE:
        return builder.apply(node.op, *args, attr=node.attr)
    if node.op == "matmul":
        return builder.matmul(args[0], args[1], node.reduced)
    if node.op == "sum":
        return builder.sum(args[0], node.reduced)
    return builder.max(_guarded(splitter, args[0]), node.reduced)


def _leaf(builder: ProgramBuilder, node: Node) -> int:
    attr = node.attr
    if isinstance(attr, IndexExpr):
        return builder.index(attr)
    if isinstance(attr, Predicate):
        return builder.mask(attr)
    return builder.const(attr) if isinstance(attr, float) else builder.size(str(attr))


def _where(builder: ProgramBuilder, condition: int, x: int, y: int) -> int:
    """A mask of indices with 0 on one side is a factor, of each factor of the other side.

    What is masked may be no number. So the selection stays where a factor lacks a dimension of the
    mask, and could be multiplied without it in a sum; and so does a condition on values, as in
    where(x > 0, log(x), 0).
    """
    predicate = builder.nodes[condition].attr
    if isinstance(predicate, Predicate):
        for zero, value, holds in ((y, x, predicate), (x, y, negation(predicate))):
            factors, dims = builder.factors(value), {*holds.dims()}
            bound = all(dims <= {*builder.nodes[f].dims} for f in factors)
            if bound and _is_zero(builder, zero) and not _is_infinite(builder, value):
                mask = builder.mask(holds)
                masked = [builder.apply("mul", f, mask) for f in factors]
                return reduce(partial(builder.apply, "mul"), masked)
    return builder.apply("where", condition, x, y)


def _guarded(splitter: MaskSplitter, x: int) -> int:
    """The operand of a maximum with its masks gathered in one where."""
    builder, masked = splitter.builder, splitter.split(x)
    if not masked.is_masked:
        return x
    condition = factored(builder, builder.const(1.0), masked)
    return builder.apply("where", condition, masked.finite, builder.const(-math.inf))


def _is_zero(builder: ProgramBuilder, node: int) -> bool:
    return builder.nodes[node].op == "const" and builder.nodes[node].attr == 0.0


def _is_infinite(builder: ProgramBuilder, node: int) -> bool:
    return builder.nodes[node].attr in (math.inf, -math.inf)


def _refuse_infinities(program: Program) -> None:
    """Minus infinity may stand in where(mask, x, -inf), directly under a maximum or as an output,
    and nowhere else.
    """
    known, selected = infinities(program.nodes), outputs_that_select_infinity(program)
    for number, node in enumerate(program.nodes):
        kinds = frozenset().union(*(known.get(a, ()) for a in node.args))
        if number not in known and kinds and not (node.op == "max" and kinds == _LOWEST):
            raise _refusal(program, kinds, _described(node), number)
    for output in program.outputs:
        if output.node in known and output.tensor.name not in selected:
            place = f"output {output.tensor.name}"
            raise _refusal(program, known[output.node], place, output.node)


def outputs_that_select_infinity(program: Program) -> frozenset[str]:
    """The outputs whose elements are selected from numbers and minus infinity."""
    known = infinities(program.nodes)
    found = [o for o in program.outputs if program.nodes[o.node].op == "where"]
    return frozenset(o.tensor.name for o in found if known.get(o.node) == _LOWEST)


def _refusal(program: Program, kinds: frozenset[float], place: str, node: int) -> UnsupportedError:
    value = "minus infinity" if kinds == _LOWEST else "infinity"
    reached = next(o.tensor.name for o in program.outputs if _depends(program, o.node, node))
    sign = "-" if value == "minus infinity" else ""
    return UnsupportedError(
        f"{value} reaches {place}",
        where=f"{program.name}, output {reached}",
        why="the finite field in which programs are compared has no infinity; where(mask, x, -inf) "
        f"is known only under {', '.join(_VANISHING)}, softmax and max, and as a result",
        repair=f"mask with a large number such as {sign}1e9, or mask the result: "
        "where(mask, f(x), 0)",
    )


def _described(node: Node) -> str:
    if node.op in REDUCING:
        return f"{node.op}[{', '.join(node.reduced)}]"
    return f"{node.op} of [{', '.join(node.dims)}]"


def _depends(program: Program, node: int, on: int) -> bool:
    todo, seen = [node], {node}
    while todo:
        current = todo.pop()
        if current == on:
            return True
        fresh = [a for a in program.nodes[current].args if a not in seen]
        seen.update(fresh)
        todo.extend(fresh)
    return False
