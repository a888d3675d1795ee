"""The order of the text of a section: loads first without matmuls; narrow matmuls before wide ones.

What a kernel without matmuls or loops loads is asked for at once: neither Triton nor ptxas moves a
load to before a barrier, or the first use of another one.

Triton gives the matmuls of a section that share operands the same warp partitioning, that of the
last one in the text (3.6, sm_80 and mma.sync on sm_90). With a narrow matmul such as X A of a LoRA
all warps lie along the rows, and with 16 rows each of them then computes all columns of X W too: 97
instructions an iteration instead of 33, and twice the time on an H200.
"""

from __future__ import annotations

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.ugraph import BlockGraph


def text_order(block: BlockGraph, tiling: Tiling, section: int) -> tuple[int, ...]:
    """The section's nodes in an order in which they can be computed.

    It is their own in a loop, and where there are matmuls but no narrow one stands after a wider
    one that it does not need.
    """
    nodes = block.sections[section].nodes
    if block.sections[section].loop is None and all(n.op != "matmul" for n in block.nodes):
        return tuple(sorted(nodes, key=lambda n: block.nodes[n].op != "load"))
    products = [n for n in nodes if block.nodes[n].op == "matmul" and tiling.is_dot(n)]
    if len(products) < 2:
        return nodes
    needs = _needs(block, nodes)
    width = {n: _width(tiling, n, section) for n in products}
    is_sorted = all(
        width[a] <= width[b] or a in needs[b]
        for position, a in enumerate(products)
        for b in products[position + 1 :]
    )
    if is_sorted:
        return nodes
    order: dict[int, None] = {}
    for product in sorted(products, key=width.__getitem__):
        sums = [n for n in nodes if _is_sum_of(block, n, product)]
        for target in (product, *sums):
            order.update((n, None) for n in nodes if n in needs[target] or n == target)
    order.update((n, None) for n in nodes)
    return tuple(order)


def _needs(block: BlockGraph, nodes: tuple[int, ...]) -> dict[int, frozenset[int]]:
    """What each node of a section is computed from, in the section."""
    needs: dict[int, frozenset[int]] = {}
    for n in nodes:
        found: set[int] = set()
        for argument in block.nodes[n].args:
            if argument in needs:
                found |= {argument, *needs[argument]}
        needs[n] = frozenset(found)
    return needs


def _width(tiling: Tiling, product: int, section: int) -> tuple[int, int]:
    """The shorter side of the result, then its columns."""
    roles = tiling.roles(product)
    rows, columns = (tiling.elements(side, section) for side in (roles.left, roles.right))
    return min(rows, columns), columns


def _is_sum_of(block: BlockGraph, number: int, product: int) -> bool:
    node = block.nodes[number]
    return node.op.startswith("accum") and node.args[0] == product
