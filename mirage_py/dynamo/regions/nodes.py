"""A node of an ATen graph as the partition sees it: kind, size, work, and why it is not in a
region.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch.fx import Node

from mirage_py.frontend.torch.handlers import HANDLERS
from mirage_py.frontend.torch.lower.lowering import program_dtype
from mirage_py.frontend.torch.lower.narrow_integers import is_masked
from mirage_py.frontend.torch.lower.refusals import refusal
from mirage_py.reasons import Code, Reason, reason

# Kinds. Nodes of the first four cost nothing and belong wherever they are needed.
SYMBOL = "symbol"  # a size: an integer, not a tensor
VIEW = "view"  # shares memory with its operand
CONSTANT = "constant"  # depends on no input: positions, masks, numbers
POSITION = "position"  # made of constants and single integers: how long a cache is, masks of it
POINTWISE = "pointwise"
REDUCTION = "reduction"
PRODUCT = "product"
ATTENTION = "attention"
WRITE = "write"  # to a place in an input of the graph, which nothing else reads
LEFT = "left"  # not for a region

# What a size is taken for where torch does not know it.
_UNKNOWN_EXTENT = 64
# Operators of a program that a handler makes of one node, where it is more than one.
_WEIGHTS = {
    "_softmax": 4, "_safe_softmax": 4, "softmax": 4, "_log_softmax": 5, "log_softmax": 5,
    "logsumexp": 5, "mean": 2, "var": 4, "std": 5, "addmm": 2, "baddbmm": 2, "cat": 2, "stack": 2,
    "clamp": 2, "group_norm": 8, "layer_norm": 8, "rms_norm": 5, "linalg_vector_norm": 3,
    "_scaled_mm": 3, "__lshift__": 5, "bitwise_left_shift": 5,
}  # fmt: skip
_ATTENTION_WEIGHT = 8
# What makes positions of others, and masks.
_COUNTING = ("add", "sub", "rsub", "mul", "clamp", "maximum", "minimum", "_to_copy")
_CHOOSING = (
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "bitwise_and",
    "bitwise_or", "bitwise_not", "where", "masked_fill", "scalar_tensor",
)  # fmt: skip
_LOOK_UPS = ("embedding", "index_select", "index", "_unsafe_index", "gather", "take_along_dim")
_JOINING = ("cat", "stack")
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
# What takes a part of a tensor; and of other operators the arguments that are sizes of the result.
_CUTTING = ("slice", "select", "narrow")
_SHAPE_ARGUMENTS = {
    "view.default": (1,), "_unsafe_view.default": (1,), "reshape.default": (1,),
    "expand.default": (1,), "broadcast_to.default": (1,), "unflatten.int": (2,),
    "full.default": (0,), "zeros.default": (0,), "ones.default": (0,), "new_full.default": (1,),
    "new_zeros.default": (1,), "new_ones.default": (1,), "arange.default": (0,),
    "arange.start": (1,),
}  # fmt: skip
_PLAIN_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the partition knows of a node.

    ``reason`` says why a node of kind ``left`` is; ``bytes`` is the size of its result, ``flops``
    what a product or an attention computes, ``weight`` how many operators of a program it becomes.
    """

    kind: str
    reason: Reason | None = None
    bytes: int = 0
    flops: float = 0.0
    weight: int = 1


def classify(
    graph: torch.fx.Graph,
    *,
    float64: bool = False,
    refused: Mapping[Node, Reason] | None = None,
    in_place: Collection[Node] = (),
) -> dict[Node, Facts]:
    """The facts of every node. With ``float64`` that type is taken for another float; nodes that
    were ``refused`` are left, with these reasons. A region may write the nodes ``in_place``
    (writes.py).
    """
    found: dict[Node, Facts] = {}
    for node in graph.nodes:
        why = refused.get(node) if refused else None
        if why is not None:
            found[node] = Facts(LEFT, why, _bytes(node))
        elif node in in_place:
            found[node] = Facts(WRITE, None, _bytes(written_value(node)), 0.0, 0)
        else:
            found[node] = _facts(node, found, float64)
    return found


