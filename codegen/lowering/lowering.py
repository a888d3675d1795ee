"""The lowering shared by all back ends: cheaper operators, element types, tensors with base-2
shifts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import cast

from mirage_py.codegen.lowering.base_two_shifts import is_shift, shift_tensors, stored_in_base_two
from mirage_py.codegen.lowering.half_functions import with_half_functions
from mirage_py.codegen.lowering.half_range import within_half_range
from mirage_py.codegen.lowering.hidden_constants import with_hidden_constants
from mirage_py.codegen.lowering.precision import TypedBlock, insert_casts
from mirage_py.codegen.lowering.scales import with_late_scales
from mirage_py.codegen.tiling.low_masks import with_low_masks
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.operators import Calls, operator
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block, without_unread

# Of a number that is multiplied by instead: far from the ends of float32.
_LEAST_INVERSE = 2.0**-64
# What the shift of exponentials is made by, where it is not one by name.
_MAXIMA = ("max", "accum_max", "maximum")


@dataclass(frozen=True, slots=True)
class Lowered:
    """Typed block graphs, and the tensors between them that hold shifts in base 2."""

    blocks: tuple[TypedBlock, ...]
    in_base_two: frozenset[str]


def with_factors_as_emitted(ugraph: UGraph) -> UGraph:
    """The µGraph with constant factors of operands where both back ends have them.

    A query that is divided before its product is not rounded to half precision there.
    """
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    moved = iter(_with_late_factors(ugraph, blocks))
    kernels = tuple(next(moved) if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(ugraph, kernels=kernels)


def lowered(
    ugraph: UGraph, blocks: Sequence[BlockGraph], run_time: Collection[str] = ()
) -> Lowered:
    """The block graphs of a µGraph, given in order, as back ends emit them; sizes of ``run_time``
    dimensions are known at launch only.
    """
    between = _between_blocks(ugraph)
    stored = shift_tensors(blocks, between)
    cheaper = [
        within_half_range(
            ugraph.program,
            reduce_strength(with_half_functions(with_shifts_first(b, stored), ugraph.tensors)),
            ugraph.tensors,
        )
        for b in _with_late_factors(ugraph, blocks, run_time)
    ]
    typed = tuple(insert_casts(ugraph.program, b, ugraph.tensors) for b in cheaper)
    return Lowered(typed, stored_in_base_two(typed, between))


def _with_late_factors(
    ugraph: UGraph, blocks: Sequence[BlockGraph], run_time: Collection[str] = ()
) -> list[BlockGraph]:
    masked = [with_low_masks(b, ugraph.program.sizes, run_time) for b in blocks]
    hidden = with_hidden_constants(masked, ugraph.tensors, _between_blocks(ugraph))
    return [with_late_scales(b, ugraph.tensors) for b in hidden]


def _between_blocks(ugraph: UGraph) -> list[str]:
    """Intermediates that no library call sees."""
    calls = [k for k in ugraph.kernels if isinstance(k, LibraryCall)]
    seen = {name for call in calls for name in (*call.args, *call.written_tensors)}
    return [t.name for t in ugraph.intermediates if t.name not in seen]


def reduce_strength(block: BlockGraph) -> BlockGraph:
    """The block graph with cheaper operators; positions of nodes change.

    Each rewrite keeps the value up to rounding in float32:

        x / sqrt(u)  ->  x * rsqrt(u)
        x / y        ->  x * (1 / y)     where y has fewer dimensions than x: one division a row
        x / 0.9      ->  x * (1 / 0.9)   as PyTorch does on GPUs, but where quotients are rounded

    An operator whose row says what kernels compute it by becomes that.
    """
    return without_unread(rebuild_block(block, _Inverses(block).rule))


class _Inverses:
    """Quotients as products with an inverse, which is computed once a section."""

    def __init__(self, block: BlockGraph) -> None:
        self.block = block
        # The operators that read each node.
        self.users: dict[int, list[str]] = defaultdict(list)
        for node in block.nodes:
            for arg in node.args:
                self.users[arg].append(node.op)
        # (divisor, section) -> its reciprocal or reciprocal root among the new nodes
        self.made: dict[tuple[int, int], int] = {}

    def rule(self, new: NewNodes, number: int) -> int:
        """What a node becomes."""
        node = self.block.nodes[number]
        by_others = operator(node.op).lowered
        if by_others is not None:
            calls = Calls(
                lambda op, _, args: new.add(op, args, None, node.dims),
                lambda value: new.add("const", (), float(value)),
            )
            return cast(int, by_others(calls, *(new.place[a] for a in node.args)))
        factor = self._inverse_number(number) if node.op == "div" else None
        if factor is not None:
            by = new.add("const", (), factor)
            return new.add("mul", (new.place[node.args[0]], by), None, node.dims)
        if node.op != "div" or not self._pays(*node.args):
            return new.copy(number)
        key = (node.args[1], self.block.section_of[number])
        if key not in self.made:
            self.made[key] = self._inverse(new, node.args[1])
        return new.add("mul", (new.place[node.args[0]], self.made[key]), None, node.dims)

    def _inverse_number(self, number: int) -> float | None:
        """What many elements are multiplied with in place of a division by a number; None where the
        inverse is no such number, or something tells a quotient from the one beside it.
        """
        node = self.block.nodes[number]
        by = self.block.nodes[node.args[1]]
        if by.op != "const" or not node.dims or not isinstance(by.attr, float):
            return None
        jumps = any(user == "cast" or operator(user).jumps for user in self.users[number])
        is_usual = _LEAST_INVERSE <= abs(by.attr) <= 1.0 / _LEAST_INVERSE
        return 1.0 / by.attr if is_usual and not jumps else None

    def _pays(self, dividend: int, divisor: int) -> bool:
        by = self.block.nodes[divisor]
        fewer = set(by.dims) < set(self.block.nodes[dividend].dims)
        return by.op == "sqrt" or (fewer and bool(by.dims))

    def _inverse(self, new: NewNodes, divisor: int) -> int:
        node = self.block.nodes[divisor]
        if node.op == "sqrt":
            return new.add("rsqrt", (new.place[node.args[0]],), None, node.dims)
        one = new.add("const", (), 1.0)
        return new.add("div", (one, new.place[divisor]), None, node.dims)


def with_shifts_first(block: BlockGraph, stored: Collection[str]) -> BlockGraph:
    """The block graph with such shifts subtracted first; ``stored`` tensors hold shifts.

    log(sum(exp(x))) is emitted as m + log(s), with the maximum m taken out of the exponentials.
    That sum is as large as m and rounded there, so x - (m + log(s)) has few digits where x is near
    the maximum and the result near 0. x - m loses nothing there:

        x - (m + log(s))  ->  (x - m) - log(s)
    """
    found = {n: f for n in range(len(block.nodes)) if (f := _terms(block, n, stored))}
    if not found:
        return block

    def rule(new: NewNodes, number: int) -> int:
        if number not in found:
            return new.copy(number)
        node = block.nodes[number]
        rest = new.place[node.args[0]]
        for term in found[number]:
            rest = new.add("sub", (rest, new.place[term]), None, node.dims)
        return rest

    return without_unread(rebuild_block(block, rule))


def _terms(block: BlockGraph, number: int, stored: Collection[str]) -> tuple[int, ...]:
    """What a difference of this kind subtracts: shifts, and a logarithm at last."""
    node = block.nodes[number]
    if node.op != "sub":
        return ()
    todo, shifts, logarithms = [node.args[1]], list[int](), list[int]()
    while todo:
        term = block.nodes[todo[-1]]
        if term.op == "add":
            todo[-1:] = term.args
        elif _shifts(term, stored):
            shifts.append(todo.pop())
        elif term.op == "log":
            logarithms.append(todo.pop())
        else:
            return ()
    return (*shifts, *logarithms) if shifts and len(logarithms) == 1 else ()


def _shifts(node: Node, stored: Collection[str]) -> bool:
    is_read = node.op == "load" and node.access.tensor in stored
    return is_read or is_shift(node) or node.op in _MAXIMA
