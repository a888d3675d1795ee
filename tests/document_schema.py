"""The document of ``superoptimize --json`` (schema 1): every key, and the type of its value."""

from __future__ import annotations

from typing import Any

NUMBER = (int, float)
MAYBE_NUMBER = (int, float, type(None))
MAYBE_TEXT = (str, type(None))
MAYBE_OBJECT = (dict, type(None))

SCHEMA_1: dict[str, Any] = {
    "schema": int,
    "program": {
        "name": str,
        "digest": str,
        "dims": dict,
        "inputs": list,
        "outputs": list,
    },
    "target": str,
    "backend": str,
    "served": {"by": str, "why": str, "code": str, "data": list},
    "baseline": {"name": str, "time_us": NUMBER, "source": str},
    "best": {
        "ugraph": MAYBE_TEXT,
        "name": str,
        "kernels": int,
        "by_torch": list,
        "time_us": NUMBER,
        "speedup": NUMBER,
        "source": str,
    },
    "verification": {
        "trials": int,
        "primes": list,
        "error_bound": MAYBE_NUMBER,
        "bound_reason": str,
        "bound": MAYBE_OBJECT,
        "proved": bool,
        "proof": MAYBE_OBJECT,
        "max_rel_error": NUMBER,
        "float_bound": NUMBER,
        "float_source": str,
        "samples": int,
        "functions": MAYBE_OBJECT,
        "float_sets": list,
        "code": list,
    },
    "search": {
        "seconds": NUMBER,
        "candidates": int,
        "valid": int,
        "exhausted": bool,
        "pruned": dict,
        "gap": NUMBER,
        "lower_bound_us": NUMBER,
        "examples": dict,
        "evaluations": int,
        "merged": int,
        "tensors": int,
        "configurations": int,
        "hits": int,
        "families": dict,
        "unsafe": int,
        "tested": int,
        "ranked": int,
        "rings": list,
        "reasons": list,
        "limits": dict,
        "limited_by": str,
        "codes": dict,
    },
    "candidates": list,
    "record": dict,
    "interrupted": bool,
    "cached": bool,
    "notes": list,
    "artifact": MAYBE_TEXT,
}


def faults(document: Any, schema: Any = SCHEMA_1, place: str = "$") -> list[str]:
    """What of a document does not fit a schema, in words."""
    if not isinstance(schema, dict):
        fits = isinstance(document, schema)
        # To Python True is an int; to a reader of JSON it is not.
        fits = fits and (schema is bool or not isinstance(document, bool))
        return [] if fits else [f"{place} is {document!r}"]
    if not isinstance(document, dict):
        return [f"{place} is no object"]
    found = [f"{place}.{key} is missing" for key in schema if key not in document]
    found += [f"{place}.{key} is not in the schema" for key in document if key not in schema]
    for key, part in schema.items():
        if key in document:
            found += faults(document[key], part, f"{place}.{key}")
    return found
