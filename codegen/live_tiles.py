"""Where a loop under a mask may begin and end: tiles that the mask empties are not visited.

Causal attention visits half of its tiles, a sliding window a band of them. A tile of a loop is
dead where a mask is false all over it and every accumulator would stay as it is: it adds zeros, or
takes the maximum with what no maximum is below. Which masks do that is read off the block graph;
where they are false follows from their inequalities over positions. Softmax with a mask that is
known beforehand is treated so in FlashAttention (Dao 2023, section 3.1) and FlexAttention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from mirage_py.codegen.tiles import Tiling
from mirage_py.ugraph.index import IndexExpr, Predicate
from mirage_py.ugraph.node import STORES, Node
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT
from mirage_py.ugraph.ugraph import BlockGraph

# What f(0) = 0 holds for.
_KEEPS_ZERO = ("neg", "cast", "abs", "square", "sqrt", "relu", "silu", "tanh", "gelu", "gelu_tanh")
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_NEVER: tuple[frozenset[int], float] = (frozenset(), 0.0)
# Late factors (scales.py) leave a mask's constant twice as low, and rounded.
_SLACK = 1.001
# More grids of blocks than this are not counted one by one.
_MOST_COUNTED = 4096


@dataclass(frozen=True, slots=True)
class Bound:
    """An affine bound on the loop's position: (offset + sum of scale * position) / divisor, rounded
    down for an upper bound (exclusive) and up for a lower one.

    ``terms`` are (dimension, scale, end); the position is the ``end`` (0 first, 1 last) of what the
    block has of the dimension.
    """

    terms: tuple[tuple[str, int, int], ...]
    offset: int
    divisor: int

    def dims(self) -> tuple[str, ...]:
        """Dimensions whose place in the grid it depends on."""
        return tuple(d for d, _, _ in self.terms)

    def value(self, ends: Mapping[str, tuple[int, int]]) -> int:
        """The bound for a block, whose first and last positions are ``ends``."""
        total = self.offset + sum(scale * ends[d][end] for d, scale, end in self.terms)
        return total // self.divisor


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Positions of a loop outside of which all tiles are dead: those that are at least every one
    of ``firsts`` and below every one of ``stops``.
    """

    firsts: tuple[Bound, ...] = ()
    stops: tuple[Bound, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.firsts or self.stops)

    def dims(self) -> tuple[str, ...]:
        """Dimensions that it depends on, in order of first use."""
        return tuple(dict.fromkeys(d for b in (*self.firsts, *self.stops) for d in b.dims()))


def live_range(tiling: Tiling, section: int) -> LiveRange:
    """The positions that the loop of a section has to visit; empty where that is all of them."""
    loop = tiling.block.sections[section].loop
    if loop is None:
        return LiveRange()
    firsts: list[Bound] = []
    stops: list[Bound] = []
    for mask in _emptying_masks(tiling.block, section):
        for scales, offset in _at_most_zero(mask):
            bound = _solved(tiling, loop, scales, offset)
            if bound is not None:
                (stops if scales[loop] > 0 else firsts).append(bound)
    return LiveRange(tuple(dict.fromkeys(firsts)), tuple(dict.fromkeys(stops)))


