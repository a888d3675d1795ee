"""Kinds of values of a block: level and dimensions, and the kinds that operators produce.

These are the rules of block graphs (mirage_py/ugraph/checks/block_rules.py) as a table: nothing
here knows what an operator computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from mirage_py.ugraph.ir.node import Attr

HAND = "hand"


@dataclass(frozen=True, slots=True)
class Kind:
    """``dims`` of a value's tile, the dimension of the loop it lives in (None: in no loop), and its
    kernel.
    """

    looped: str | None
    dims: tuple[str, ...]
    kernel: int = 0


@dataclass(frozen=True, slots=True)
class Configuration:
    """What kernels do with dimensions that the program, whose dimensions are ``order``, reduces.

    ``looped``   for each kernel, one or two, what it reads tile by tile
    ``gridded``  what blocks of the first of two kernels share out, so that it does not reduce it
    ``again``    the second kernel may read inputs that have a gridded dimension as well
    """

    order: tuple[str, ...]
    looped: tuple[tuple[str, ...], ...] = ((),)
    gridded: tuple[str, ...] = ()
    again: bool = False

    def read(self, dims: Sequence[str], kernel: int) -> tuple[Kind, ...]:
        """What reading a tensor gives: its tiles in each loop it is a part of, or the whole."""
        loops = [d for d in self.looped[kernel] if d in dims]
        return tuple(Kind(loop, tuple(dims), kernel) for loop in loops or [None])


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with its attribute.

    ``swapped``  it takes the operands the other way around
    """

    op: str
    arity: int
    attr: Attr = None
    commutative: bool = True
    swapped: bool = False

    @property
    def alone(self) -> bool:
        """Whether nothing is gained by giving it one value twice: it is said in another way."""
        return self.swapped or self.op == "mul"


def meet(operands: Sequence[Kind], order: Sequence[str]) -> Kind | None:
    """The kind of an elementwise combination, None where operands cannot meet.

    A value dies with the iteration of its loop, so two loops do not meet; and inside a loop a value
    from outside must not hold the whole of the loop's dimension.
    """
    (kernel, *others) = dict.fromkeys(k.kernel for k in operands)
    loops = dict.fromkeys(k.looped for k in operands if k.looped is not None)
    if others or len(loops) > 1:
        return None
    loop = next(iter(loops), None)
    if any(k.looped is None and loop in k.dims for k in operands):
        return None
    return Kind(loop, tuple(d for d in order if any(d in k.dims for k in operands)), kernel)


def result_kind(
    operation: Operation, operands: Sequence[Kind], configuration: Configuration
) -> Kind | None:
    """The kind of the result, None where the rules of block graphs forbid the operator."""
    first = operands[0]
    if operation.op == HAND:
        return _handed(first, configuration)
    if operation.attr is None:
        return meet(operands, configuration.order)
    assert isinstance(operation.attr, tuple)
    if first.kernel == 0 and any(d in configuration.gridded for d in operation.attr):
        return None
    if operation.op.startswith("accum_"):
        (loop,) = operation.attr
        # Every leaf that a looped value comes from has the loop's dimension, so a value without it
        # has been reduced over the tile.
        complete = first.looped == loop and loop not in first.dims
        return replace(first, looped=None) if complete else None
    if any(d not in k.dims for k in operands for d in operation.attr):
        return None
    if operation.op == "matmul" and not _has_sides(*operands):
        return None
    joint = meet(operands, configuration.order)
    if joint is None:
        return None
    return replace(joint, dims=tuple(d for d in joint.dims if d not in operation.attr))


def _handed(kind: Kind, configuration: Configuration) -> Kind | None:
    """What the second kernel reads of what the first one stores, whole or tile by tile."""
    storable = kind.kernel == 0 and kind.dims and kind.looped in (None, *kind.dims)
    if not storable or len(configuration.looped) < 2:
        return None
    return configuration.read(kind.dims, 1)[0]


def _has_sides(left: Kind, right: Kind) -> bool:
    """Whether each operand has a dimension of its own; without one it is a product and a sum."""
    return not set(left.dims) <= set(right.dims) and not set(right.dims) <= set(left.dims)


def reachable(
    leaves: Sequence[Kind], operations: Sequence[Operation], configuration: Configuration
) -> tuple[Kind, ...]:
    """Every kind that operators make of the leaves' kinds."""
    found = dict.fromkeys(leaves)
    growing = True
    while growing:
        growing = False
        for operation in operations:
            for operands in choices(tuple(found), operation.arity):
                kind = result_kind(operation, operands, configuration)
                if kind is not None and kind not in found:
                    found[kind] = None
                    growing = True
    return tuple(found)


def choices(kinds: Sequence[Kind], arity: int) -> Iterator[tuple[Kind, ...]]:
    """All operands of one or two."""
    if arity == 1:
        yield from ((k,) for k in kinds)
    else:
        yield from ((a, b) for a in kinds for b in kinds)


def operations(
    elementwise: Sequence[tuple[str, int, bool]],
    reductions: Sequence[str],
    reduced: Sequence[str],
    configuration: Configuration,
) -> tuple[Operation, ...]:
    """The vocabulary of a configuration.

    ``elementwise`` has (operator, arity, commutes); ``reductions`` are out of "sum", "max" and
    "matmul"; ``reduced`` are the dimensions they may go over.
    """
    found: list[Operation] = []
    for op, arity, commutes in elementwise:
        found.append(Operation(op, arity, None, commutes))
        if arity == 2 and not commutes:
            found.append(Operation(op, arity, None, commutes, swapped=True))
    for op in reductions:
        if op == "matmul":
            sizes = range(1, len(reduced) + 1)
            over = [dims for size in sizes for dims in combinations(reduced, size)]
            found += [Operation(op, 2, dims) for dims in over]
        else:
            found += [Operation(op, 1, (d,)) for d in reduced]
    carried = ["accum_sum"] * ("sum" in reductions or "matmul" in reductions)
    carried += ["accum_max"] * ("max" in reductions)
    looped = dict.fromkeys(d for loops in configuration.looped for d in loops)
    found += [Operation(op, 1, (d,)) for op in carried for d in looped]
    found += [Operation(HAND, 1)] * (len(configuration.looped) - 1)
    return tuple(found)
