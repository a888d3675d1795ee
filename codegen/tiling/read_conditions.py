"""Read conditions: where a kernel uses what it loads.

A concatenation is a choice among loads by masks of indices. Each piece is read only where it is
chosen: otherwise a block would read as much as all pieces have, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.tiling.contiguity import ALIGNMENT_BYTES, run_length, steps_along
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.predicates import FALSE, TRUE, conjunction, disjunction, negation
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import ELEMENTWISE, operator

# Comparisons beyond that cost more than what is not read.
_MOST_COMPARISONS = 4
_SWAPPED = {"gt": "lt", "le": "ge"}


def read_conditions(block: BlockGraph, tensors: Mapping[str, Tensor]) -> dict[int, Predicate]:
    """The condition of each load whose value is used only where that holds: of all threads of an
    access of 16 bytes or of none.

    Not in kernels with matmuls, whose loads are asynchronous copies that hide behind them.
    """
    if any(n.op == "matmul" for n in block.nodes):
        return {}
    used = _used_where(block)
    return {
        number: used[number]
        for number, node in block.loads()
        if used[number] not in (TRUE, FALSE)
        and {*used[number].dims()} <= {*node.access.dims()}
        and _comparisons(used[number]) <= _MOST_COMPARISONS
        and _is_even(used[number], node.access, tensors[node.access.tensor])
    }


def _used_where(block: BlockGraph) -> list[Predicate]:
    """For each node the condition on indices under which some reader uses its value."""
    used = [FALSE] * len(block.nodes)
    for number in reversed(range(len(block.nodes))):
        node = block.nodes[number]
        for place, argument in enumerate(node.args):
            same = block.section_of[argument] == block.section_of[number]
            kind = operator(node.op).kind
            need = TRUE
            if same and kind == ELEMENTWISE:
                chosen = _chosen_where(block, node, place)
                need = conjunction(used[number], chosen)
            known = used[argument]
            used[argument] = TRUE if known == negation(need) else disjunction(known, need)
    return used


def _chosen_where(block: BlockGraph, node: Node, place: int) -> Predicate:
    """Where an elementwise operator makes use of one of its operands."""
    masks = [block.nodes[a].attr for a in node.args]
    if node.op == "where" and place > 0 and isinstance(masks[0], Predicate):
        return masks[0] if place == 1 else negation(masks[0])
    if node.op == "mul":
        other = masks[1 - place]
        if isinstance(other, Predicate):
            return other
    return TRUE


def _comparisons(predicate: Predicate) -> int:
    return 1 if predicate.exprs else sum(map(_comparisons, predicate.args))


def _is_even(predicate: Predicate, access: Access, tensor: Tensor) -> bool:
    """Whether the condition is the same for all elements that an access of 16 bytes takes."""
    if any(e.tensors() for e in _expressions(predicate)):
        return False
    most = max(1, ALIGNMENT_BYTES // tensor.dtype.bytes)
    runs = {d: run_length(access, tensor, d, most) for d in access.dims()}
    return all(_is_constant(predicate, d, run) for d, run in runs.items() if run > 1)


def _expressions(predicate: Predicate) -> tuple[IndexExpr, ...]:
    return (*predicate.exprs, *(e for a in predicate.args for e in _expressions(a)))


def _is_constant(predicate: Predicate, dim: str, run: int) -> bool:
    """Whether a condition does not change along ``run`` positions from a multiple of it on."""
    if not predicate.exprs:
        return all(_is_constant(a, dim, run) for a in predicate.args)
    (step, multiple), (other, limit) = (steps_along(e, dim, run) for e in predicate.exprs)
    if step == other == 0:
        return True
    if predicate.op in _SWAPPED:
        (step, multiple), (other, limit) = (other, limit), (step, multiple)
    ordered = predicate.op in ("lt", "ge", *_SWAPPED)
    return ordered and (step, other) == (1, 0) and multiple % run == 0 and limit % run == 0
