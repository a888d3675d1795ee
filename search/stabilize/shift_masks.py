"""Masks that a maximum of exponents may leave out: points where every reader masks the exp.

A masked score may be larger than all others; a maximum over it would make all others vanish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.search.stabilize.shift_groups import Scales
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.operators import ELEMENTWISE, LEAF, operator
from mirage_py.ugraph.rewrite.mask_factors import MaskFactors


@dataclass(frozen=True, slots=True)
class Masks:
    """The nodes of all kernels in one list, with their value numbers; and in it, for each group,
    the masks that all of its exps are multiplied by.
    """

    nodes: Sequence[Node]
    numbers: Sequence[int]
    of_group: dict[int, tuple[int, ...]]

    def lack(self, wanted: Mapping[int, Sequence[int]]) -> bool:
        """Whether a group is not masked as ``wanted``, which gives value numbers of masks."""
        return any(
            number not in [self.numbers[n] for n in masks]
            for group, masks in self.of_group.items()
            for number in wanted.get(group, ())
        )


def common_masks(ugraph: UGraph, scales: Scales, numbers: Iterable[Sequence[int]]) -> Masks:
    """The masks of all groups; ``numbers`` are the value numbers of each kernel's nodes.

    A mask counts if it can be computed anywhere and varies along no dimension that the exp lacks.
    """
    nodes: list[Node] = []
    exps: dict[int, list[int]] = {}
    for kernel, scale in zip(ugraph.kernels, scales.kernels, strict=True):
        if not isinstance(kernel, BlockGraph):
            continue
        first = len(nodes)
        nodes.extend(replace(n, args=tuple(first + a for a in n.args)) for n in kernel.nodes)
        for exp, key in scale.exps.items():
            exps.setdefault(key, []).append(first + exp)
    flat = [m for part in numbers for m in part]
    roots = _link(nodes, ugraph)
    factors = MaskFactors(nodes, ugraph.tensors, flat, roots)
    inputs = [t.name for t in ugraph.program.inputs]
    found: dict[int, tuple[int, ...]] = {}
    for key, copies in exps.items():
        around = [factors.around(exp) for exp in copies]
        found[key] = tuple(
            n
            for m, n in around[0].items()
            if all(m in other for other in around) and _fits(nodes, n, nodes[copies[0]], inputs)
        )
    return Masks(nodes, flat, found)


def masks_of_program(program: Program, numbers: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """For each group of the program the value numbers of its masks; ``numbers`` are the nodes'."""
    roots = [o.node for o in program.outputs]
    factors = MaskFactors(program.nodes, program.tensors, numbers, roots)
    found: dict[int, tuple[int, ...]] = {}
    for exp, node in enumerate(program.nodes):
        if node.op == "exp":
            around = factors.around(exp).items()
            masks = (m for m, n in around if all(d in node.dims for d in program.nodes[n].dims))
            before = found.get(numbers[exp])
            found[numbers[exp]] = tuple(m for m in masks if before is None or m in before)
    return found


def _link(nodes: list[Node], ugraph: UGraph) -> list[int]:
    """Make each load of an intermediate depend on the store that wrote it; the stores that are read
    in other ways too, or are no plain stores of a whole value.
    """
    outside = [o.tensor.name for o in ugraph.program.outputs]
    outside += [a for k in ugraph.kernels if not isinstance(k, BlockGraph) for a in k.args]
    writers: dict[str, list[int]] = {}
    roots: list[int] = []
    for position, node in enumerate(nodes):
        if node.op in STORES:
            writers.setdefault(node.access.tensor, []).append(position)
            if node.access.tensor in outside:
                roots.append(position)
    for position, node in enumerate(nodes):
        stores = writers.get(node.access.tensor, []) if node.op == "load" else []
        if (
            len(stores) == 1
            and nodes[stores[0]].op == "store"
            and nodes[stores[0]].attr == node.attr
        ):
            nodes[position] = replace(node, args=(stores[0],))
        else:
            roots.extend(stores)
    return roots


def _fits(nodes: Sequence[Node], mask: int, exp: Node, inputs: Sequence[str]) -> bool:
    """Whether the mask can be computed where the exp is."""
    todo = [mask]
    while todo:
        node = nodes[todo.pop()]
        if operator(node.op).kind not in (LEAF, ELEMENTWISE):
            return False
        if node.op == "load" and node.access.tensor not in inputs:
            return False
        todo.extend(node.args)
    return all(d in exp.dims for d in nodes[mask].dims)
