"""Formatting of the sizes and tiles for which a certificate proves a µGraph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirage_py.axioms.proof.steps import is_older


def is_certificate(proof: Mapping[str, Any] | None) -> bool:
    """Whether a stored proof is there and not in the form of an older version, to be found anew."""
    return proof is not None and not is_older(proof)


def format_reach(proof: Mapping[str, Any]) -> str:
    """All sizes and tiles, or what they have to be like: needs are equations between them."""
    needs = proof["needs"]
    where = f" where {' and '.join(needs)}" if needs else ""
    return f"for all sizes (tiles included){where}"
