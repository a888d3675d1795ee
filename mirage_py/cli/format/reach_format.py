"""Formatting of the sizes and tiles for which a certificate proves a µGraph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_certificate(proof: Mapping[str, Any] | None) -> bool:
    """Whether a stored proof speaks of sizes and tiles; those of older versions do not."""
    return proof is not None and ("needs" in proof or "outputs" not in proof)


def format_reach(proof: Mapping[str, Any]) -> str:
    """All sizes and tiles, or what they have to be like: needs are equations between them."""
    needs = proof["needs"]
    where = f" where {' and '.join(needs)}" if needs else ""
    return f"for all sizes (tiles included){where}"
