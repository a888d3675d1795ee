"""The check that casts to integers lose no fraction and leave no value out of range.

A finite field has neither fractions nor ranges: a cast and a store change nothing in it. Between
floating-point types that is right except for rounding, which the numerical check covers. To an
integer type or a truth value it is right only for whole numbers that fit, so only these are
allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, inf, isnan, prod
from types import MappingProxyType

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.checks.kept_integers import kept_types
from mirage_py.ugraph.ir.dtypes import F32, I32, DType
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.operators import named

# The least and the greatest whole number that a value can be.
Bounds = tuple[float, float]

# Whole numbers up to here are exact in float32.
_EXACT = 2.0**24

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_TRUTHS = ("mask", *COMPARISONS, "isnan", "isinf")
_ROUNDED = named(lambda o: o.jumps and o.arity == 1)
_KEPT = ("cast", "read", "shift", "max", "accum_max")
_OF_BITS = named(lambda o: o.is_bitwise)
_ANY = (-inf, inf)
# Of the result of some additions and products in float32.
_PLACES = 2.0**-20
# Up to here every type of floats of two bytes has every whole number.
_IN_EVERY_FLOAT = 256


def require_whole_numbers(program: Program) -> None:
    """UnsupportedError for a program that casts to integers, or returns as such, what is none."""
    loss = program_loss(program)
    if loss:
        raise UnsupportedError(
            loss,
            where=program.name,
            why="kernels compute in float32, where nothing wraps around as integers do",
            repair="compute and return it as float32, and cast it outside",
        )


def are_whole(program: Program) -> tuple[bool, ...]:
    """For each node whether its values are whole numbers."""
    bounds = whole_bounds(program.nodes, program.sizes, {t.name: t for t in program.inputs})
    return tuple(b is not None for b in bounds)


def whole_bounds(
    nodes: Sequence[Node], sizes: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> list[Bounds | None]:
    """For each node the least and the greatest whole number that it may be; None if it may be any
    number, as what ``tensors`` lacks may be.
    """
    return _followed(nodes, sizes, tensors)[0]


def program_loss(program: Program) -> str:
    """The first cast or output of a program that drops something, in words; empty if none does."""
    tensors = {t.name: t for t in program.inputs}
    bounds, loss = _followed(program.nodes, program.sizes, tensors)
    for o in program.outputs:
        loss = loss or _lost(bounds[o.node], o.tensor.dtype, f"output {o.tensor.name}")
    return loss


def ugraph_loss(ugraph: UGraph) -> str:
    """The same for the kernels of a µGraph and all that they write. What one stores in float32
    another one reads within the same bounds.
    """
    held: dict[str, Bounds] = {}
    rounded: dict[str, Bounds] = {}
    # Where the program compares integers as floats itself, so may kernels.
    program = ugraph.program
    is_ordered = not _lost_order(program.nodes, program.sizes, ugraph.tensors, {})
    for kernel in ugraph.in_blocks.kernels:
        if isinstance(kernel, LibraryCall):
            written = ugraph.tensors.get(kernel.result)
            if written is not None and not written.dtype.is_float:
                return f"{kernel.name} writes {written.dtype} into '{written.name}'"
            continue
        loss = _block_loss(kernel, ugraph, held, rounded)
        if not loss and is_ordered:
            whole = {**held, **rounded}
            loss = _lost_order(kernel.nodes, program.sizes, ugraph.tensors, whole)
        if loss:
            return loss
    return ""


def _block_loss(
    block: BlockGraph, ugraph: UGraph, held: dict[str, Bounds], rounded: dict[str, Bounds]
) -> str:
    """What is lost in one kernel, which reads what is ``held`` and adds what it stores; what is
    ``rounded`` there were whole numbers.
    """
    bounds, loss = _followed(block.nodes, ugraph.program.sizes, ugraph.tensors, held)
    for node in block.nodes:
        written = ugraph.tensors.get(node.access.tensor) if node.op in STORES else None
        if not loss and written is not None:
            # What many blocks add up has no bounds here.
            kept = bounds[node.args[0]] if node.op == "store" else None
            loss = _lost(kept, written.dtype, f"'{written.name}'")
            if kept is not None and written.dtype == F32:
                known = held if max(map(abs, kept)) <= _EXACT else rounded
                known[written.name] = kept
    return f"kernel {block.name}: {loss}" if loss else ""


def _followed(
    nodes: Sequence[Node],
    sizes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    held: Mapping[str, Bounds] = MappingProxyType({}),
) -> tuple[list[Bounds | None], str]:
    """For each node its bounds, None if it may be any number; and the first cast that loses.

    ``held`` has those of floating-point tensors that hold whole numbers.
    """
    bounds: list[Bounds | None] = []
    # The same of numbers that need not be whole.
    ranges: list[Bounds] = []
    loss = ""
    for position, node in enumerate(nodes):
        args = [bounds[a] for a in node.args]
        between = [ranges[a] for a in node.args]
        if node.op == "cast":
            assert isinstance(node.attr, DType)
            loss = loss or _lost(args[0], node.attr, f"%{position}")
        if node.op == "load" and node.access.tensor in held:
            bounds.append(held[node.access.tensor])
        elif node.op in _ROUNDED and args[0] is None:
            bounds.append(_rounded(node.op, between[0]))
        else:
            bounds.append(_bounds(node, args, sizes, tensors))
        whole = bounds[-1]
        ranges.append(_range(node, between, sizes) if whole is None else whole)
    return bounds, loss


def _lost(bounds: Bounds | None, kind: DType, what: str) -> str:
    if kind.is_float or (bounds is not None and _fits(bounds, kind)):
        return ""
    return f"{what} is of type {kind}, which does not hold all values that it may have"


def _lost_order(
    nodes: Sequence[Node],
    sizes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    whole: Mapping[str, Bounds],
) -> str:
    """The first comparison of integers of any size that are not kept as such, in words."""
    compared = [(n, node) for n, node in enumerate(nodes) if node.op in COMPARISONS]
    if not compared:
        return ""
    bounds, _ = _followed(nodes, sizes, tensors, whole)
    kept = kept_types(nodes, tensors)
    for position, node in compared:
        sides = [bounds[a] for a in node.args]
        large = all(b is not None and I32.max_finite <= max(map(abs, b)) < inf for b in sides)
        if large and any(kept[a] is None for a in node.args):
            return f"%{position} compares integers in float32, which does not hold them"
    return ""


def _fits(bounds: Bounds, kind: DType) -> bool:
    low, high = _range_of(kind)
    return low <= bounds[0] and bounds[1] <= high


def _range_of(kind: DType) -> Bounds:
    return kind.lowest, kind.max_finite


def _bounds(
    node: Node,
    args: Sequence[Bounds | None],
    sizes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
) -> Bounds | None:
    if node.op in _TRUTHS:
        return 0.0, 1.0
    if node.op == "load":
        tensor = tensors.get(node.access.tensor)
        return None if tensor is None or tensor.dtype.is_float else _range_of(tensor.dtype)
    if node.op == "index":
        assert isinstance(node.attr, IndexExpr)
        low, high = node.attr.bounds(sizes)
        return float(low), float(high)
    if node.op in ("const", "size"):
        value = node.attr if isinstance(node.attr, float) else float(sizes[str(node.attr)])
        return (value, value) if value.is_integer() else None
    if node.op in _ROUNDED:
        return args[0]
    if node.op == "bit_and":  # of whole numbers, whatever their size
        args = [(-inf, inf) if a is None else a for a in args]
    known = [a for a in args if a is not None]
    if len(known) < len(args):
        return None
    if node.op in _KEPT:
        return known[0]
    return _ruled(node, known, sizes)


def _ruled(node: Node, args: Sequence[Bounds], sizes: Mapping[str, int]) -> Bounds | None:
    """What arithmetic makes of numbers within bounds; None where there is no rule."""
    if node.op in ("sum", "matmul"):
        count = prod(sizes[d] for d in node.reduced)
        ends = args[0] if node.op == "sum" else _product(*args)
        return min(ends[0], ends[0] * count), max(ends[1], ends[1] * count)
    rule = _RULES.get(node.op)
    return rule(*args) if rule is not None else None


def _range(node: Node, args: Sequence[Bounds], sizes: Mapping[str, int]) -> Bounds:
    """The least and the greatest number that a node may be, but for rounding in float32."""
    if node.op == "const" and isinstance(node.attr, float):
        return node.attr, node.attr
    if node.op == "cast" and node.attr != F32:  # small whole numbers are in every type
        low, high = (a if abs(a) <= _IN_EVERY_FLOAT and a.is_integer() else inf for a in args[0])
        return -inf if low == inf else low, high
    if node.op in _KEPT:
        return args[0]
    found = None if node.op in _OF_BITS else _ruled(node, args, sizes)
    return _ANY if found is None or any(map(isnan, found)) else found


def _rounded(name: str, between: Bounds) -> Bounds:
    """The least and the greatest whole number that a number is rounded to."""
    low, high = between
    half = 0.5 if name == "round" else 0.0
    # What is computed may be a few last places beyond the ends.
    low, high = low - half - abs(low) * _PLACES, high + half + abs(high) * _PLACES
    down = floor if name == "floor" or (name == "trunc" and low > 0) else ceil
    up = ceil if name == "ceil" or (name == "trunc" and high < 0) else floor
    return (
        float(down(low)) if low > -inf else -inf,
        float(up(high)) if high < inf else inf,
    )


def _product(a: Bounds, b: Bounds) -> Bounds:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _masked(a: Bounds, b: Bounds) -> Bounds | None:
    """What has no bits beyond those of a mask that is not negative, nor of the longer of two."""
    ends = [x[1] for x in (a, b) if x[0] >= 0]
    return (0.0, min(ends)) if ends else _joined(a, b)


def _joined(a: Bounds, b: Bounds) -> Bounds | None:
    """What has no more bits than the longer of the two."""
    ends = (*a, *b)
    if inf in map(abs, ends):
        return None
    top = float(1 << max((int(x) if x >= 0 else -int(x) - 1).bit_length() for x in ends))
    return (0.0 if min(ends) >= 0 else -top), top - 1


def _shifted(a: Bounds, b: Bounds) -> Bounds | None:
    """Over a power of two, rounded down."""
    if b[0] < 0 or inf in (*map(abs, a), b[1]):
        return None
    ends = [float(int(x) >> int(y)) for x in a for y in b]
    return min(ends), max(ends)


def _between(a: Bounds, b: Bounds) -> Bounds:
    return min(a[0], b[0]), max(a[1], b[1])


_RULES: Mapping[str, Callable[..., Bounds | None]] = {
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0.0, max(abs(a[0]), abs(a[1]))),
    "relu": lambda a: (max(a[0], 0.0), max(a[1], 0.0)),
    "square": lambda a: _product(a, a),
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "bit_and": _masked,
    "bit_or": _joined,
    "bit_xor": _joined,
    "shift_right": _shifted,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "where": lambda c, a, b: _between(a, b),
}
