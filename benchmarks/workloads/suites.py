"""Suites by name, and single workloads out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.workloads import workloads
from benchmarks.workloads.workload import Workload
from mirage_py.errors import InputError

ALL = "all"
# Programs so small that Triton's interpreter runs them whole; not for measuring.
SMOKE = "smoke"


def suites() -> Mapping[str, tuple[Workload, ...]]:
    """Every suite; ``all`` is each workload once, those of ``smoke`` aside."""
    known = dict(workloads.suites())
    found = {w.key: w for name, group in known.items() if name != SMOKE for w in group}
    return {**known, ALL: tuple(found.values())}


def named(suite: str, keys: Sequence[str] = ()) -> tuple[Workload, ...]:
    """A suite's workloads, or those with the given keys, which may be of any suite.

    Raises InputError for an unknown name or key.
    """
    known = suites()
    if suite not in known:
        raise InputError(f"unknown suite '{suite}'", repair=f"use {', '.join(known)}")
    if not keys:
        return known[suite]
    by_key = {w.key: w for group in known.values() for w in group}
    if unknown := [k for k in keys if k not in by_key]:
        raise InputError(
            f"unknown workload {', '.join(unknown)}", repair=f"use some of {', '.join(by_key)}"
        )
    return tuple(by_key[k] for k in dict.fromkeys(keys))
