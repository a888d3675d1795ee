"""Thread graphs: groups of a block's nodes whose inner values never leave the registers.

The rule (Mirage, OSDI'25, section 5, instead of a search at the thread level): elementwise
operators need no value of another thread. A group consists of all nodes that serve one result and
nothing else, the largest cone over it whose values have all their users inside. The result may be a
reduction: each thread reduces its own elements as they are computed. It may also be an accumulator,
over a reduction that it alone reads: each thread accumulates its own part, and the parts of all
threads are combined after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.errors import ValidationError
from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section
from mirage_py.ugraph.operators import ELEMENTWISE, REDUCE, STATE, operator

# Reductions that an accumulator takes in parts: it does the same, or (rescaled) sums with factors
# that are equal in all parts.
_TAKES_PARTS = {"accum_sum": "sum", "accum_rescaled": "sum", "accum_max": "max"}


def with_threads(block: BlockGraph) -> BlockGraph:
    """The block graph with its thread graphs filled in."""
    return replace(block, threads=thread_graphs(block))


def thread_graphs(block: BlockGraph) -> tuple[tuple[int, ...], ...]:
    """The maximal groups of two nodes or more, each ascending, in order of their first node."""
    users = reads_of(block.nodes)
    result_of: dict[int, int] = {}
    for section in block.sections:
        for n in reversed(section.nodes):
            kind = operator(block.nodes[n].op).kind
            if kind not in (ELEMENTWISE, REDUCE, STATE):
                continue
            results = list(dict.fromkeys(result_of.get(u, -1) for u in users[n]))
            joins = len(results) == 1 and results[0] in section.nodes
            if kind == REDUCE:
                joins = joins and _is_part(block, n, users)
            result_of[n] = results[0] if joins and kind != STATE else n
    groups: dict[int, list[int]] = {}
    for n in sorted(result_of):
        groups.setdefault(result_of[n], []).append(n)
    return tuple(tuple(g) for g in groups.values() if len(g) > 1)


def steps_of(block: BlockGraph, section: Section) -> tuple[tuple[int, ...], ...]:
    """The section's thread graphs and its nodes outside of any, in an order to run them in: what a
    step reads, earlier ones have made. Of a thread graph only the last value is read by others.
    """
    group_of = {group[-1]: group for group in block.threads}
    inner = dict.fromkeys(n for group in block.threads for n in group[:-1])
    return tuple(group_of.get(n, (n,)) for n in section.nodes if n not in inner)


def _is_part(block: BlockGraph, number: int, users: Sequence[tuple[int, ...]]) -> bool:
    """Whether a reduction's one reader is an accumulator that takes it in parts.

    A running maximum that is read inside its loop has to be whole there.
    """
    if len(users[number]) != 1:
        return False
    (reader,) = users[number]
    home = block.section_of[number]
    takes = _TAKES_PARTS.get(block.nodes[reader].op) == block.nodes[number].op
    is_whole = block.nodes[reader].op == "accum_max" and any(
        block.section_of[u] == home for u in users[reader]
    )
    return takes and block.section_of[reader] == home and not is_whole


def check_threads(block: BlockGraph) -> None:
    """ValidationError unless the block's thread graphs are such groups (not always maximal)."""
    users = reads_of(block.nodes)
    seen: dict[int, None] = {}
    for group in block.threads:
        where = f"kernel {block.name}, thread graph {{ {' '.join(f'%{n}' for n in group)} }}"
        fault = _group_fault(block, group, users, seen)
        if fault:
            raise ValidationError(
                fault,
                where=where,
                why="its inner values live in registers only",
                repair="take the groups of mirage_py.ugraph.ir.threads.thread_graphs",
            )
        seen.update(dict.fromkeys(group))


def _group_fault(
    block: BlockGraph, group: tuple[int, ...], users: list[tuple[int, ...]], seen: dict[int, None]
) -> str | None:
    if not group or any(not 0 <= n < len(block.nodes) for n in group):
        return "it names nodes that do not exist"
    if list(group) != sorted(dict.fromkeys(group)) or any(n in seen for n in group):
        return "it is out of order, or shares a node with another"
    if len(dict.fromkeys(block.section_of[n] for n in group)) > 1:
        return "its nodes lie in several sections"
    *inner, last = (operator(block.nodes[n].op).kind for n in group)
    if any(k not in (ELEMENTWISE, REDUCE) for k in inner) or last not in (
        ELEMENTWISE,
        REDUCE,
        STATE,
    ):
        return "it holds more than elementwise operators, reductions and one accumulator at its end"
    for n, kind in zip(group, inner, strict=False):
        if not users[n] or any(u not in group for u in users[n]):
            return f"%{n} is not the last of it and is used outside"
        if kind == REDUCE and not _is_part(block, n, users):
            return f"%{n} is reduced over all threads before %{users[n][0]} reads it"
    return None
