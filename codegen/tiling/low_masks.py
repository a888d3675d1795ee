"""Low masks: exponentials under a mask with a very low number are masked again.

Models mask logits with ``torch.finfo(dtype).min``, by choice or by addition. Where the mask m does
not hold, exp(where(m, x, low) - s) is 0 in float32 if the shift s of the row, its maximum, is above
``low`` by more than 104. It is multiplied by m then, after which the constant is hidden
(hidden_constants.py): the kernel is that of a mask with minus infinity. That the maximum is so far
above holds where

* ``low`` is -1e38 or less: finfo.min of float32 and bfloat16, not -65504 or -1e9, which logits of
  legal inputs may be;
* each row has an element where all masks of its maximum hold. They are conditions on positions,
  affine, and sizes decide (a causal mask, a window that holds the diagonal). A row that has no such
  element is the mean of all values, and stays so;
* x is computed there: a product, or a function, or a sum of those. Like logits under minus infinity
  it is taken to be above -1e30, where running maxima start. An input that is added may hold a mask
  of its own, and a row be masked by both.

All else is emitted as it is. The µGraph that is verified keeps the number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

from mirage_py.codegen.tiling.mask_bounds import Form, combined, conjunction
from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.decided_masks import LOW_MASK
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block

# No input, whatever their operands are.
_COMPUTED = ("index", "mask", "size", "matmul", "exp", "exp2", "square", "sqrt", "rsqrt", "erf",
             "sigmoid", "tanh", "sin", "cos", "atan", "lt", "le", "gt", "ge", "eq", "ne", "isnan",
             "isinf")  # fmt: skip
# As low as their operands are.
_PASSING = ("add", "sub", "neg", "abs", "relu", "cast", "where", "maximum", "minimum", "max", "sum",
            "accum_sum", "softplus", "gelu", "gelu_tanh", "silu", "mish", "hardswish")  # fmt: skip
# What scales an input, and makes no product of it.
_SCALES = ("const", "size", "mask", "lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf")


def with_low_masks(
    block: BlockGraph, sizes: Mapping[str, int], run_time: Collection[str] = ()
) -> BlockGraph:
    """The block graph with such exponentials multiplied by their masks; positions of nodes change.

    ``sizes`` are those of all dimensions, of which ``run_time`` may have others.
    """
    found = _LowMasks(block, sizes, run_time)
    if not found.masks:
        return block

    def rule(new: NewNodes, number: int) -> int:
        node = block.nodes[number]
        if number in found.chosen:
            args = (new.place[a] for a in found.chosen[number])
            return new.add("where", tuple(args), None, node.dims)
        made = new.copy(number)
        for mask in found.masks.get(number, ()):
            made = new.add("mul", (made, new.place[mask]), None, node.dims)
        return made

    return rebuild_block(block, rule)


@dataclass(frozen=True, slots=True)
class _Logits:
    """A value under masks: (mask, constant where it does not hold), the outermost first."""

    masks: tuple[tuple[int, float], ...]
    value: int


class _LowMasks:
    def __init__(
        self, block: BlockGraph, sizes: Mapping[str, int], run_time: Collection[str]
    ) -> None:
        self.block = block
        self.nodes = block.nodes
        self.sizes = sizes
        self.run_time = run_time
        self.masks: dict[int, tuple[int, ...]] = {}
        # Sums with a mask, as choices: condition, value, constant.
        self.chosen: dict[int, tuple[int, ...]] = {}
        self.ordinary: dict[int, bool] = {}
        constants = (n.attr for n in self.nodes if n.op == "const")
        if not any(isinstance(c, float) and -inf < c <= LOW_MASK for c in constants):
            return
        self.users = reads_of(self.nodes)
        for number, node in enumerate(self.nodes):
            if node.op == "exp" and (masks := self._vanishes(node.args[0])):
                self.masks[number] = masks
        for number in range(len(self.nodes)):
            choice = self._added(number)
            if choice is not None and all(self._is_logit(u) for u in self.users[number]):
                self.chosen[number] = choice

    def _vanishes(self, difference: int) -> tuple[int, ...]:
        """The masks without which exp(difference) is 0."""
        node = self.nodes[difference]
        if node.op != "sub" or not self._is_high(node.args[1]):
            return ()
        return tuple(m for m, low in self._logits(node.args[0]).masks if low <= LOW_MASK)

    def _is_logit(self, user: int) -> bool:
        """Whether a node is a maximum that is known to be high, or makes exponentials alone, all
        known to vanish.
        """
        if self.nodes[user].op == "max":
            return all(self._is_high(u) for u in self.users[user])
        return self.nodes[user].op == "sub" and all(u in self.masks for u in self.users[user])

    def _is_high(self, shift: int) -> bool:
        """Whether a shift is the maximum of whole rows that each have a logit that is not low."""
        node, section = self.nodes[shift], self.block.sections[self.block.section_of[shift]]
        is_running = node.op == "accum_max" and node.attr == "shift"
        if not is_running and node.op != "shift":
            return False
        value, reduced = node.args[0], list[str]()
        while self.nodes[value].op == "max":
            reduced += self.nodes[value].reduced
            value = self.nodes[value].args[0]
        if not is_running and section.loop in reduced:
            return False  # of one tile
        logits = self._logits(value)
        masks = [m for m, _ in logits.masks]
        return self._is_ordinary(logits.value) and any(self._covers(masks, d) for d in reduced)

    def _logits(self, number: int) -> _Logits:
        """A value, and the masks of positions that it has."""
        node = self.nodes[number]
        choice = self._added(number)
        if choice is None and node.op == "where" and self.nodes[node.args[0]].op == "mask":
            choice = node.args
        low = None if choice is None else self._constant(choice[2])
        if choice is None or low is None or low > LOWEST_SHIFT:
            return _Logits((), number)
        inner = self._logits(choice[1])
        return _Logits(((choice[0], low), *inner.masks), inner.value)

    def _added(self, number: int) -> tuple[int, ...] | None:
        """x + where(mask, 0, low) as the operands of where(mask, x, low)."""
        node = self.nodes[number]
        for value, mask in (node.args, node.args[::-1]) if node.op == "add" else ():
            choice = self.nodes[mask]
            if choice.op == "where" and self.nodes[choice.args[0]].op == "mask":
                kept, low = map(self._constant, choice.args[1:])
                if kept == 0.0 and low is not None and low <= LOW_MASK:
                    return choice.args[0], value, choice.args[2]
        return None

    def _is_ordinary(self, number: int) -> bool:
        """Whether a value is computed, of no input that is added and no constant so low."""
        if number not in self.ordinary:
            self.ordinary[number] = self._looks_ordinary(self.nodes[number])
        return self.ordinary[number]

    def _looks_ordinary(self, node: Node) -> bool:
        if node.op == "const":
            return isinstance(node.attr, float) and abs(node.attr) < -LOWEST_SHIFT
        if node.op in ("mul", "div"):
            scales = any(self.nodes[a].op in _SCALES for a in node.args)
            return all(self._is_ordinary(a) or (not scales and self._is_read(a)) for a in node.args)
        if node.op in _PASSING:
            return all(map(self._is_ordinary, node.args[node.op == "where" :]))
        return node.op in _COMPUTED

    def _is_read(self, number: int) -> bool:
        """Whether a value is an input's, but for its sign and type."""
        while self.nodes[number].op in ("cast", "neg", "abs"):
            number = self.nodes[number].args[0]
        return self.nodes[number].op == "load"

    def _covers(self, masks: Sequence[int], dim: str) -> bool:
        """Whether all masks hold together somewhere along ``dim``, at all other positions."""
        last = 0 if dim in self.run_time else self.sizes[dim] - 1
        forms: list[Form] = [({dim: -1}, 0), ({dim: 1}, -last)]
        for mask in masks:
            predicate = self.nodes[mask].attr
            found = conjunction(predicate) if isinstance(predicate, Predicate) else None
            if found is None:
                return False
            forms += found
        apart = [f for f in forms if dim not in f[0]]
        firsts = [f for f in forms if f[0].get(dim, 0) < 0]
        stops = [f for f in forms if f[0].get(dim, 0) > 0]
        return all(map(self._is_never_positive, apart)) and all(
            self._meet(dim, first, stop) for first, stop in product(firsts, stops)
        )

    def _meet(self, dim: str, first: Form, stop: Form) -> bool:
        """Whether a whole number is always between a lower and an upper bound."""
        low, high = -first[0][dim], stop[0][dim]
        gap = combined(({}, 0), first, high)
        return min(low, high) == 1 and self._is_never_positive(combined(gap, stop, low))

    def _is_never_positive(self, form: Form) -> bool:
        """Whether an affine form is 0 or less at all positions."""
        if any(scale > 0 and dim in self.run_time for dim, scale in form[0].items()):
            return False
        return form[1] + sum(s * (self.sizes[d] - 1) for d, s in form[0].items() if s > 0) <= 0

    def _constant(self, number: int) -> float | None:
        node = self.nodes[number]
        return node.attr if node.op == "const" and isinstance(node.attr, float) else None
