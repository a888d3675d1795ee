"""The laws as data, in the form in which the checker of certificates holds its own.

``python -m mirage_py.axioms.proof_table`` writes the checker's table anew. A test compares the two,
so that neither changes without the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mirage_py.axioms.law import Law
from mirage_py.axioms.proof_laws import DIVISORS, ONE_WAY, PARTIAL, UNGUARDED, laws_of_proofs
from mirage_py.axioms.term import ARITY, LEAVES, REDUCTIONS, Term

TABLE = Path(__file__).parent / "certificate" / "trusted.json"


def trusted() -> dict[str, Any]:
    """Operators with their numbers of operands, those that have no value for some numbers, and
    every law that a derivation may name.
    """
    operators = {op: n for op, n in ARITY.items() if op not in (*LEAVES, *REDUCTIONS)}
    laws = [_row(law) for law in laws_of_proofs()]
    return {"operators": operators, "partial": list(PARTIAL), "laws": laws}


def table_text() -> str:
    """The table with one law a line."""
    found = trusted()
    laws = ",\n  ".join(json.dumps(law) for law in found["laws"])
    head = "".join(f' "{part}": {json.dumps(found[part])},\n' for part in ("operators", "partial"))
    return f'{{\n{head} "laws": [\n  {laws}\n]}}\n'


def _row(law: Law) -> dict[str, Any]:
    return {
        "name": law.name,
        "left": _side(law.left),
        "right": _side(law.right),
        "free": [[c.var, c.axis] for c in law.when],
        "sizes": list(law.sizes),
        "one_way": law.name in ONE_WAY,
        "unguarded": [list(UNGUARDED.get((law.name, forward), ())) for forward in (True, False)],
        "divisor": DIVISORS.get(law.name, ""),
    }


def _side(term: Term) -> list[Any]:
    return [term.op, term.attr, *map(_side, term.args)]


if __name__ == "__main__":
    TABLE.write_text(table_text(), encoding="utf-8")
