"""The law table: the laws as data, in the form that the checker of certificates reads.

``python tests/law_table.py`` writes the checker's table anew. A test compares the
two, so that neither changes without the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mirage_py.axioms.proof.proof_laws import DIVISORS, ONE_WAY, PARTIAL, UNGUARDED, laws_of_proofs
from mirage_py.axioms.proof.steps import EXTENTS
from mirage_py.axioms.terms.law import Law, axis_variables
from mirage_py.axioms.terms.term import ARITY, LEAVES, REDUCTIONS, Term, subterms


def term_variables(law: Law) -> tuple[str, ...]:
    """Names of the variables that stand for terms, in the order of the text."""
    return tuple(dict.fromkeys(t.attr for t in subterms(law.left, law.right) if t.op == "var"))


_BLANK: dict[str, Any] = {
    "free": [],
    "sizes": [],
    "one_way": False,
    "unguarded": [[], []],
    "divisor": [],
    "axes": ["i", "j", "k"],
    "tiles": ["i", "j", "k"],
}
# A dimension i is its iterations j and the tile k that each of them sees.
_TILES = (
    *(
        {
            "name": f"tiles.{op}",
            "left": [op, "i", ["var", "x"]],
            "right": [op, "j", [op, "k", ["var", "x"]]],
            **_BLANK,
            "terms": ["x"],
        }
        for op in REDUCTIONS
    ),
    {
        "name": EXTENTS,
        "left": ["size", "i"],
        "right": ["sum", "j", ["size", "k"]],
        **_BLANK,
        "terms": [],
    },
)

TABLE = Path(__file__).parents[1] / "axioms" / "certificate" / "trusted.json"


def trusted() -> dict[str, Any]:
    """Operators with their numbers of operands, those that have no value for some numbers, and
    every law that a derivation may name.
    """
    operators = {op: n for op, n in ARITY.items() if op not in (*LEAVES, *REDUCTIONS)}
    laws = [*map(_row, laws_of_proofs()), *_TILES]
    return {
        "operators": operators,
        "partial": list(PARTIAL),
        "laws": laws,
    }


def table_text() -> str:
    """The table with one law a line."""
    found = trusted()
    laws = ",\n  ".join(json.dumps(law) for law in found["laws"])
    parts = ("operators", "partial")
    head = "".join(f' "{part}": {json.dumps(found[part])},\n' for part in parts)
    return f'{{\n{head} "laws": [\n  {laws}\n]}}\n'


def _row(law: Law) -> dict[str, Any]:
    """``unguarded`` are what is new to be computed for all numbers, read forwards and backwards."""
    kept = {t.attr for t in subterms(law.right)}
    new = [v for v in sorted(term_variables(law)) if v not in kept]
    unguarded = [list(UNGUARDED.get((law.name, forward), ())) for forward in (True, False)]
    return {
        "name": law.name,
        "left": _side(law.left),
        "right": _side(law.right),
        "free": [[c.var, c.axis] for c in law.when],
        "sizes": list(law.sizes),
        "one_way": law.name in ONE_WAY,
        "unguarded": [unguarded[0], list(dict.fromkeys([*unguarded[1], *new]))],
        "divisor": [DIVISORS[law.name]] if law.name in DIVISORS else [],
        "terms": list(term_variables(law)),
        "axes": list(axis_variables(law)),
        "tiles": [],
    }


def _side(term: Term) -> list[Any]:
    return [term.op, term.attr, *map(_side, term.args)]


if __name__ == "__main__":
    TABLE.write_text(table_text(), encoding="utf-8")
