"""Shifts taken out of a term, as steps: the same with every shift cancelled.

A shift is a leaf, of which nothing is known. In the proof graph it depends on an axis of its own,
so that a term that depends on no such axis is one without shifts.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.axioms.proof.find import Explanation, Finder
from mirage_py.axioms.proof.goal import Claim, Goal, range_of
from mirage_py.axioms.proof.proof_graph import Entry, ProofGraph, Reason
from mirage_py.axioms.proof.proof_laws import UNSHIFTING
from mirage_py.axioms.proof.steps import Step
from mirage_py.axioms.terms.term import REDUCTIONS, Term, subterms

# How the names of leaves begin that are shifts.
SHIFT = "shift "
ROUNDS = 20
MAX_ENTRIES = 2_000


def unshifted(term: Term, leaf_axes: Mapping[str, tuple[str, ...]]) -> tuple[Step, ...] | None:
    """The steps from a term to an equal one without shifts; None where none was found."""
    leaves = {t.attr: leaf_axes[t.attr] for t in subterms(term) if t.op == "leaf"}
    shifts = [name for name in leaves if name.startswith(SHIFT)]
    leaves |= {name: (*leaves[name], f"~{name}") for name in shifts}
    named = [t.attr for t in subterms(term) if t.op in (*REDUCTIONS, "size")]
    own = [*(axis for axes in leaves.values() for axis in axes), *named]
    axes = dict.fromkeys([*own, *(axis.partition(".")[0] for axis in own)])
    finder = Finder(Goal((Claim("", term, term),), tuple(axes), leaves))
    graph, start = finder.graph, finder.ends[0][0]
    bits = sum(graph.bits[f"~{name}"] for name in shifts)
    for _ in range(ROUNDS):
        end = graph.free_of(start, bits)
        if end is not None:
            claim = Claim("", term, graph.term(end))
            found = Explanation(graph).derivation(claim, start, end)
            return found.steps if found is not None else None
        if graph.size > MAX_ENTRIES or not (finder.step(UNSHIFTING) | _join_tiles(graph)):
            return None
    return None


def _join_tiles(graph: ProofGraph) -> bool:
    """Reductions over iterations of one over a tile are reductions over a dimension."""
    changed = False
    for iterations in [e for e in graph.entries if e.op in REDUCTIONS and ".l" in e.attr]:
        for member in tuple(graph.members[graph.find(iterations.args[0])]):
            op, tile, args = graph.entries[member]
            if op == iterations.op and range_of(tile) == iterations.attr:
                d = tile.partition(".")[0]
                whole = graph.add(Entry(op, d, args))
                parts = graph.add(Entry(op, iterations.attr, (member,)))
                bound = (("i", d), ("j", iterations.attr), ("k", tile))
                reason = Reason(f"tiles.{op}", (("x", args[0]),), bound)
                changed |= graph.merge(whole, parts, reason)
    graph.rebuild()
    return changed
