"""The law of sizes: the size of a dimension is the product of the sizes of its axes."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.axioms.terms.term import Term, size, subterms


def extent_facts(roots: Sequence[Term], axes: Sequence[str]) -> tuple[tuple[Term, Term], ...]:
    """Equal pairs for the dimensions whose size the roots use. Axis "k.t" belongs to "k"."""
    facts: list[tuple[Term, Term]] = []
    for term in subterms(*roots):
        parts = [size(axis) for axis in axes if axis.rpartition(".")[0] == term.attr]
        if term.op == "size" and parts:
            product = parts[0]
            for part in parts[1:]:
                product = product * part
            facts.append((term, product))
    return tuple(facts)
