"""Counters of a search: what it did and what each rule rejected, with the first example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mirage_py.reasons import Reason, read_reason

T = TypeVar("T")

_COUNTS = ("candidates", "evaluations", "tensors", "merged", "configurations", "hits")


@dataclass(frozen=True, slots=True)
class SearchCounters:
    """``candidates`` were looked at; each was pruned by a rule, or evaluated and merged or kept.

    ``evaluations`` counts those that no rule turned away.
    ``pruned`` counts by rule, and ``examples`` has the first candidate that each rule turned away.
    """

    candidates: int
    evaluations: int
    tensors: int
    merged: int
    configurations: int
    hits: int
    pruned: Mapping[Reason, int]
    examples: Mapping[Reason, str]

    def __str__(self) -> str:
        head = (
            f"{self.candidates} candidates in {self.configurations} configurations, "
            f"{self.evaluations} evaluated, {self.tensors} tensors, {self.merged} merged, "
            f"{self.hits} configurations reach the outputs"
        )
        lines = [head]
        examples = named(self.examples)
        lines += [f"  {r}: {n}, first {examples[r]}" for r, n in named(self.pruned).items()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON data; each rule with its count and example."""
        rules = [[r.document(), count, self.examples[r]] for r, count in self.pruned.items()]
        return {**{name: getattr(self, name) for name in _COUNTS}, "pruned": rules}


class Counter:
    """Counts while the search runs."""

    def __init__(self) -> None:
        self.candidates = 0
        self.evaluations = 0
        self.tensors = 0
        self.merged = 0
        self.configurations = 0
        self.hits = 0
        self._pruned: dict[Reason, int] = {}
        self._examples: dict[Reason, str] = {}

    def prune(self, rule: Reason, example: Callable[[], str]) -> None:
        """Count a candidate that ``rule`` turned away; the first one is written out."""
        self._pruned[rule] = self._pruned.get(rule, 0) + 1
        if rule not in self._examples:
            self._examples[rule] = example()

    def add(self, other: Counter) -> None:
        """Add the counts of another job."""
        self.candidates += other.candidates
        self.evaluations += other.evaluations
        self.tensors += other.tensors
        self.merged += other.merged
        self.configurations += other.configurations
        self.hits += other.hits
        for rule, count in other._pruned.items():
            self._pruned[rule] = self._pruned.get(rule, 0) + count
            self._examples.setdefault(rule, other._examples[rule])

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON data."""
        return self.freeze().to_json()

    def add_json(self, data: Mapping[str, Any]) -> None:
        """Add what ``to_json`` gave."""
        other = Counter()
        for name in _COUNTS:
            setattr(other, name, int(data[name]))
        for held, count, example in data["pruned"]:
            rule = read_reason(held)
            other._pruned[rule], other._examples[rule] = int(count), str(example)
        self.add(other)

    def freeze(self) -> SearchCounters:
        """The counts as they are now."""
        return SearchCounters(
            self.candidates,
            self.evaluations,
            self.tensors,
            self.merged,
            self.configurations,
            self.hits,
            dict(self._pruned),
            dict(self._examples),
        )


def named(by_rule: Mapping[Reason, T]) -> dict[str, T]:
    """By the names of the rules, in their order, as reports have it."""
    return dict(sorted((str(rule), value) for rule, value in by_rule.items()))