def mean_iterations(tiling: Tiling, section: int) -> float:
    """Iterations of a section's loop, on average over the blocks; 1 where it has none."""
    loop = tiling.block.sections[section].loop
    if loop is None:
        return 1.0
    tile = tiling.padded(loop, section)
    whole = -(-tiling.program.sizes[loop] // tile)
    found = live_range(tiling, section)
    axes = [d for d in found.dims() if d in tiling.block.grid_tiles]
    blocks = [tiling.blocks(d) for d in axes]
    if not found or prod(blocks) > _MOST_COUNTED:
        return float(whole)
    total = 0
    for numbers in product(*map(range, blocks)):
        first, stop = _tiles(tiling, loop, tile, found, dict(zip(axes, numbers, strict=True)))
        total += max(0, stop - first)
    return total / prod(blocks)


def is_uneven(tiling: Tiling) -> bool:
    """Whether masks leave blocks unequal work."""
    return any(live_range(tiling, n) for n in range(len(tiling.block.sections)))


def iterations(tiling: Tiling, section: int) -> Callable[[Mapping[str, int]], int]:
    """Iterations of a section's loop, by the numbers of a block along axes of the grid; 1 where it
    has none.
    """
    loop = tiling.block.sections[section].loop
    if loop is None:
        return lambda _: 1
    tile, found = tiling.padded(loop, section), live_range(tiling, section)
    axes = [d for d in found.dims() if d in tiling.block.grid_tiles]

    def count(numbers: Mapping[str, int]) -> int:
        first, stop = _tiles(tiling, loop, tile, found, {d: numbers[d] for d in axes})
        return max(0, stop - first)

    return count


def always_iterates(tiling: Tiling, section: int) -> bool:
    """Whether the loop of a section has an iteration in every block; False where blocks are too
    many to look at, or sizes not known.
    """
    loop = tiling.block.sections[section].loop
    found = live_range(tiling, section)
    if loop is None or not found:
        return loop is not None
    axes = [d for d in found.dims() if d in tiling.block.grid_tiles]
    blocks = [tiling.blocks(d) for d in axes]
    if prod(blocks) > _MOST_COUNTED or any(d in tiling.run_time for d in (loop, *found.dims())):
        return False
    tile = tiling.padded(loop, section)
    ranges = (
        _tiles(tiling, loop, tile, found, dict(zip(axes, numbers, strict=True)))
        for numbers in product(*map(range, blocks))
    )
    return all(first < stop for first, stop in ranges)


def _tiles(
    tiling: Tiling, loop: str, tile: int, found: LiveRange, numbers: Mapping[str, int]
) -> tuple[int, int]:
    """The first tile that a block visits and the one behind the last."""
    ends = {}
    for dim in found.dims():
        extent = tiling.padded(dim, 0) if dim in numbers else tiling.program.sizes[dim]
        first = numbers.get(dim, 0) * extent
        ends[dim] = first, first + extent - 1
    first = max([0, *(b.value(ends) for b in found.firsts)])
    stop = min([tiling.program.sizes[loop], *(b.value(ends) for b in found.stops)])
    return first // tile, -(-stop // tile)


def whole_below(tiling: Tiling, section: int) -> tuple[Bound, ...]:
    """Positions of the section's loop below which all of its masks hold, wherever a block is along
    other dimensions: whole tiles there need no mask. Empty where there is no such range.
    """
    loop = tiling.block.sections[section].loop
    if loop is None:
        return ()
    found: list[Bound] = []
    for number in loop_masks(tiling.block, section):
        mask = tiling.block.nodes[number].attr
        forms = _conjunction(mask) if isinstance(mask, Predicate) else None
        if forms is None:
            return ()
        for scales, offset in forms:
            bound = _held(tiling, loop, scales, offset)
            if bound is None:
                return ()
            found.append(bound)
    return tuple(dict.fromkeys(found))


def loop_masks(block: BlockGraph, section: int) -> tuple[int, ...]:
    """The masks of a section that change along its loop."""
    found = block.sections[section]
    masks = (n for n in found.nodes if block.nodes[n].op == "mask")
    return tuple(n for n in masks if found.loop in block.nodes[n].dims)


# -- which masks empty a tile --------------------------------------------------------------------


def _emptying_masks(block: BlockGraph, section: int) -> list[Predicate]:
    """Masks of a loop that leave all of its accumulators as they are where they are false."""
    inside = block.sections[section].nodes
    if all(block.nodes[n].op != "mask" for n in inside):
        return []  # ranking asks for every tiling
    state = _Emptied(block, inside)
    found: frozenset[int] | None = None
    for number in inside:
        node = block.nodes[number]
        if node.op in STORES:
            return []
        if node.op.startswith("accum"):
            neutral = state.neutral[number]
            found = neutral if found is None else found & neutral
    predicates = (block.nodes[n].attr for n in sorted(found or ()))
    return [p for p in predicates if isinstance(p, Predicate)]


class _Emptied:
    """For the nodes of a loop the masks that make them zero, lowest, or, as accumulators, idle."""

    def __init__(self, block: BlockGraph, inside: Sequence[int]) -> None:
        self.nodes = block.nodes
        self.zero: dict[int, frozenset[int]] = {}
        # With the value that it then has.
        self.lowest: dict[int, tuple[frozenset[int], float]] = {}
        self.neutral: dict[int, frozenset[int]] = {}
        for number in inside:
            node = self.nodes[number]
            self.zero[number] = self._zero(number, node)
            self.lowest[number] = self._lowest(node)
            if node.op.startswith("accum"):
                self.neutral[number] = self._neutral(node)

    def _zeros(self, number: int) -> frozenset[int]:
        return self.zero.get(number, frozenset())

    def _zero(self, number: int, node: Node) -> frozenset[int]:
        if node.op == "mask":
            return frozenset((number,))
        if node.op in ("mul", "matmul"):
            return self._zeros(node.args[0]) | self._zeros(node.args[1])
        if node.op in ("add", "sub"):
            return self._zeros(node.args[0]) & self._zeros(node.args[1])
        if node.op in (*_KEEPS_ZERO, "sum"):
            return self._zeros(node.args[0])
        if node.op == "where":
            condition, chosen, other = node.args
            both = self._zeros(chosen) & self._zeros(other)
            is_zero = self._constant(other) == 0.0
            return both | (self._zeros(condition) if is_zero else frozenset())
        return frozenset()

    def _lowest(self, node: Node) -> tuple[frozenset[int], float]:
        """Which masks make it a constant that is very low, and that constant."""
        if node.op == "where":
            low = self._constant(node.args[2])
            return self._zeros(node.args[0]), 0.0 if low is None else low
        if node.op in ("max", "cast"):
            return self.lowest.get(node.args[0], _NEVER)
        if node.op == "mul" and (factor := self._constant(node.args[1])) is not None:
            masks, low = self.lowest.get(node.args[0], _NEVER)
            return masks, low * factor
        return _NEVER

    def _neutral(self, node: Node) -> frozenset[int]:
        if node.op == "accum_sum":
            return self._zeros(node.args[0])
        if node.op == "accum_max" and node.attr == "shift":
            masks, low = self.lowest.get(node.args[0], _NEVER)
            # A lower one is a logit like others where a row has nothing else.
            return masks if 2 * _SLACK * LOWEST_SHIFT <= low <= LOWEST_SHIFT else frozenset()
        if node.op == "accum_rescaled":
            peak = self.neutral.get(node.args[1], frozenset())
            return self._zeros(node.args[0]) & peak
        return frozenset()

    def _constant(self, number: int) -> float | None:
        node = self.nodes[number]
        return node.attr if node.op == "const" and isinstance(node.attr, float) else None


# -- where a mask is false -----------------------------------------------------------------------


def _at_most_zero(predicate: Predicate) -> Iterator[tuple[dict[str, int], int]]:
    """Affine forms, as scales of dimensions and an offset, that are all at most 0 where it holds.

    What is not affine gives none, which is always right.
    """
    if predicate.op == "and":
        for part in predicate.args:
            yield from _at_most_zero(part)
        return
    op, exprs = predicate.op, predicate.exprs
    if op == "not" and predicate.args[0].op in _OPPOSITE:
        op, exprs = _OPPOSITE[predicate.args[0].op], predicate.args[0].exprs
    if len(exprs) != 2 or op not in (*_OPPOSITE, "eq"):
        return
    left, right = _affine(exprs[0]), _affine(exprs[1])
    if left is None or right is None:
        return
    difference = _combined(left, right, -1)
    strict = int(op in ("lt", "gt"))
    if op in ("lt", "le", "eq"):
        yield difference[0], difference[1] + strict
    if op in ("gt", "ge", "eq"):
        scales, offset = _combined(({}, 0), difference, -1)
        yield scales, offset + strict


def _conjunction(predicate: Predicate) -> list[tuple[dict[str, int], int]] | None:
    """Affine forms that are all at most 0 where it holds and only there; None if it is no such
    condition.
    """
    if predicate.op == "and":
        parts = [_conjunction(part) for part in predicate.args]
        return None if None in parts else [form for part in parts for form in part or ()]
    forms = list(_at_most_zero(predicate))
    is_not = predicate.op == "not" and predicate.args[0].op in _OPPOSITE
    return forms if forms and (is_not or predicate.op in _OPPOSITE) else None


def _held(tiling: Tiling, loop: str, scales: Mapping[str, int], offset: int) -> Bound | None:
    """scale * position + rest <= 0 for the loop's position, the rest as large as a block has it;
    None where that is no upper bound.
    """
    scale = scales.get(loop, 0)
    if scale <= 0:
        return None
    terms: list[tuple[str, int, int]] = []
    for dim, factor in scales.items():
        if dim == loop:
            continue
        if dim in tiling.run_time:
            return None
        if dim in tiling.block.grid_tiles:
            terms.append((dim, -factor, int(factor > 0)))
        elif factor > 0:
            offset += factor * (tiling.program.sizes[dim] - 1)
    return Bound(tuple(terms), scale - offset, scale)


def _affine(expr: IndexExpr) -> tuple[dict[str, int], int] | None:
    if expr.op == "dim":
        return {expr.name: 1}, 0
    if expr.op == "const":
        return {}, expr.value
    parts = [_affine(a) for a in expr.args]
    if expr.op == "add" and parts[0] is not None and parts[1] is not None:
        return _combined(parts[0], parts[1], 1)
    if expr.op == "mul" and parts[0] is not None:
        return _combined(({}, 0), parts[0], expr.value)
    return None


def _combined(
    left: tuple[dict[str, int], int], right: tuple[dict[str, int], int], factor: int
) -> tuple[dict[str, int], int]:
    """left + factor * right."""
    scales = dict(left[0])
    for dim, scale in right[0].items():
        scales[dim] = scales.get(dim, 0) + factor * scale
    return {d: s for d, s in scales.items() if s}, left[1] + factor * right[1]


def _solved(tiling: Tiling, loop: str, scales: Mapping[str, int], offset: int) -> Bound | None:
    """scale * position + rest <= 0 for the loop's position, the rest as small as a block has it."""
    scale = scales.get(loop, 0)
    if scale == 0:
        return None
    terms: list[tuple[str, int, int]] = []
    for dim, factor in scales.items():
        if dim == loop:
            continue
        if dim in tiling.block.grid_tiles:
            terms.append((dim, factor, int(factor < 0)))
        elif factor < 0:
            if dim in tiling.run_time:
                return None
            offset += factor * (tiling.program.sizes[dim] - 1)
    if scale > 0:
        # position <= -rest / scale, and one more as the end is exclusive
        negated = tuple((d, -f, end) for d, f, end in terms)
        return Bound(negated, scale - offset, scale)
    # position >= rest / -scale, rounded up
    return Bound(tuple(terms), offset - scale - 1, -scale)
