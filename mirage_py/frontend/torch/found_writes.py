"""The writes of a trace: what of them the program computes, and what torch takes from the call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch.fx import Node

from mirage_py.frontend.torch.capture.capture import Capture, View
from mirage_py.frontend.torch.capture.written_regions import (
    Region,
    regions_of,
    root_of,
    viewed,
)
from mirage_py.frontend.torch.guards.origins import Origin
from mirage_py.frontend.torch.writes import Given, Place, TensorView, Value, Write
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.labels import label_ranges

# Operators for positions, which torch computes anew in each call.
_MOST_OPERATORS = 16
_NUMBERS = ("full", "full_like", "new_full", "scalar_tensor")
_ZEROS = ("zeros", "zeros_like", "new_zeros")
_ONES = ("ones", "ones_like", "new_ones")
_PASS_ON = ("lift_fresh_copy", "clone", "_to_copy", "expand", "view", "alias", "unsqueeze")


class FoundWrites:
    """What a captured function writes; ``at`` says where the tensors of placeholders are."""

    def __init__(
        self, captured: Capture, at: Mapping[Node, Place], names: Mapping[Node, str]
    ) -> None:
        self._captured = captured
        self._at = at
        self._regions = [
            (tensor, region)
            for tensor, value in captured.written.items()
            for region in regions_of(value, tensor, self)
        ]
        # The values that the program has to compute, and what to call them.
        self.computed: dict[Node, str] = {}
        for tensor, region in self._regions:
            if not self.value(region.value):
                self.computed.setdefault(region.value, f"{names[tensor]}_written")

    def writes(self, numbers: Mapping[Node, int]) -> tuple[Write, ...]:
        """The writes of a call; ``numbers`` are those of the program's outputs."""
        return tuple(self._write(tensor, r, numbers) for tensor, r in self._regions)

    def loose_position(self, program: Program, read: Mapping[Node, str]) -> Node | None:
        """A position that may lie outside of its tensor where the program's inputs are drawn at
        random; ``read`` are the inputs by placeholder. The function itself would fail on those.
        """
        ranges = label_ranges(program)
        for tensor, region in self._regions:
            if region.indices is None:
                continue
            value = tensor.meta["val"]
            like = torch.empty_strided(value.shape, value.stride(), device="meta")
            shape = viewed(like, region.steps).shape
            for axis, index in enumerate(region.indices):
                if index is None or index.meta["val"].dtype is torch.bool:
                    continue
                extent = shape[axis if region.dim is None else region.dim]
                first = 0 if region.dim is not None else -extent
                root, _ = root_of(index)
                for node in self._placeholders(index):
                    low, high = ranges.get(read.get(node, ""), (1, 0))
                    inside = low <= high and first <= low and high < extent and node is root
                    if node in read and not inside:
                        return index
        return None

    def view(self, view: View) -> TensorView:
        """A result that is a tensor of the call."""
        return TensorView(self._at[view.tensor], view.steps)

    # -- what torch has ----------------------------------------------------------------------------

    def value(self, node: Node) -> bool:
        """Whether a value is a number, a view of a tensor of the call that stays as it is, or made
        of a few integers.
        """
        root, _ = root_of(node)
        is_still = root in self._at and root not in self._captured.written
        return is_still or self._number(node) is not None or self.position(node)

    def position(self, node: Node) -> bool:
        """Whether a tensor comes from integers in a few steps."""
        seen: dict[Node, None] = {}
        todo = [node]
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen[one] = None
            found = one.meta.get("val")
            is_whole = isinstance(found, torch.Tensor) and not found.dtype.is_floating_point
            if not is_whole or len(seen) > _MOST_OPERATORS:
                return False
            todo += one.all_input_nodes
        return True

    def _number(self, node: Node) -> bool | int | float | None:
        """The number that is everywhere in a tensor, if it is known."""
        if node in self._captured.constants:
            held = self._captured.constants[node]
            return held.item() if node not in self._at and held.numel() == 1 else None
        name = str(node.target).split(".")[1] if str(node.target).startswith("aten.") else ""
        if name in _ZEROS or name in _ONES:
            return int(name in _ONES)
        if name in _NUMBERS or str(node.target) == "aten.fill.Scalar":
            number = node.args[-1]
            return number if isinstance(number, (bool, int, float)) else None
        if name not in _PASS_ON and str(node.target) != "aten.fill.Tensor":
            return None
        inner = node.args[1 if name == "fill" else 0]
        return self._number(inner) if isinstance(inner, Node) else None

    # -- inside ------------------------------------------------------------------------------------

    def _write(self, tensor: Node, region: Region, numbers: Mapping[Node, int]) -> Write:
        at = region.indices
        return Write(
            TensorView(self._at[tensor], region.steps),
            self._value(region, numbers),
            tuple(region.value.meta["val"].shape),
            None if at is None else tuple(None if i is None else self._made(i) for i in at),
            region.accumulate,
            region.dim,
            region.copies,
        )

    def _value(self, region: Region, numbers: Mapping[Node, int]) -> Value:
        node = region.value
        if node in numbers:
            return numbers[node]
        number, like = self._number(node), node.meta["val"]
        if number is not None:
            shape = () if region.dim is None else tuple(like.shape)
            return torch.full(shape, number, dtype=like.dtype, device=like.device)
        return self._made(node)

    def _made(self, node: Node) -> Given | torch.Tensor:
        """What torch makes, at once where no tensor of the call is needed for it."""
        places: dict[Node, Place] = {}
        for one in self._placeholders(node):
            literal = Origin(one.name, partial(_same, self._captured.constants.get(one)))
            places[one] = self._at.get(one, literal)
        made = Given(node, places, copied=root_of(node)[0] in self._captured.written)
        return made if places else made.of(())

    def _placeholders(self, node: Node) -> list[Node]:
        """What a node of few operators is made of."""
        found: dict[Node, None] = {}
        todo = [node]
        while todo:
            one = todo.pop()
            found[one] = None
            todo += one.all_input_nodes
        return [one for one in found if one.op == "placeholder"]


def _same(value: torch.Tensor | None) -> torch.Tensor | None:
    return value
