"""Integers of 32 and 64 bits in kernels, which compute in float32: which of them a kernel holds,
and what may be done with those that it does not.

Up to 2^24 float32 has every whole number. How large the numbers of an input are nobody knows: what
is read is the nearest float32. That is what a cast to a float gives; of two such numbers the larger
one is the nearest to the larger one; and each is on the right side of a number below 2^24. Sums and
products of them may be anything, and so may remainders, orders and comparisons with one another.
Positions of reads are another matter: these are computed as integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan
from typing import Any

import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.handlers.registry import rows
from mirage_py.frontend.torch.lower.lowering import INTEGERS, Held, Lowering
from mirage_py.frontend.torch.lower.narrow_integers import is_masked
from mirage_py.frontend.torch.lower.refusals import base_name
from mirage_py.ugraph.building import look_ups
from mirage_py.ugraph.building.views import NamedArray
from mirage_py.ugraph.checks.kept_integers import kept_types
from mirage_py.ugraph.checks.whole_numbers import Bounds, whole_bounds
from mirage_py.ugraph.operators import operator

# Up to here float32 has every whole number; below it none stands for others too.
_WHOLE = 1 << 24
_SMALL = _WHOLE - 1
# What positions are moved by, and compared with then.
_MOVED = 1 << 22
_WIDE = (torch.int64, torch.int32)
_NARROW = (torch.int16, torch.int8, torch.uint8)


# What gives elements of its operands as they are, by places, by a condition or by their order.
_HANDS_ON = (
    "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "dropout", "round", "floor", "ceil",
    "trunc", "where", "masked_fill", "maximum", "minimum", "clamp", "clamp_min", "clamp_max",
    "clip", "hardtanh", "relu", "tril", "triu", "fmax", "fmin", "amax", "amin", "max", "min",
    "fill",
)  # fmt: skip
_READS = ("embedding", "index_select", "index", "_unsafe_index", "gather", "take_along_dim")
_PUTS = ("index_put", "index_copy", "scatter")
_SUMS = ("sum", "cumsum")
_ADDS = ("scatter_add", "index_add", "scatter_reduce")
_POSITIONAL = ("add", "sub", "rsub", "mul")
_SIGNS = ("neg", "abs")
# What is exact of small numbers, although it is no sum and no product.
_REMAINDERS = ("remainder", "fmod")
_DIVIDES = ("floor_divide", "div", *_REMAINDERS)
_ORDERS = ("topk", "sort", "argmax", "argmin")
_SEARCHES = ("bucketize", "searchsorted")
_COMPARES = ("lt", "le", "gt", "ge", "eq", "ne")
_MASKS = ("bitwise_and", "__and__")
_JOINS = ("bitwise_or", "__or__", "bitwise_xor", "__xor__")
_SHIFTS = ("__rshift__", "bitwise_right_shift")
_CASTS = ("_to_copy", "copy")
# What is asked whatever the operands are: the numbers of these may be large.
_ALWAYS = (*_COMPARES, *_SEARCHES, *_MASKS, *_JOINS, *_SHIFTS, *_DIVIDES)


def check_held(t: Lowering, made: Any, args: Sequence[Any]) -> None:
    """Notes how the integers are held that the node in hand has ``made`` of ``args``. Refuses it
    where they would not be torch's, or where it asks for more than is held of its operands.
    """
    node = t.node_in_hand
    operands = {n: held(t, n) for n in node.all_input_nodes}
    name = base_name(str(node.target))
    if name in _ALWAYS or any(how is not Held.EXACT for how in operands.values()):
        _check_operands(t, name, operands, args, made)
    if _kind(node) not in INTEGERS:
        return
    if isinstance(made, NamedArray):
        t.held[node] = _result(t, name, made, _handed(t, name, operands), args)
    else:
        t.held[node] = max(operands.values(), default=Held.EXACT)


def check_result(t: Lowering, node: torch.fx.Node) -> None:
    """Refuses a result of the function, of integers that a kernel does not hold."""
    if held(t, node) > Held.KEPT:
        raise _refusal(t, f"a result of {_kind(node)}")


def note_literal(t: Lowering, node: torch.fx.Node, numbers: torch.Tensor) -> None:
    """Notes how integers are held that a function has written down."""
    small = numbers.is_floating_point() or bool((numbers.double().abs() <= _WHOLE).all())
    t.held[node] = Held.EXACT if small else Held.NEAREST


def held(t: Lowering, node: torch.fx.Node) -> Held:
    """How the integers of a node are held; what is none, or narrow, always is EXACT."""
    if _kind(node) not in _WIDE:
        return Held.EXACT
    if "getitem" in str(node.target):
        whole, number = node.args
        assert isinstance(whole, torch.fx.Node)
        # Of an order the second result are positions.
        orders = rows()[str(whole.target)].family in ("ordered", "reductions")
        return Held.EXACT if orders and number == 1 else t.held.get(whole, Held.EXACT)
    unknown = {"placeholder": Held.KEPT, "get_attr": Held.NEAREST}
    return t.held.get(node, unknown.get(node.op, Held.EXACT))


def _kind(node: torch.fx.Node) -> torch.dtype | None:
    """The type of a tensor, or of the first of several."""
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    return first.dtype if isinstance(first, torch.Tensor) else None


def _bounds(t: Lowering, number: int) -> Bounds | None:
    """The least and the greatest that a whole number may be, where inputs have any of their type.

    Only bounds that choices, masks and types give say something of what is not held exactly.
    """
    found = whole_bounds(t.builder.nodes, t.builder.sizes, t.builder.inputs)[number]
    return None if found is None or any(map(isnan, found)) else found


def _is_within(bounds: Bounds | None, most: int) -> bool:
    return bounds is not None and -most <= bounds[0] and bounds[1] <= most


def _are_kept(t: Lowering, numbers: Sequence[int]) -> bool:
    found = kept_types(t.builder.nodes, t.builder.inputs)
    return all(found[n] is not None for n in numbers)


def _is_view(node: torch.fx.Node) -> bool:
    row = rows().get(str(node.target))
    return row is None or row.aliases or row.family == "shapes"


def _makes_constant(node: torch.fx.Node) -> bool:
    """Whether it takes no more than a shape or a type of its operands."""
    return rows()[str(node.target)].family == "constants" and base_name(str(node.target)) != "fill"


def _refusal(t: Lowering, what: str) -> UnsupportedError:
    return t.refuse(
        f"{what} is not supported here",
        why="kernels compute integers as float32, up to 2^24 and without wrapping around, and "
        "nothing says that these are small",
        repair="clamp them where they are known to be small, convert to float32, or leave this "
        "step to torch",
    )


# -- operands --------------------------------------------------------------------------------------


def _check_operands(
    t: Lowering, name: str, operands: dict[torch.fx.Node, Held], args: Sequence[Any], made: Any
) -> None:
    node = t.node_in_hand
    if name in (*_READS, *_PUTS, *_ADDS):
        _check_positions(t, name, operands, args)
        return
    if _is_view(node) or _makes_constant(node) or (name in _POSITIONAL and _kind(node) in _WIDE):
        return
    worst = max(operands.values())
    if worst is Held.LOST and name in _HANDS_ON and _kind(node) in _WIDE:
        return  # as a position it may still be known
    is_summed = worst is Held.SUMMED and not _takes_sums(t, name)
    is_lost = worst is Held.LOST and not (name in _DIVIDES and _is_of_bits(t, made))
    if is_lost or is_summed:
        raise _refusal(t, f"torch operator {node.target} of integers of any size")
    if name in (*_COMPARES, *_SEARCHES):
        _check_compared(t, args)
    elif name in (*_ORDERS, "kthvalue") or (
        name in ("max", "min") and isinstance(node.meta["val"], tuple)
    ):
        if worst > Held.WHOLE:
            raise _refusal(t, "an order of integers of any size")
    elif name in _DIVIDES and _kind(node) in INTEGERS:
        _check_divided(t, name, operands, args, made)
    elif name in (*_MASKS, *_JOINS, *_SHIFTS):
        _check_bits(t, name, operands, args)
    elif name in _CASTS and _kind(node) in _NARROW and worst is not Held.KEPT:
        raise _refusal(t, "the low bits of integers of any size")


def _check_divided(
    t: Lowering, name: str, operands: dict[torch.fx.Node, Held], args: Sequence[Any], made: Any
) -> None:
    worst = max(operands.values())
    most = Held.WHOLE if name in _REMAINDERS else Held.EXACT
    others = [how for n, how in operands.items() if n is not t.node_in_hand.args[0]]
    if t.result_dtype() in _WIDE and _is_of_bits(t, made):
        is_known = worst in (Held.EXACT, Held.KEPT) or look_ups.is_position(t.builder, made.node)
    else:
        is_known = worst <= most and not any(how is not Held.EXACT for how in others)
        is_known = is_known and not _is_large(args)
    if not is_known:
        raise _refusal(t, "a division of integers of any size")


def _takes_sums(t: Lowering, name: str) -> bool:
    """Whether sums of integers of any size, which are as exact as those of floats, are operands of
    the node in hand: what converts them, or hands them on until they are converted.
    """
    kind = t.result_dtype()
    hands_on = name in (*_HANDS_ON, *_CASTS, *_SUMS) and kind in _WIDE
    return kind.is_floating_point or hands_on


def _check_positions(
    t: Lowering, name: str, operands: dict[torch.fx.Node, Held], args: Sequence[Any]
) -> None:
    """An index is computed with integers where it is an index expression, else it is compared."""
    lost = [n for n, how in operands.items() if how >= Held.SUMMED]
    indices = _arrays(args[1:])
    compared = name not in _READS or not all(
        look_ups.is_position(t.builder, i.node) for i in indices
    )
    if lost and (compared or t.node_in_hand.args[0] in lost):
        raise _refusal(t, "a position of any size")
    for index in indices if name in _READS else ():
        _check_choice(t, index.node)


def _check_choice(t: Lowering, number: int) -> None:
    """The larger of two positions is chosen by a comparison of floats."""
    node = t.builder.nodes[number]
    if node.op not in ("where", "maximum", "minimum"):
        return
    sides = node.args[-2:]
    if node.op != "where" and not _are_kept(t, sides):
        small = [a for a in sides if _is_within(_bounds(t, a), _MOVED)]
        if not small or not all(_is_ordered(t, a) for a in sides if a not in small):
            raise _refusal(t, "a position that is the larger of two of any size")
    for a in sides:
        _check_choice(t, a)


def _is_ordered(t: Lowering, number: int) -> bool:
    """Whether integers are on the right side of each small number, as those of an input are, and
    these moved by a small number.
    """
    node = t.builder.nodes[number]
    if node.op in ("maximum", "minimum", "where"):
        return all(_is_ordered(t, a) for a in node.args[-2:])
    if node.op not in ("add", "sub"):
        return _is_within(_bounds(t, number), _MOVED) or _are_kept(t, [number])
    moved = [a for a in node.args if not _is_within(_bounds(t, a), _MOVED)]
    return len(moved) < 2 and all(_are_kept(t, [a]) for a in moved)


def _check_compared(t: Lowering, args: Sequence[Any]) -> None:
    """One side is small, or both are kept, or both are floats: of these torch compares floats, and
    so do kernels if they do not keep them.
    """
    nodes = t.node_in_hand.args[:2]
    sides = [t.array(x).node for x in args[:2]]
    hows = [held(t, n) if isinstance(n, torch.fx.Node) else Held.EXACT for n in nodes]
    most = _MOVED if max(hows) is Held.MOVED else _SMALL
    is_position = all(t.builder.nodes[s].op in ("index", "const") for s in sides)
    if is_position or any(_is_below(t, s, most) for s in sides):
        return
    if max(hows) is Held.MOVED:
        raise _refusal(t, "a comparison of integers of any size")
    kept = _are_kept(t, sides)
    whole = all(_is_integer(n) for n in nodes)
    floats = [not isinstance(n, torch.fx.Node) or held(t, n) is Held.WHOLE for n in nodes]
    if kept != whole and not (whole and all(floats)):
        raise _refusal(t, "a comparison of integers of any size")


def _is_below(t: Lowering, number: int, most: int) -> bool:
    """Whether a number is known to be small."""
    node = t.builder.nodes[number]
    if node.op == "const" and isinstance(node.attr, float):
        return abs(node.attr) <= most
    return _is_within(_bounds(t, number), most)


def _is_integer(operand: object) -> bool:
    if isinstance(operand, torch.fx.Node):
        kind = _kind(operand)
        return kind is not None and not kind.is_floating_point
    return isinstance(operand, int)


def _check_bits(
    t: Lowering, name: str, operands: dict[torch.fx.Node, Held], args: Sequence[Any]
) -> None:
    """Words of 32 bits are there with all bits where they are kept; of longer ones the low bits."""
    low = name in _MASKS and any(_is_within(_bounds(t, t.array(x).node), _WHOLE) for x in args[:2])
    if _is_large(args):
        raise _refusal(t, "a mask of so many bits")
    count = t.node_in_hand.args[1] if name in _SHIFTS else None
    for n, how in operands.items():
        if n is count and how < Held.SUMMED:
            continue  # torch takes numbers below the bits of a type, which all are held
        if how is not Held.EXACT and (how is not Held.KEPT or not (low or _kind(n) is torch.int32)):
            raise _refusal(t, f"the bits of {_kind(n)}")


def _arrays(values: Any) -> list[NamedArray]:
    if isinstance(values, NamedArray):
        return [values]
    return [x for v in values for x in _arrays(v)] if isinstance(values, (tuple, list)) else []


# -- results ---------------------------------------------------------------------------------------


def _handed(t: Lowering, name: str, operands: dict[torch.fx.Node, Held]) -> Held:
    """The worst of what goes into the elements of a result."""
    node = t.node_in_hand
    if name in _READS:  # the others are positions
        return operands[node.all_input_nodes[0]]
    numbers: list[Any] = []
    if name in (*_HANDS_ON, *_PUTS):
        numbers = [*node.args[1:], *node.kwargs.values()]
    elif name == "constant_pad_nd":
        numbers = [*node.args[2:]]
    return max(Held.NEAREST if _is_large(numbers) else Held.EXACT, *operands.values(), Held.EXACT)


def _is_large(values: Sequence[Any]) -> bool:
    """Whether one of the numbers among values is no small one."""
    return any(isinstance(x, (int, float)) and _WHOLE < abs(x) < inf for x in values)


def _result(t: Lowering, name: str, made: NamedArray, worst: Held, args: Sequence[Any]) -> Held:
    node, kind = t.node_in_hand, t.result_dtype()
    if is_masked(node):
        return Held.EXACT
    if name in _DIVIDES and kind in _WIDE and _is_of_bits(t, made):
        return _of_bits(t, made, worst)
    limits, bounds = torch.iinfo(kind), _bounds(t, made.node)
    fits = bounds is not None and limits.min <= bounds[0] and bounds[1] <= limits.max
    is_written_down = t.builder.nodes[made.node].op in ("index", "const")
    is_element = _is_view(node) or name in _READS
    if kind not in _WIDE:
        if not (fits or is_element or is_written_down):
            raise _arithmetic(t)
        return Held.EXACT
    puts = name in _PUTS and not (name == "index_put" and len(args) > 3 and args[3])
    hands_on = is_element or puts or name in _HANDS_ON or _is_chosen(t, name, args)
    most = _MOVED if worst is Held.MOVED else _WHOLE
    if fits and _is_within(bounds, most) and worst is not Held.LOST:
        return Held.EXACT
    if is_written_down:
        return Held.NEAREST
    if name in _CASTS:
        worst = _cast(t, worst)
    if hands_on or name in _CASTS:
        if worst in (Held.KEPT, Held.NEAREST):
            bits = operator(t.builder.nodes[made.node].op).is_bitwise
            is_kept = _are_kept(t, [made.node]) or (worst is Held.KEPT and bits)
            return Held.KEPT if is_kept else Held.NEAREST
        return worst
    return _computed(t, name, worst, args)


def _is_of_bits(t: Lowering, made: Any) -> bool:
    """Whether a quotient or remainder is taken of the bits of a word."""
    is_array = isinstance(made, NamedArray)
    return is_array and t.builder.nodes[made.node].op in ("bit_and", "shift_right")


def _of_bits(t: Lowering, made: NamedArray, worst: Held) -> Held:
    """The low bits are those of every integer in memory, the others of words of 32 bits; as a
    position each is computed with integers.
    """
    node = t.builder.nodes[made.node]
    is_small = _is_within(_bounds(t, node.args[0]), _WHOLE)
    if node.op == "bit_and" and (worst <= Held.KEPT or is_small):
        return Held.EXACT
    if worst > Held.KEPT:
        return Held.LOST
    is_word = t.result_dtype() is torch.int32
    return Held.KEPT if is_word else Held.LOST


def _computed(t: Lowering, name: str, worst: Held, args: Sequence[Any]) -> Held:
    """How integers are held that are computed of others, and not known to be small."""
    if worst is Held.EXACT and name in (*_DIVIDES, *_ORDERS):
        return worst
    if worst is Held.WHOLE and name in (*_DIVIDES, *_ORDERS, *_SIGNS):
        return worst
    if name in (*_MASKS, *_JOINS, *_SHIFTS) and worst is Held.KEPT:
        return worst
    if _is_moved(t, name, worst, args):
        return Held.MOVED
    moves = name in ("add", "sub", "rsub") and worst is Held.SUMMED
    if moves or (name in _SUMS and worst in (Held.KEPT, Held.NEAREST, Held.SUMMED)):
        return Held.SUMMED
    if name in _POSITIONAL:
        return Held.LOST
    raise _arithmetic(t)


def _is_moved(t: Lowering, name: str, worst: Held, args: Sequence[Any]) -> bool:
    """Whether small numbers are added to others of 64 bits, which wrap around at the ends of the
    type alone.
    """
    plain = len(args) == 2 and t.node_in_hand.kwargs.get("alpha", 1) == 1
    if name not in ("add", "sub", "rsub") or not plain or t.result_dtype() is not torch.int64:
        return False
    small = [_is_within(_bounds(t, t.array(x).node), _MOVED) for x in args]
    return any(small) and Held.EXACT < worst < Held.MOVED


def _is_chosen(t: Lowering, name: str, args: Sequence[Any]) -> bool:
    """Whether it is a product with truth values."""
    return name == "mul" and any(_is_bit(_bounds(t, t.array(x).node)) for x in args[:2])


def _is_bit(bounds: Bounds | None) -> bool:
    return bounds is not None and 0 <= bounds[0] and bounds[1] <= 1


def _cast(t: Lowering, worst: Held) -> Held:
    """How a cast to wide integers holds them: those of floats are whole, and longer ones wrap."""
    node = t.node_in_hand
    have = t.torch_dtype(1 if base_name(str(node.target)) == "copy" else 0)
    if have.is_floating_point:
        return Held.WHOLE
    wraps = have is torch.int64 and t.result_dtype() is torch.int32
    return Held.LOST if wraps and worst is not Held.EXACT else worst


def _arithmetic(t: Lowering) -> UnsupportedError:
    return t.refuse(
        f"arithmetic of {t.result_dtype()} is not supported here",
        why="kernels compute integers as float32, up to 2^24 and without wrapping around",
        repair="convert to float32 first",
    )
