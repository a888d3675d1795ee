"""Sizes and windows of a rule at a place in a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirage_py.axioms.substitutions.expression import ANY, UNIT, Expr, Type, nodes, split_axes
from mirage_py.networks.operators.tensor_type import TensorType

Numbers = tuple[int, ...]
Attributes = Mapping[str, Any]


@dataclass
class Sizes:
    """Extents of the axes that a name stands for; ``stack`` are axes before those of all types.

    ``windows`` has stride and dilation for each kind of window, and the padding of any.
    """

    numbers: dict[str, Numbers] = field(default_factory=dict)
    windows: dict[str, tuple[Numbers, Numbers, Numbers]] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    stack: Numbers = ()

    def bind(
        self,
        sides: Sequence[Expr],
        shapes: Sequence[tuple[Type, Numbers]],
        axis: int | None,
        *,
        pointwise: bool,
    ) -> bool:
        """Take the shapes of the inputs; False where they do not have the rule's types.

        ``axis`` is the one that a rule about one joined axis joins here.
        """
        matrices = max(len(t) for t, _ in shapes) == 2 and axis is None and not pointwise
        rows: Sequence[str] = ()
        ranks = {len(s) for t, s in shapes if t}
        if matrices and len(ranks) == 1 and max(ranks) > 2:
            self.stack = next(s[:-2] for t, s in shapes if t)
        elif matrices:
            rows = _rows(sides)
        for type_, shape in shapes:
            rest = shape[len(self.stack) :] if type_ else shape
            if type_ and shape[: len(self.stack)] != self.stack:
                return False
            if not type_:
                counts = []
            elif pointwise:
                counts = [len(rest)]
            elif axis is not None:
                counts = [axis, 1, len(rest) - axis - 1]
            elif matrices:
                counts = [len(rest) - 1 if type_[0][0] in rows else 1, 1]
            else:
                counts = [1, 1, len(rest) - 2] if len(rest) > 2 else []
            if not self._take(type_, rest, counts):
                return False
        return True

    def _take(self, type_: Type, shape: Numbers, counts: Sequence[int]) -> bool:
        """The names of a type stand for so many axes each, if they can."""
        if len(counts) != len(type_) or sum(counts) != len(shape) or min(counts, default=0) < 0:
            return False
        begin = 0
        for (name,), count in zip(type_, counts, strict=True):
            extents = shape[begin : begin + count]
            if self.numbers.setdefault(name, extents) != extents:
                return False
            begin += count
        return True

    def fits(self, x: Expr, types: Sequence[TensorType], found: Attributes) -> bool:
        """Whether an operator of a network has the attributes that the rule's has."""
        match x.op:
            case "mul" if "factor" in found:
                factor = self.factors.setdefault(x.args[1].name, found["factor"])
                return bool(factor == found["factor"])
            case "enlarge":
                margins = zip(found["kernel"], types[0].shape[2:], strict=True)
                margin = tuple((new - old) // 2 for new, old in margins)
                return self.numbers.setdefault(str(x.attr("margin")), margin) == margin
            case "max_pool" | "avg_pool":
                if (
                    self.numbers.setdefault(str(x.attr("kernel")), found["kernel"])
                    != found["kernel"]
                ):
                    return False
        if x.op in ("conv", "max_pool", "avg_pool"):
            ones = (1,) * len(found["stride"])
            window = found["stride"], found.get("dilation", ones), found["padding"]
            if not self._window(str(x.attr("window")), window, self._taps(x, types)):
                return False
        return dict(found) == {**found, **self.attributes(x, types), **_PLAIN.get(x.op, {})}

    def _window(self, kind: str, window: tuple[Numbers, Numbers, Numbers], taps: Numbers) -> bool:
        stride, dilation, padding = window
        if kind != ANY:
            if any(k % 2 == 0 for k in taps) or padding != _half(dilation, taps):
                return False
            padding = ()
        if kind == UNIT and any(n != 1 for n in stride):
            return False
        return self.windows.setdefault(kind, (stride, dilation, padding)) == (
            stride, dilation, padding,
        )  # fmt: skip

    def _taps(self, x: Expr, types: Sequence[TensorType]) -> Numbers:
        return types[1].shape[2:] if x.op == "conv" else self.numbers[str(x.attr("kernel"))]

    def attributes(self, x: Expr, types: Sequence[TensorType]) -> dict[str, Any]:
        """The attributes of an operator of a network, on operands of these types."""
        match x.op:
            case "mul" if x.args[1].op == "input" and x.args[1].name in self.factors:
                return {"factor": self.factors[x.args[1].name]}
            case "transpose":
                last = len(self.stack)
                return {"perm": (*range(last), last + 1, last)}
            case "concat":
                return {"axis": self._axis(x)}
            case "split":
                sizes = tuple(
                    sum(self.numbers[n][0] for n in part) for part in split_axes(x.attr("sizes"))
                )
                return {"axis": self._axis(x), "sizes": sizes}
            case "enlarge":
                margin = self.numbers[str(x.attr("margin"))]
                taps = zip(types[0].shape[2:], margin, strict=True)
                return {"kernel": tuple(n + 2 * m for n, m in taps)}
            case "conv" | "max_pool" | "avg_pool":
                return self._windowed(x, types)
        return {}

    def _windowed(self, x: Expr, types: Sequence[TensorType]) -> dict[str, Any]:
        taps = self._taps(x, types)
        stride, dilation, padding = self.windows[str(x.attr("window"))]
        found: dict[str, Any] = {"stride": stride, "padding": padding or _half(dilation, taps)}
        if x.op != "avg_pool":
            found["dilation"] = dilation
        return found | ({"groups": x.attr("groups")} if x.op == "conv" else {"kernel": taps})

    def _axis(self, x: Expr) -> int:
        """The axis of a network that the axis of a rule is."""
        before = x.args[0].type[: int(str(x.attr("axis")))]
        return len(self.stack) + sum(len(self.numbers[axis[0]]) for axis in before)


_PLAIN: Mapping[str, Attributes] = {
    "max_pool": {"ceil": 0},
    "avg_pool": {"ceil": 0, "count_padding": 1},
}


def _half(dilation: Numbers, taps: Numbers) -> Numbers:
    return tuple(d * (k - 1) // 2 for d, k in zip(dilation, taps, strict=True))


def _rows(sides: Sequence[Expr]) -> list[str]:
    """Sizes that are rows of left operands alone: they may be those of several axes."""
    all_nodes = list(nodes(*sides))
    firsts = {x.type[0]: None for x in all_nodes if len(x.type) == 2}
    other = {n for x in all_nodes for axis in x.type[1:] for n in axis}
    for x in all_nodes:
        if x.op == "matmul":
            other |= {n for axis in x.args[1].type for n in axis}
        if x.op == "transpose" or (x.op in ("concat", "split") and x.attr("axis") == 0):
            other |= {n for a in (x, *x.args) for n in a.type[0]}
    return [axis[0] for axis in firsts if len(axis) == 1 and axis[0] not in other]
