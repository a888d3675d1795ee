"""Thread graphs: groups of a block's nodes whose values between them never leave the registers.

The rule (Mirage, OSDI'25, section 5, where it stands for a search at the thread level): elementwise
operators that follow one another need no value of another thread, so a chain of them is one thread
graph, as long as every value inside the chain has its one consumer inside the chain. An accumulator
fed by such a chain adds to registers and ends it.
"""

from __future__ import annotations

from dataclasses import replace

from mirage_py.errors import ValidationError
from mirage_py.ugraph.dims import reads_of
from mirage_py.ugraph.operators import ELEMENTWISE, STATE, operator
from mirage_py.ugraph.ugraph import BlockGraph


def with_threads(block: BlockGraph) -> BlockGraph:
    """The block graph with its thread graphs filled in."""
    return replace(block, threads=thread_graphs(block))


def thread_graphs(block: BlockGraph) -> tuple[tuple[int, ...], ...]:
    """The maximal groups of two nodes or more, each ascending, in order of their first node."""
    users = reads_of(block.nodes)
    group_of: dict[int, list[int]] = {}
    for section in block.sections:
        for position in section.nodes:
            if operator(block.nodes[position].op).kind not in (ELEMENTWISE, STATE):
                continue
            group = [position]
            for a in block.nodes[position].args:
                # State ends a chain: it outlives the iteration, and its readers wait for the loop.
                inside = a in group_of and a in section.nodes and users[a] == (position,)
                if inside and operator(block.nodes[a].op).kind == ELEMENTWISE:
                    group += group_of[a]
            for member in group:
                group_of[member] = group
    groups = {min(g): tuple(sorted(dict.fromkeys(g))) for g in group_of.values() if len(g) > 1}
    return tuple(groups[first] for first in sorted(groups))


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
                repair="take the groups of mirage_py.ugraph.threads.thread_graphs",
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
    kinds = [operator(block.nodes[n].op).kind for n in group]
    if any(k not in (ELEMENTWISE, STATE) for k in kinds) or STATE in kinds[:-1]:
        return "it holds more than elementwise operators and one accumulator at its end"
    for n in group[:-1]:
        if len(users[n]) != 1 or users[n][0] not in group:
            return f"%{n} is not the last of it and is used outside"
    return None
