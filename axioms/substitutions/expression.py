"""Expressions of substitutions: operators of networks over inputs whose axes are named sizes.

An axis is a tuple of sizes, one after the other: what ``concat`` joins and ``split`` takes apart.
So the type ``[m, p+q]`` says that the second axis is p elements, then q. Two axes of one name are
equally long, and that is how a rule states its conditions on shapes. An image is ``[n, c, h]``, a
kernel of a convolution ``[o, c, r]``: ``h`` and ``r`` stand for all spatial axes together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mirage_py.errors import InputError

Axis = tuple[str, ...]
Type = tuple[Axis, ...]
Attr = str | int | Axis | Type

# Operators: how many operands, and the names of the attributes.
OPERATORS: dict[str, tuple[int, tuple[str, ...]]] = {
    "input": (0, ("name", "type")),
    "add": (2, ()),
    "mul": (2, ()),
    "relu": (1, ()),
    "matmul": (2, ()),
    "transpose": (1, ()),
    "concat": (2, ("axis",)),
    "split": (1, ("axis", "index", "sizes")),
    "conv": (2, ("window", "groups")),
    "enlarge": (1, ("margin",)),
    "max_pool": (1, ("window", "kernel")),
    "avg_pool": (1, ("window", "kernel")),
}
# Windows: any stride, padding and dilation; padding by half of an odd kernel; that with stride 1.
ANY, SAME, UNIT = "any", "same", "unit"


@dataclass(frozen=True)
class Expr:
    """An operator with its attributes, in the order of ``OPERATORS``, over expressions.

    A ``split`` is one of the results, ``index`` says which.
    """

    op: str
    attrs: tuple[Attr, ...] = ()
    args: tuple[Expr, ...] = ()
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        arity, names = OPERATORS[self.op]
        if len(self.args) != arity or len(self.attrs) != len(names):
            raise InputError(f"'{self.op}' takes {arity} operands and the attributes {names}")
        object.__setattr__(self, "_hash", hash((self.op, self.attrs, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def attr(self, name: str) -> Attr:
        """An attribute by its name."""
        return self.attrs[OPERATORS[self.op][1].index(name)]

    @property
    def name(self) -> str:
        """The name of an input."""
        return str(self.attrs[0])

    @cached_property
    def type(self) -> Type:
        """The shape; raises InputError where the operator has none for its operands."""
        return result_type(self.op, self.attrs, [a.type for a in self.args])


def nodes(*roots: Expr) -> Iterator[Expr]:
    """Every distinct expression once, operands first."""
    seen: dict[Expr, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        here, ready = stack.pop()
        if here in seen:
            continue
        if ready:
            seen[here] = None
            yield here
        else:
            stack.append((here, True))
            stack.extend((a, False) for a in reversed(here.args))


def inputs(*roots: Expr) -> list[Expr]:
    """The inputs, in the order in which they are met."""
    return [x for x in nodes(*roots) if x.op == "input"]


def operators(*roots: Expr) -> int:
    """How many operators there are; the results of one split are one."""
    made = {
        (x.op, x.attr("axis"), x.attr("sizes"), x.args) if x.op == "split" else x
        for x in nodes(*roots)
        if x.op != "input"
    }
    return len(made)


def shape_error(op: str, of: Sequence[Type], why: str) -> InputError:
    """The error of a shape rule."""
    return InputError(f"{op} of {', '.join(map(type_text, of))} has no shape", why=why)


def result_type(op: str, attrs: tuple[Attr, ...], of: Sequence[Type]) -> Type:
    """The shape rule of an operator; raises InputError where it has none for these operands."""
    named = dict(zip(OPERATORS[op][1], attrs, strict=True))
    match op:
        case "input":
            return named["type"]  # type: ignore[return-value]
        case "relu":
            return of[0]
        case "add" | "mul" | "matmul" | "transpose":
            return _plain_type(op, of)
        case "concat":
            return _concat_type(int(str(named["axis"])), of)
        case "split":
            return _split_type(named, of)
    if any(len(t) != 3 for t in of):
        raise shape_error(op, of, "an operand is no image and no kernel")
    (n, c, h), window = of[0], str(named.get("window"))
    if op == "conv":
        return _conv_type(window, int(str(named["groups"])), of)
    if op == "enlarge":
        margin = str(named["margin"])
        return (n, c, (margin, *h, margin))
    return (n, c, window_axis(window, h, (str(named["kernel"]),)))


def _plain_type(op: str, of: Sequence[Type]) -> Type:
    """The shape of an operator without attributes."""
    if op == "transpose":
        if len(of[0]) != 2:
            raise shape_error(op, of, "it is no matrix")
        return of[0][::-1]
    if op == "matmul":
        if (len(of[0]), len(of[1])) != (2, 2) or of[0][1] != of[1][0]:
            raise shape_error(op, of, "the columns of the left are not the rows of the right")
        return (of[0][0], of[1][1])
    if of[0] != of[1] and () not in of:
        raise shape_error(op, of, "its operands differ in shape")
    return of[0] or of[1]


def _concat_type(axis: int, of: Sequence[Type]) -> Type:
    left, right = of
    rests = [(*t[:axis], *t[axis + 1 :]) for t in of]
    if rests[0] != rests[1] or len(left) != len(right) or not 0 <= axis < len(left):
        raise shape_error("concat", of, f"its operands differ in more than axis {axis}")
    return (*left[:axis], (*left[axis], *right[axis]), *left[axis + 1 :])


def _split_type(named: Mapping[str, Attr], of: Sequence[Type]) -> Type:
    axis, sizes = int(str(named["axis"])), split_axes(named["sizes"])
    if not 0 <= axis < len(of[0]) or sum(sizes, ()) != of[0][axis]:
        raise shape_error("split", of, f"its parts are no parts of axis {axis}")
    part = sizes[int(str(named["index"]))]
    return (*of[0][:axis], part, *of[0][axis + 1 :])


def split_axes(sizes: Attr) -> tuple[Axis, ...]:
    """The attribute ``sizes`` of a split."""
    assert isinstance(sizes, tuple)
    return tuple(part for part in sizes if isinstance(part, tuple))


def _conv_type(window: str, groups: int, of: Sequence[Type]) -> Type:
    (n, c, h), (o, own, r) = of
    if c != own * groups:
        raise shape_error("conv", of, f"its channels are not those of {groups} groups")
    if o != o[: len(o) // groups] * groups:
        raise shape_error("conv", of, "its groups have different numbers of results")
    return (n, o, window_axis(window, h, r))


def window_axis(window: str, h: Axis, r: Axis) -> Axis:
    """The positions of a window: with stride 1 and padding by half those of the image."""
    if window == UNIT:
        return h
    taps = "" if window == SAME else f",{axis_text(r)}"
    return (f"{window}({axis_text(h)}{taps})",)


def window_parts(size: str) -> tuple[str, Axis, Axis] | None:
    """What ``window_axis`` made the size of, or None for a plain one."""
    window, found, rest = size.partition("(")
    if not found:
        return None
    depth, items = 0, [""]
    for c in rest[:-1]:
        depth += (c == "(") - (c == ")")
        if c in ",+" and not depth:
            items += ["," * (c == ","), ""] if c == "," else [""]
        else:
            items[-1] += c
    cut = items.index(",") if "," in items else len(items)
    return window, tuple(items[:cut]), tuple(items[cut + 1 :])


def axis_text(axis: Axis) -> str:
    """Sizes in the order of an axis, as "p+q"."""
    return "+".join(axis)


def type_text(found: Type) -> str:
    """A shape, as "[m, p+q]"."""
    return f"[{', '.join(map(axis_text, found))}]"
