"""Values that one kernel would compute again for each of its blocks: what is made of products, and
what large products read; and what is read again, as statistics of long rows are needed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from mirage_py.search.rewrites.parallel_variance import variances_of
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import CONTRACT, LEAF, REDUCE, operator

# A block holds a dimension of this extent: the columns of a head, not the rows of a sequence.
_IN_A_BLOCK = 256
# And so many columns of a matmul's result have those that compute an operand.
_COLUMNS = 128
# Elements of a row of which a block has no part left in registers when it has seen all.
_LONG = 1 << 15


def reread_values(program: Program) -> tuple[int, ...]:
    """Values that contractions go into and that are read along more than fits into a block: keys
    by all queries, gates of a sample by all its rows, hidden values by all columns of the next
    product.

    Sums over rows of scores are not meant, which a block has at hand. Scores are read along the
    columns of a head, which a block holds: attention has none but for its projections.
    """
    nodes = program.nodes
    kinds = [operator(node.op).kind for node in nodes]
    follows: list[bool] = []
    found: dict[int, None] = {}
    for number, node in enumerate(nodes):
        follows.append(
            kinds[number] == CONTRACT
            or (kinds[number] != REDUCE and any(follows[a] for a in node.args))
        )
        reduced = node.reduced if kinds[number] in (CONTRACT, REDUCE) else ()
        space = dict.fromkeys((*node.dims, *reduced))
        for arg in node.args:
            along = prod(program.sizes[d] for d in space if d not in nodes[arg].dims)
            if follows[arg] and nodes[arg].dims and along > _IN_A_BLOCK:
                found[arg] = None
    return tuple(found)


def prologue_flops(program: Program) -> int:
    """Operations of the matmuls that read what is computed of no matmul: rows that are normalised,
    say. Where several blocks have columns of the same rows each computes them again, in registers.
    """
    sizes = program.sizes
    return sum(
        2 * prod(sizes[d] for d in (*matmul.dims, *matmul.reduced))
        for matmul, operand in _prologues(program)
        if prod(sizes[d] for d in matmul.dims if d not in operand.dims) > _IN_A_BLOCK
    )


def prologue_bytes(program: Program) -> int:
    """What matmuls would read if nothing of their operands was computed with them, but for scales,
    which other operands or results may have. It is computed in registers, and again for other
    columns, which takes about as long as to read it once or twice more.
    """
    nodes, sizes = program.nodes, program.sizes
    times: dict[Node, int] = {}
    for matmul, operand in _prologues(program):
        inner = _without_scales(nodes, matmul, operand)
        if operator(inner.op).kind != LEAF:
            along = prod(sizes[d] for d in matmul.dims if d not in operand.dims)
            times[inner] = max(times.get(inner, 1), 1 + (along > _COLUMNS))
    elements = sum(prod(sizes[d] for d in x.dims) * n for x, n in times.items())
    return elements * program.matmul_type.bytes


def _without_scales(nodes: Sequence[Node], matmul: Node, operand: Node) -> Node:
    """What is scaled: factors that depend on what is summed over alone, or on nothing of that."""
    summed = {*matmul.reduced}
    while operand.op in ("mul", "div"):
        args = [nodes[a] for a in operand.args]
        sides = [args, args[::-1]] if operand.op == "mul" else [args]
        of_scales = [x for x, s in sides if summed >= {*s.dims} or summed.isdisjoint(s.dims)]
        if not of_scales:
            break
        operand = of_scales[0]
    return operand


def _prologues(program: Program) -> Iterator[tuple[Node, Node]]:
    """The matmuls, and their operands that are computed, of no matmul."""
    nodes = program.nodes
    kinds = [operator(node.op).kind for node in nodes]
    follows: list[bool] = []
    for number, node in enumerate(nodes):
        follows.append(kinds[number] == CONTRACT or any(follows[a] for a in node.args))
        for arg in node.args if kinds[number] == CONTRACT else ():
            if kinds[arg] != LEAF and not follows[arg]:
                yield node, nodes[arg]


def passes_bytes(program: Program) -> int:
    """What is read again as statistics of long rows are needed first: a batch norm reads its
    elements for their mean and variance, and then to normalise them. Results of matmuls are written
    for that.
    """
    nodes, sizes = program.nodes, program.sizes
    kinds = [operator(node.op).kind for node in nodes]
    long = {
        n
        for n, node in enumerate(nodes)
        if kinds[n] == REDUCE and prod(sizes[d] for d in node.reduced) >= _LONG
    }
    if not long:
        return 0
    # A mean and a variance are of one pass.
    args = [node.args for node in nodes]
    for number, variance in variances_of(nodes).items():
        args[number] = (variance.elements,)
    live = dict.fromkeys(o.node for o in program.outputs)
    for number in reversed(range(len(nodes))):
        live |= dict.fromkeys(args[number]) if number in live else {}
    # In which pass a value is computed, after those of the statistics that it needs.
    passes: list[int] = []
    for mine in args:
        passes.append(max((passes[a] + (a in long) for a in mine), default=0))
    total, known = 0, dict[int | str, None]()
    for one in range(max(passes) + 1):
        todo = [n for n in live if kinds[n] != LEAF and passes[n] == one]
        read: dict[int | str, int] = {}
        seen: dict[int, None] = {}
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen[number] = None
            node, is_known = nodes[number], passes[number] < one
            if node.op == "load":
                read[node.access.tensor] = program.tensors[node.access.tensor].bytes
            elif kinds[number] == CONTRACT and is_known:
                size = program.matmul_type.bytes * prod(sizes[d] for d in node.dims)
                read[number] = size
                total += 0 if number in known else size  # written
                known[number] = None
            elif not (number in long and is_known):
                todo += args[number]
        total += sum(size for name, size in read.items() if name in known)
        known |= dict.fromkeys(read)
    return total
