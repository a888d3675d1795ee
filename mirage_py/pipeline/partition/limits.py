"""Limits on the size of a program that is searched without a partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirage_py.pipeline.partition.values import Value, is_work, values_of
from mirage_py.search.rewrites.product_chains import chained_products
from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.search.space.short_rows import has_short_rows
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import LEAF, operator
from mirage_py.ugraph.rewrite.convolutions import convolution_at

# So many times the operators of one result all results together may have.
_BESIDE = 1.5
# And so many times the limits a program may have that is searched in one kernel alone.
_ONE_KERNEL = 2


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """The largest program that is searched whole. All are counts, so the answer is the same on
    every machine.

    ``operators``     nodes that are no leaves (loads, constants, masks, indices, sizes)
    ``reduced_dims``  dimensions that some node reduces: each may be looped over, or split
    ``products``      contractions of a part that wait for one another. It does not make a program
                      too large; but where one is cut anyway, no part gets a longer chain than
                      the kernels of one family can share

    They leave room above the largest program of examples/large, QK-norm attention with its output
    projection, which has 21 operators, reduces 4 dimensions and chains 3 products.
    """

    operators: int = 24
    reduced_dims: int = 4
    products: int = 3

    def __str__(self) -> str:
        return f"{self.operators} operators and {self.reduced_dims} reduced dimensions"


def operator_count(program: Program) -> int:
    """The nodes of a program that are no leaves."""
    return _operators(program, range(len(program.nodes)))


def _operators(program: Program, ends: Iterable[int]) -> int:
    members = cone(program.nodes, ends)
    return sum(operator(program.nodes[n].op).kind != LEAF for n in members)


def is_searched_whole(program: Program) -> bool:
    """Whether a program as it was given is."""
    limits = PartitionLimits()
    few = _has_few_operators(program, limits.operators)
    return few and len(reduced_dims(program)) <= limits.reduced_dims


def _has_few_operators(program: Program, most: int) -> bool:
    """Whether no result takes more operators. What is computed for others beside one of them
    counts less: queries and keys are rotated each on its own, and a batch norm updates its running
    statistics.
    """
    if operator_count(program) > _BESIDE * most:
        return False
    return all(_operators(program, [o.node]) <= most for o in program.outputs)


def has_library_values(program: Program) -> bool:
    """Whether it reads values at other indices, or has convolutions: it is in parts then."""
    return any(
        node.op == "read" or convolution_at(program, position) is not None
        for position, node in enumerate(program.nodes)
    )


def fits(program: Program, limits: PartitionLimits | None = None) -> bool:
    """Whether a program is searched whole, by default within the usual limits."""
    limits = limits or PartitionLimits()
    times = _ONE_KERNEL if has_short_rows(program) else 1
    return (
        _has_few_operators(program, times * limits.operators)
        and len(reduced_dims(program)) <= times * limits.reduced_dims
    )


def computes_twice(program: Program) -> bool:
    """Whether it computes a value under two names, as rows for queries by t and for keys by s."""
    values = values_of(program)
    return _are_twice(v for v, x in zip(values, program.nodes, strict=True) if is_work(x, values))


def multiplies_twice(program: Program) -> bool:
    """Whether it computes a matmul under two names: keys that are returned by s, and that queries
    by t are multiplied by. Its kernels have no place for both; as two parts they are computed once.
    """
    nodes = zip(values_of(program), program.nodes, strict=True)
    return _are_twice(v for v, x in nodes if x.op == "matmul")


def _are_twice(values: Iterable[Value]) -> bool:
    numbers = [v.number for v in values]
    return len(dict.fromkeys(numbers)) < len(numbers)


def fits_part(part: Program, limits: PartitionLimits) -> bool:
    """Whether a part of a larger program is small enough.

    Besides, it computes nothing twice: what is read at two indices is better read from memory.
    """
    return is_small_part(part, limits) and not computes_twice(part)


def is_small_part(part: Program, limits: PartitionLimits) -> bool:
    """Whether a part has no more than the limits say."""
    return fits(part, limits) and chained_products(part) <= limits.products
