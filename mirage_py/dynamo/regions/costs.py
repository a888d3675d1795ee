"""The cost of a run of nodes as one region, and its cost outside of a region.

Both by the same roofline, in microseconds. It decides where regions begin and end, and which nodes
are better left to a library; what a region is worth in truth is measured when it is optimised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from torch.fx import Node

from mirage_py.dynamo.regions.flow import Element, Flow
from mirage_py.dynamo.regions.nodes import (
    ATTENTION,
    PRODUCT,
    REDUCTION,
    base_name,
    is_half,
    shape_of,
    tensors_of,
)
from mirage_py.settings import torch_rounds
from mirage_py.targets import Target

# Measured on an H200 with a cold L2: bf16, 1 and 16 rows, weights of 17 to 235 MB as checkpoints
# hold them (docs/notes/whole_models.md). Weights are read at 4.3 TB/s, by us and by the library,
# where the target's rate is 3.45: a factor of that.
_WEIGHTS = 1.25
# What a kernel with a product takes besides that and its launch, in microseconds: ours 2.8 in all,
# with a norm in front or not (10.1 us for 34 MB, 29.5 for 117, 57.2 for 235), the library's 3.8.
_OWN_US, _LIBRARY_US = 1.7, 2.7
# Where the library has fewer tiles than the GPU has SMs it cuts the sum and adds up in a second
# kernel (15.9 us for 34 MB, 34.8 for 117), but for one row with max-autotune, which writes such a
# product as a sum (11.1 to 12.6 us for 34 MB). Columns and rows of its tiles.
_PARTS_US = 3.2
_LIBRARY_TILE = (64, 128)
# Of the tensor cores' rate, what a library matmul reaches: fitted with the cost
# model (mirage_py/search/model/model_constants.py).
_LIBRARY_TENSOR = 0.925
# Of the tensor cores' rate, what a product in a kernel of ours reaches, and an attention anywhere.
_OWN_TENSOR, _ATTENTION_TENSOR = 0.75, 0.6
# With a mask or a bias from memory the library has another kernel for attention: 486 us for 137
# GFLOP on an H200, where one of ours took 348.
_BIASED_TENSOR = 0.3
# Products of float32 run on the plain cores.
_VECTOR_SHARE = 0.7
# Blocks that an attention has without splitting its keys: one for so many queries.
_QUERIES = 128
# Of the rate for weights, what a library's attention reads keys and values at with fewer queries
# than a tile of the tensor cores has: 67 MB in 35.9 us (cuDNN, 16 tokens; a kernel of ours 27.2).
_FEW_QUERIES, _FEW_QUERIES_SHARE = 16, 0.5
# Sums over longer rows Inductor makes in loops, and goes over the row once more for what needs a
# sum. On an H200 a norm of 4096 columns took 56.0 us for 134 MB where one pass takes 34.4, a loss
# of 32000 columns 201 us for 262 MB where one takes 106; with max-autotune 41.2 and 179. So a
# second pass takes such a share of the first; of less in all, next to nothing.
_HELD_ROW = 1024
_AGAIN, _TUNED_AGAIN = 0.6, 0.3
_AGAIN_BYTES = 12 << 20
# A copy that a region begins with is better made where its operand is: who writes it lays it out,
# and whoever serves the reader finds it so.
_FIRST_COPY_US = 0.02
# Every operator more makes a search longer: between equals the smaller region wins.
_OPERATOR_US = 0.01


@dataclass(frozen=True, slots=True)
class Costs:
    """The model for one graph; ``fuses`` says that the fallback fuses pointwise operators,
    ``tunes`` that it is Inductor with max-autotune.
    """

    flow: Flow
    target: Target
    fuses: bool
    min_gain: float
    tunes: bool = False
    # Of each element, where the fallback does not fuse: runs overlap.
    _alone_us: dict[int, float] = field(default_factory=dict, compare=False)

    def region_us(self, start: int, end: int) -> float:
        """The elements from one place to another in one kernel."""
        grown = GrowingRegion(self, start)
        for element in self.flow.elements[start:end]:
            grown.add(element)
        return grown.us(end)

    def rest_us(self, start: int, end: int) -> float:
        """The same elements outside regions: a single product or attention by a library, or a run
        of other operators, which is one kernel if they are fused and one each if not.
        """
        members = self.flow.elements[start:end]
        if members[0].facts.kind in (PRODUCT, ATTENTION):
            return self._library_us(start)
        if not self.fuses:
            return sum(map(self._alone, range(start, end)))
        again_us = self._again_bytes(start, end) / self.target.dram_bytes_per_us
        again_us *= _TUNED_AGAIN if self.tunes else _AGAIN
        return self._plain_us(start, end, self.flow.pieces(start, end)) + again_us

    def _alone(self, place: int) -> float:
        if place not in self._alone_us:
            self._alone_us[place] = self._plain_us(place, place + 1, 1)
        return self._alone_us[place]

    def _plain_us(self, start: int, end: int, kernels: int) -> float:
        moved = self.flow.border_bytes(start, end)
        return moved / self.target.dram_bytes_per_us + kernels * self.target.launch_us

    def _again_bytes(self, start: int, end: int) -> int:
        """What one kernel of Inductor's reads more than once: for each sum over a long row, and for
        what is made with it.
        """
        steps: dict[Node, int] = {}
        rows: dict[Node, dict[Node, int]] = {}
        passes: dict[tuple[Node, int], int] = {}
        for number in range(start, end):
            element = self.flow.elements[number]
            step, read = 0, {}
            for r in element.reads:
                step = max(step, steps.get(r.source, 0))
                read.update(rows.get(r.source, {r.source: r.bytes}))
            is_sum = element.facts.kind == REDUCTION and _row_of(element) > _HELD_ROW
            if is_sum or self.flow.last[number] >= end:
                passes.update({(source, step): size for source, size in read.items()})
            steps[element.node] = step + is_sum
            rows[element.node] = {} if is_sum and not _keeps_shape(element) else read
            if is_sum and rows[element.node] and self.flow.last[number] >= end:
                passes.update({(source, step + 1): size for source, size in read.items()})
        each = sum(passes.values())
        once = sum({source: size for (source, _), size in passes.items()}.values())
        return each - once if each - once > _AGAIN_BYTES else 0

    def _library_us(self, place: int) -> float:
        element = self.flow.elements[place]
        moved = self.flow.border_bytes(place, place + 1)
        memory_us = moved / self.target.dram_bytes_per_us / _WEIGHTS
        other_us = self.target.launch_us + _LIBRARY_US
        if element.facts.kind == ATTENTION:
            memory_us /= min(1.0, _attention_blocks(element) / self.target.sms)
            if element.shape[-2] < _FEW_QUERIES:
                memory_us /= _FEW_QUERIES_SHARE
        elif element.is_half and _library_tiles(element) < self.target.sms:
            is_sum = self.tunes and prod(element.shape[:-1]) == 1
            other_us += 0.0 if is_sum else _PARTS_US
        work_us = self.compute_us(element, _LIBRARY_TENSOR, element.is_half)
        if element.is_half and element.facts.kind == ATTENTION and _is_biased(element):
            work_us *= _ATTENTION_TENSOR / _BIASED_TENSOR
        return max(memory_us, work_us) + other_us

    def compute_us(self, element: Element, share: float, is_half: bool) -> float:
        """The arithmetic of an element at a share of the cores' rate."""
        if not element.facts.flops:
            return 0.0
        if element.facts.kind == ATTENTION:
            share = _ATTENTION_TENSOR
        if is_half:
            return element.facts.flops / (self.target.tensor_flops_per_us * share)
        if torch_rounds()[0]:
            return element.facts.flops / (self.target.tf32_flops_per_us * share)
        return element.facts.flops / (self.target.vector_flops_per_us * _VECTOR_SHARE)


