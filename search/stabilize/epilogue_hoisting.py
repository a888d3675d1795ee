"""Epilogue hoisting: a kernel computes what every reader would compute from its result.

The search stores a sum of squares where a reader wants 1 / sqrt(sum / n + eps): a function of one
stored tensor is computed by its reader (intermediates.py), which keeps candidates few. But the
reader computes it in every block and iteration (scores beside 32 roots per thread, in attention on
an H200), the kernel that stores it only once. So what a reader computes from a stored value and
scalars alone moves to the kernel that stores the value; if the reader only divides by the result, a
reciprocal is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirage_py.codegen.lowering.precision import dot_types
from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import Attr, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.operators import ELEMENTWISE, LEAF, operator
from mirage_py.ugraph.rewrite.rebuild_block import NewNodes, rebuild_block, without_unread

# Exponentials and their shifts stay together: the stabiliser handles them.
_NOT_HOISTED = ("exp", "log", "shift", "cast")
_SELF = -1


@dataclass(frozen=True, slots=True)
class _Step:
    """One operator of a chain. Of its operands ``_SELF`` is what the chain has so far, the others
    are positions in ``scalars``.
    """

    op: str
    attr: Attr
    args: tuple[int, ...]
    scalars: tuple[Node, ...]


def with_hoisted_epilogues(ugraph: UGraph) -> UGraph:
    """The µGraph with all epilogues computed where their operand is stored; the same µGraph where
    there are none. Values do not change, except for the order of a quotient's roundings: a result
    that only matmuls read now is stored in the type to which they round it.
    """
    for tensor in ugraph.intermediates:
        if not tensor.dtype.is_half:
            ugraph = _with_hoisted(ugraph, tensor.name)
    return ugraph


def _with_hoisted(ugraph: UGraph, tensor: str) -> UGraph:
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    if len(blocks) != len(ugraph.kernels):
        return ugraph
    chains = [_chain(b, n) for b in blocks for n, load in b.loads() if load.access.tensor == tensor]
    stores = [n for b in blocks for _, n in b.stores() if n.access.tensor == tensor]
    if not chains or len(stores) != 1 or stores[0].op != "store":
        return ugraph
    chain = chains[0]
    if not chain or any(other != chain for other in chains):
        return ugraph
    kernels = tuple(_with_epilogue(_reading(b, tensor), tensor, chain) for b in blocks)
    return _as_read(replace(ugraph, kernels=kernels), tensor)


def _as_read(ugraph: UGraph, tensor: str) -> UGraph:
    """The µGraph with a tensor in the half type to which all that reads it rounds it."""
    kinds: set[DType | None] = set()
    for block in ugraph.kernels:
        assert isinstance(block, BlockGraph)
        types, users = dot_types(block, ugraph.tensors), reads_of(block.nodes)
        for number, load in block.loads():
            if load.access.tensor == tensor:
                kinds |= {types.get(user) for user in users[number]}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not kind.is_half:
        return ugraph
    stored = (replace(t, dtype=kind) if t.name == tensor else t for t in ugraph.intermediates)
    return replace(ugraph, intermediates=tuple(stored))


def _chain(block: BlockGraph, load: int) -> tuple[_Step, ...]:
    """What a block computes from a loaded value and scalars alone."""
    steps: list[_Step] = []
    for node in _followers(block, load):
        step = _step(block.nodes, block.nodes[node], _operand(block, load, node))
        assert step is not None
        steps.append(step)
    last = _last(block, load)
    if _is_divisor(block, last):
        one = Node("const", (), 1.0, ())
        steps.append(_Step("div", None, (0, _SELF), (one,)))
    return tuple(steps)


def _last(block: BlockGraph, load: int) -> int:
    return next(reversed((load, *_followers(block, load))))


def _followers(block: BlockGraph, load: int) -> tuple[int, ...]:
    """The nodes of the chain, one after the other."""
    users = reads_of(block.nodes)
    found: list[int] = []
    value = load
    while len(users[value]) == 1:
        (user,) = users[value]
        if _step(block.nodes, block.nodes[user], value) is None:
            break
        found.append(user)
        value = user
    return tuple(found)


def _operand(block: BlockGraph, load: int, node: int) -> int:
    """Which value of the chain a node of it takes."""
    before = (load, *_followers(block, load))
    return next(a for a in block.nodes[node].args if a in before)


def _step(nodes: Sequence[Node], node: Node, value: int) -> _Step | None:
    """The node as a step, if all of its other operands are numbers."""
    if operator(node.op).kind != ELEMENTWISE or node.op in _NOT_HOISTED:
        return None
    if node.dims != nodes[value].dims:
        return None
    scalars: list[Node] = []
    args: list[int] = []
    for a in node.args:
        if a == value:
            args.append(_SELF)
        elif operator(nodes[a].op).kind == LEAF and not nodes[a].dims and nodes[a].op != "load":
            args.append(len(scalars))
            scalars.append(nodes[a])
        else:
            return None
    return _Step(node.op, node.attr, tuple(args), tuple(scalars))


def _is_divisor(block: BlockGraph, value: int) -> bool:
    """Whether a value is only used as a divisor."""
    users = [block.nodes[u] for u in reads_of(block.nodes)[value]]
    return bool(users) and all(
        u.op == "div" and u.args[1] == value and u.args[0] != value for u in users
    )


def _reading(block: BlockGraph, tensor: str) -> BlockGraph:
    """The block with results of its chains loaded instead of computed."""
    loads = [n for n, load in block.loads() if load.access.tensor == tensor]
    nodes = list(block.nodes)
    instead: dict[int, int] = {}
    for load in loads:
        last = _last(block, load)
        instead[last] = load
        if _is_divisor(block, last):
            for user in reads_of(block.nodes)[last]:
                nodes[user] = replace(nodes[user], op="mul")
    if not loads:
        return block
    nodes = [replace(n, args=tuple(instead.get(a, a) for a in n.args)) for n in nodes]
    return without_unread(replace(block, nodes=tuple(nodes), threads=()))


def _with_epilogue(block: BlockGraph, tensor: str, chain: Sequence[_Step]) -> BlockGraph:
    """The block with the chain before its store."""
    if all(n.access.tensor != tensor for _, n in block.stores()):
        return block

    def rule(new: NewNodes, number: int) -> int:
        node = block.nodes[number]
        if node.op != "store" or node.access.tensor != tensor:
            return new.copy(number)
        (value,) = node.args
        return new.copy(number, {value: _appended(new, new.place[value], chain)})

    return rebuild_block(block, rule)


def _appended(new: NewNodes, value: int, chain: Sequence[_Step]) -> int:
    """The last node of the chain, applied to a value."""
    dims = new.nodes[value].dims
    for step in chain:
        first = len(new.nodes)
        new.nodes += step.scalars
        args = [value if a == _SELF else first + a for a in step.args]
        value = new.add(step.op, args, step.attr, dims)
    return value