def tensors_of(node: Node) -> tuple[torch.Tensor, ...]:
    """The tensors that a node stands for, as torch describes them."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(v for v in values if isinstance(v, torch.Tensor))


def is_half(node: Node) -> bool:
    """Whether its data, if it has any, are of types that tensor cores multiply."""
    kinds = [t.dtype for t in tensors_of(node)]
    return all(k in (torch.float16, torch.bfloat16) or not k.is_floating_point for k in kinds)


def extent(size: Any) -> int:
    """A size as a number; of a symbol its value in the example, where there is one."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return int(hint) if isinstance(hint, int) else _UNKNOWN_EXTENT


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape in numbers."""
    return tuple(extent(s) for s in tensor.shape)


def bytes_of(tensor: torch.Tensor) -> int:
    """The bytes that hold the tensor; repeated elements (stride 0) count once."""
    strides = tensor.stride()
    extents = zip(shape_of(tensor), strides, strict=True)
    return prod(e for e, s in extents if extent(s) != 0) * tensor.element_size()


def base_name(node: Node) -> str:
    """``aten.mm.default`` -> ``mm``."""
    return _base_name(node.target)


@cache
def _base_name(target: object) -> str:
    parts = str(target).split(".")
    return parts[1] if len(parts) > 2 else parts[0]


def looks_up(node: Node) -> bool:
    """Whether it reads at positions that are data: of each operand no more than it makes."""
    return base_name(node) in _LOOK_UPS


def is_copy(node: Node) -> bool:
    """Whether it gives its operand in another type or layout, and nothing else."""
    return base_name(node) in ("_to_copy", "clone")


def sums_rows(node: Node) -> bool:
    """Whether a reduction goes over other axes than the last one: over what rows hold together."""
    if HANDLERS[str(node.target)].family != "reductions":
        return False
    rank = len(shape_of(tensors_of(node.all_input_nodes[0])[0]))
    axes = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    numbers = [axes] if isinstance(axes, int) else axes
    if not isinstance(numbers, (list, tuple)):
        return rank > 1
    return any(isinstance(a, int) and a % max(rank, 1) != rank - 1 for a in numbers)


def is_taken(facts: Facts) -> bool:
    """Whether a region may compute the node."""
    return facts.kind in (POINTWISE, REDUCTION, PRODUCT, ATTENTION, WRITE)


@dataclass(frozen=True, slots=True)
class Placing:
    """What a node writes into its first operand: ``value`` at ``positions`` of an ``axis``, or at
    consecutive ones from a number on. They may count ``from_back``, where they are negative.
    """

    value: Node
    axis: int
    positions: Node | int
    from_back: bool = False


def placing(node: Node) -> Placing | None:
    """How a node writes into its first operand; None where it does not, or otherwise."""
    name = base_name(node)
    if name not in ("index_copy", "index_put", "slice_scatter"):
        return None
    schema: Any = node.target
    names = [a.name for a in schema._schema.arguments]  # noqa: SLF001
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if name == "index_copy":
        value, axis, positions = given["source"], given["dim"], given["index"]
    elif name == "index_put":
        axes = [n for n, index in enumerate(given["indices"]) if index is not None]
        if len(axes) != 1 or given.get("accumulate"):
            return None
        value, axis, positions = given["values"], axes[0], given["indices"][axes[0]]
    else:
        value, axis, positions = given["src"], given.get("dim", 0), given.get("start") or 0
        if given.get("step", 1) != 1 or not isinstance(positions, int):
            return None
    if not isinstance(value, Node) or not isinstance(axis, int):
        return None
    whole = tensors_of(node)[0]
    axis %= max(whole.dim(), 1)
    if isinstance(positions, int) and positions < 0:
        positions += extent(whole.shape[axis])
    return Placing(value, axis, positions, from_back=name == "index_put")


def is_write(node: Node) -> bool:
    """Whether it gives its first operand with positions of an axis written. In a region that is a
    result in place, and nothing else.
    """
    return placing(node) is not None


def written_value(node: Node) -> Node:
    """What a node writes to a place in a tensor."""
    found = placing(node)
    assert found is not None
    return found.value


_WIDE = (torch.bool, torch.int32, torch.int64)
# What stands around them may be a region.
_LEFT_TO_INDUCTOR = ("convolutions", "pooling", "ordered")
# What puts a part into a tensor, and what makes one of a single number.
_PUTTING = ("slice_scatter", "select_scatter")
_FILLED = {"empty": None, "zeros": None, "new_empty": None, "new_zeros": None, "full": 1}
# Inductor writes the part in place, where what a graph has is a copy of all.
_MOST_WRITTEN_DOWN = 16
_WRITING = ("slice_scatter", "select_scatter", "index_put", "index_copy", "scatter")


def written_down(node: Node) -> torch.Tensor | None:
    """The tensor of a few numbers that a function has written down, as tables of codes are."""
    module = node.graph.owning_module
    if node.op != "get_attr" or module is None or "." in str(node.target):
        return None
    held = getattr(module, str(node.target), None)
    is_fresh = all(base_name(user) == "lift_fresh_copy" for user in node.users)
    if type(held) is not torch.Tensor or not is_fresh or held.numel() > _MOST_WRITTEN_DOWN:
        return None
    return held if program_dtype(held.dtype) is not None else None


def _facts(node: Node, known: Mapping[Node, Facts], float64: bool) -> Facts:
    if node.op != "call_function":
        return Facts(LEFT if written_down(node) is None else CONSTANT)
    value = node.meta.get("val")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
        return Facts(SYMBOL)
    if node.target is operator.getitem:
        whole = known[node.all_input_nodes[0]]
        return Facts(LEFT if whole.kind == LEFT else VIEW, whole.reason, _bytes(node))
    row = HANDLERS.get(str(node.target))
    if row is None:
        return Facts(LEFT, reason(Code.NO_HANDLER, refusal(str(node.target)).why), _bytes(node))
    if (why := _cannot_be_taken(node, known, float64)) is not None:
        return Facts(LEFT, why, _bytes(node))
    tensors = [n for n in node.all_input_nodes if tensors_of(n)]
    if all(known[n].kind == CONSTANT for n in tensors):
        return Facts(CONSTANT)
    if row.aliases:
        return Facts(VIEW, bytes=_bytes(node))
    if _is_position(node, tensors, known):
        return Facts(POSITION)
    weight = _WEIGHTS.get(base_name(node), 1)
    size = _bytes(node)
    if row.family == "contractions":
        # A sum of one element: Inductor fuses it like any other multiplication.
        if base_name(node) in _PLAIN_PRODUCTS and _inner(node) == 1:
            return Facts(POINTWISE, None, size, 0.0, weight)
        return Facts(PRODUCT, None, size, _product_flops(node), weight)
    if row.family == "attention":
        return Facts(ATTENTION, None, size, _attention_flops(node), _ATTENTION_WEIGHT)
    is_reduction = row.family in ("reductions", "normalisations", "losses")
    return Facts(REDUCTION if is_reduction else POINTWISE, None, size, 0.0, weight)


def cuts_at_size(node: Node) -> bool:
    """Whether it takes a part of a tensor that a symbolic size says: where it lies and how long it
    is torch works out, so that the part has an axis of that size.
    """
    return base_name(node) in _CUTTING and len(_numbers(node)) > 0


def _computes_with_size(node: Node) -> bool:
    """Whether a symbolic size is a number in what it computes, as how many tokens came before.

    A kernel takes the sizes of its tensors and no other numbers, so it would hold for one size.
    """
    numbers = _numbers(node)
    if not numbers or base_name(node) in _CUTTING:
        return False
    sizes = _SHAPE_ARGUMENTS.get(str(node.target).removeprefix("aten."), ())
    given = [a for n in sizes if n < len(node.args) for a in _nodes_in(node.args[n])]
    return any(n not in given for n in numbers)


def _numbers(node: Node) -> list[Node]:
    """The operands that are sizes, of which torch has an expression."""
    return [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), _SYMBOLIC)]


def _nodes_in(argument: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.map_arg(argument, found.append)
    return found


def _is_position(node: Node, operands: Sequence[Node], known: Mapping[Node, Facts]) -> bool:
    name, made = base_name(node), tensors_of(node)
    if len(made) != 1 or name not in (*_COUNTING, *_CHOOSING):
        return False
    few = prod(shape_of(made[0])) == 1 or (made[0].dim() == 1 and name in ("add", "sub"))
    counts = few and not made[0].dtype.is_floating_point
    if name in _COUNTING and not counts:
        return False
    others = [n for n in operands if known[n].kind != CONSTANT]
    is_near = all(t.device == made[0].device for n in others for t in tensors_of(n))
    return is_near and all(_holds_position(n, known) for n in others)


def _holds_position(node: Node, known: Mapping[Node, Facts]) -> bool:
    """Whether it is one integer, or made of such."""
    while known[node].kind == VIEW and node.target is not operator.getitem:
        node = node.all_input_nodes[0]
    if known[node].kind in (POSITION, CONSTANT):
        return True
    values = tensors_of(node)
    are_integers = all(v.dtype in (torch.int32, torch.int64) for v in values)
    return are_integers and [prod(shape_of(v)) for v in values] == [1]


def holds_codes(node: Node) -> bool:
    """Whether a result of integers stays within its type, as the codes of packed weights do."""
    bounds, (first, *_) = _bounds(node), tensors_of(node)
    limits = torch.iinfo(first.dtype)
    return bounds is not None and limits.min <= bounds[0] and bounds[1] <= limits.max


def _bounds(node: Node) -> tuple[int, int] | None:
    """The least and the greatest number that a result of codes may have, where that is seen."""
    name, (first, second) = base_name(node), (*node.args[:2], None, None)[:2]
    if name in ("bitwise_and", "__and__"):
        return (0, second) if isinstance(second, int) and second >= 0 else None
    if (choices := _chosen_from(node)) is not None:
        return _either(choices)
    if not isinstance(first, Node):
        return None
    if name in ("__lshift__", "bitwise_left_shift"):
        kind = torch.iinfo(tensors_of(node)[0].dtype)
        return kind.min, kind.max
    if name in ("__rshift__", "bitwise_right_shift"):
        limits = [torch.iinfo(t.dtype) for t in tensors_of(first) if not t.dtype.is_floating_point]
        shift = second if isinstance(second, int) else 0
        return (limits[0].min >> shift, limits[0].max >> shift) if limits else None
    if name in ("clamp", "hardtanh"):
        return _clamped(node)
    inner = _bounds(first)
    if inner is None:
        return None
    if name in ("sub", "add") and node.kwargs.get("alpha", 1) == 1:
        other = _bounds_of(second)
        if other is None:
            return None
        low, high = other if name == "add" else (-other[1], -other[0])
        return inner[0] + low, inner[1] + high
    return inner if name in ("_to_copy", "index") or _keeps_integers(node) else None


def _chosen_from(node: Node) -> Sequence[Any] | None:
    """The operands or numbers that each element of a result is one of; None for what computes."""
    name, first = base_name(node), node.args[0] if node.args else None
    if name in _FILLED:  # of what nobody fills torch says nothing
        place = _FILLED[name]
        return [0 if place is None else node.args[place]]
    if name in _PUTTING:
        return [*node.args[:2]]
    if name == "where":
        return [*node.args[1:]]
    return [*first] if name in _JOINING and isinstance(first, Sequence) else None


def _bounds_of(operand: Any) -> tuple[int, int] | None:
    """Those of an operand: a whole number has its own."""
    if isinstance(operand, int):
        return operand, operand
    return _bounds(operand) if isinstance(operand, Node) and operand.op != "placeholder" else None


def _either(operands: Sequence[Any]) -> tuple[int, int] | None:
    """The bounds of what is one of several."""
    found = [_bounds_of(operand) for operand in operands]
    known = [b for b in found if b is not None]
    if not known or len(known) < len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _clamped(node: Node) -> tuple[int, int] | None:
    """The whole numbers on both sides of which a value is cut off."""
    sides = [*node.args[1:3], node.kwargs.get("min"), node.kwargs.get("max")]
    numbers = [n for n in sides if isinstance(n, int | float) and float(n).is_integer()]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def _keeps_integers(node: Node) -> bool:
    row = HANDLERS[str(node.target)]
    name = base_name(node)
    return row.aliases or row.family in ("shapes", "reads") or name in ("clone", *_PUTTING)


def _bytes(node: Node) -> int:
    return sum(map(bytes_of, tensors_of(node)))


def _cannot_be_taken(node: Node, known: Mapping[Node, Facts], float64: bool) -> Reason | None:
    """Why the node cannot be in a region although there is a handler; None where it can."""
    operands = [n for n in node.all_input_nodes if tensors_of(n)]
    constant = all(known[n].kind == CONSTANT for n in operands)
    # Of several results those that nobody reads do not matter.
    parts = [n for n in node.users if n.target is operator.getitem]
    results = [n for n in parts if n.users] or [node]
    device = next((t.device for n in results for t in tensors_of(n)), None)
    for tensor in (t for n in results for t in tensors_of(n)):
        if 0 in shape_of(tensor):
            return Reason(Code.EMPTY_TENSOR)
        kind = tensor.dtype
        if kind.is_complex:
            return Reason(Code.COMPLEX_NUMBERS)
        allowed = program_dtype(kind) is not None or (float64 and kind is torch.float64)
        # Arithmetic of narrow integers wraps around.
        narrow = not kind.is_floating_point and kind not in _WIDE
        wraps = narrow and not (_keeps_integers(node) or is_masked(node) or holds_codes(node))
        if (not allowed or wraps) and not constant:
            return reason(Code.RESULT_TYPE, str(kind).removeprefix("torch."))
    read = [t for n in operands if known[n].kind != CONSTANT for t in tensors_of(n)]
    for tensor in read:
        if program_dtype(tensor.dtype) is None and not (float64 and tensor.dtype is torch.float64):
            return reason(Code.OPERAND_TYPE, str(tensor.dtype).removeprefix("torch."))
    # As a number on the CPU, which torch takes with tensors on a GPU.
    if any(t.device != device for t in read):
        return Reason(Code.OPERAND_DEVICE)
    if base_name(node) in _JOINING and any(_comes_from_outside(n, known) for n in operands):
        return Reason(Code.GROWING_CACHE)
    if _computes_with_size(node):
        return Reason(Code.SIZE_IS_NUMBER)
    family = HANDLERS[str(node.target)].family
    writes = base_name(node) in _WRITING and not _fills(node, known)
    if family in _LEFT_TO_INDUCTOR or writes:
        return Reason(Code.LEFT_TO_INDUCTOR)
    if family == "attention":
        return _attention_reason(node, results)
    return None


def _fills(node: Node, known: Mapping[Node, Facts]) -> bool:
    """Whether it puts parts into a tensor that the graph has made, as two codes of each byte."""
    whole = node
    while base_name(whole) in _PUTTING and isinstance(whole.args[0], Node):
        whole = whole.args[0]
    return whole is not node and known[whole].kind == CONSTANT


def _comes_from_outside(node: Node, known: Mapping[Node, Facts]) -> bool:
    while known[node].kind == VIEW:
        node = node.all_input_nodes[0]
    return known[node].kind == LEFT


def _attention_reason(node: Node, results: Sequence[Node]) -> Reason | None:
    wanted = [n.args[1] for n in results if n is not node and n.users]
    if any(number != 0 for number in wanted):
        return Reason(Code.GRADIENT_OF_ATTENTION)
    return None


def _product_flops(node: Node) -> float:
    return 2.0 * prod(shape_of(tensors_of(node)[0])) * _inner(node)


def _inner(node: Node) -> int:
    """What a product sums over."""
    left = next((a for a in node.args if isinstance(a, Node)), None)
    if base_name(node) in ("addmm", "baddbmm"):
        left = node.args[1] if isinstance(node.args[1], Node) else None
    if left is None or not tensors_of(left):  # an einsum: its operands are in a list
        left = node.all_input_nodes[0]
    return prod(shape_of(tensors_of(left)[0])[-1:])


def _attention_flops(node: Node) -> float:
    query, key = (shape_of(tensors_of(n)[0]) for n in node.args[:2])  # type: ignore[arg-type]
    return 4.0 * prod(query) * key[-2]