class GrowingRegion:
    """The cost of a region that begins at a place, with one element more at a time."""

    def __init__(self, costs: Costs, start: int) -> None:
        self._costs = costs
        self._start = start
        # Whether each member follows what tensor cores multiply: casts to float32 are left out of
        # programs, as in the attention that torch decomposes.
        self._half: dict[Node, bool] = {}
        self._work_us = 0.0
        self._weight = 0
        self._copies = 0
        self._has_product = False

    def add(self, element: Element) -> None:
        """Take the next element."""
        costs = self._costs
        before = (self._half.get(r.source, is_half(r.source)) for r in element.reads)
        half = self._half[element.node] = element.is_half or all(before)
        self._work_us += costs.compute_us(element, _OWN_TENSOR, half)
        self._weight += element.facts.weight
        self._has_product |= element.facts.kind in (PRODUCT, ATTENTION)
        self._copies += base_name(element.node) == "clone" and all(
            costs.flow.place.get(r.source, -1) < self._start for r in element.reads
        )

    def us(self, end: int) -> float:
        """The elements up to a place, which have been added, in one kernel."""
        costs, target = self._costs, self._costs.target
        memory_us = costs.flow.border_bytes(self._start, end) / target.dram_bytes_per_us
        other_us = target.launch_us
        if self._has_product:
            memory_us, other_us = memory_us / _WEIGHTS, other_us + _OWN_US
        time_us = max(memory_us, self._work_us) + other_us
        extra_us = _OPERATOR_US * self._weight + _FIRST_COPY_US * self._copies
        return time_us / (1.0 - costs.min_gain) + extra_us


def _keeps_shape(element: Element) -> bool:
    """Whether a sum is part of a larger operator, such as a softmax, that gives as much as it
    reads.
    """
    return element.facts.bytes >= max((r.bytes for r in element.reads), default=0) // 2


def _row_of(element: Element) -> int:
    """How many elements it sums up for each of its sums."""
    if _keeps_shape(element):
        return element.shape[-1] if element.shape else 1
    given = [shape_of(t) for r in element.reads for t in tensors_of(r.source)]
    return max(map(prod, given), default=1) // max(1, prod(element.shape))


def _is_biased(element: Element) -> bool:
    """Whether torch's attention is given a mask or a bias; of those without there is another
    number at its place.
    """
    others = element.node.args[3:4]
    return any(isinstance(a, Node) and tensors_of(a) for a in others)


def _attention_blocks(element: Element) -> int:
    *batch, queries, _ = element.shape
    return prod(batch) * -(-queries // _QUERIES)


def _library_tiles(element: Element) -> int:
    *rows, columns = element.shape or (1,)
    width, height = _LIBRARY_TILE
    return -(-prod(rows) // height) * -(-columns // width)
