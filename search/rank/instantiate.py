"""Instantiation of families: splits, tiles, warps and stages that fit the target, best first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil
from typing import Literal

from mirage_py.collector import rarely_collecting
from mirage_py.search.clusters.clusters import is_clustered
from mirage_py.search.model.launches import (
    BackEnd,
    keeping_for_later,
    starting_early,
    without_idle_hints,
)
from mirage_py.search.rank.diversity import diverse
from mirage_py.search.rank.forms import Form
from mirage_py.search.rank.instance import Instance, PlanEstimate
from mirage_py.search.rank.kernel_choices import KernelChoice, KernelRanker
from mirage_py.search.rank.kernel_models import KernelModels
from mirage_py.search.rank.shortlist import FREE, HOPELESS, Terms, likely_first, shortlist
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# Kernels depend on one another little: all pairs are tried of the best few only.
_PAIRED = 3
_LEAST = 3

__all__ = ["Instance", "diverse", "rank"]

# Structures of which a form is ranked when it is late: those whose quick prediction is at most this
# many times that of the best.
_NEAR_STRUCTURES = 2.0
# Forms of a structure (kernels, splits, clusters) that are ranked, those with the best quick
# predictions: one for so many of the plans that are asked for.
_LEAST_OF_STRUCTURE, _PLANS_OF_FORM = 2, 25
# Share of the seats that plans in doubt have beside others.
_IN_DOUBT = 0.25

# Plans of a kind that stay although the model likes others much better.
_OF_EACH_KIND = 6


@rarely_collecting()
def rank(
    families: Sequence[UGraph],
    target: Target,
    limit: int,
    backend: BackEnd | Literal["auto"] = "triton",
    terms: Terms = FREE,
) -> list[Instance]:
    """The best instances of the best families of each kind, best first, without near-copies.

    A family that fits nowhere, or takes a multiple of the best one's time, is left out. All plans
    are for ``backend``; with "auto" half of them are for each, because one model predicts both.
    Families with clusters are for CUDA alone, on targets that have them.
    """
    if backend == "auto":
        models = KernelModels(target)
        ours = _rank(families, KernelRanker(target, "cuda", models), limit // 2, terms)
        # The model is one for both: other families are not looked at.
        is_asked = not terms.over()
        trusted = [i for i in ours if not (is_asked and terms.doubt(i.plan))] or ours
        shared = {i.family.digest: i.family for i in trusted if not is_clustered(i.family)}
        families = list(shared.values()) or families
        terms = replace(terms, begun=None)
        others = _rank(families, KernelRanker(target, "triton", models), limit - len(ours), terms)
        return sorted([*others, *ours], key=lambda i: i.estimate.time_us)
    return _rank(families, KernelRanker(target, backend), limit, terms)


def _rank(
    families: Sequence[UGraph], ranker: KernelRanker, limit: int, terms: Terms
) -> list[Instance]:
    if ranker.backend == "triton":
        families = [family for family in families if not is_clustered(family)]
    forms = shortlist(families, ranker, terms)
    order = likely_first(forms, ranker)
    terms.listed([forms[number].family for number in order])
    ranked = _RankedForms(forms, ranker, limit, terms)
    for number in order:
        ranked.take(number)
    return ranked.instances()


class _RankedForms:
    """The plans of forms that are taken one by one, and what is known of doubts."""

    def __init__(
        self, forms: Sequence[Form], ranker: KernelRanker, limit: int, terms: Terms
    ) -> None:
        self._forms = forms
        self._ranker = ranker
        self._limit = limit
        self._terms = terms
        self._of_form: dict[int, list[Instance]] = {}
        self._in_doubt: dict[int, None] = {}
        # Forms of each structure that were ranked, and of those the ones that are not in doubt.
        self._begun: Counter[str] = Counter()
        self._settled: Counter[str] = Counter()
        # Of what was ranked this is not known yet: a form of each structure near the best comes
        # first, as a doubt takes as long as a ranking.
        self._unasked: list[int] = []
        self._is_told = False
        self._most = max(_LEAST_OF_STRUCTURE, limit // _PLANS_OF_FORM)
        self._best_us = min((ranker.probe_us(form) for form in forms), default=0.0)

    def take(self, number: int) -> None:
        """Rank a form, unless there are enough of its structure or it is too late for it."""
        form = self._forms[number]
        if self._begun[form.name]:
            self._tell()
            self._ask()
        is_over = bool(self._begun) and self._terms.over()
        if self._settled[form.name] >= self._most or self._is_late_for(form, is_over=is_over):
            return
        self._begun[form.name] += 1
        found = _of_form(form, self._ranker, self._limit, quickly=is_over)
        self._of_form[number] = found
        if found:
            self._unasked.append(number)

    def instances(self) -> list[Instance]:
        """The best of all, best first: those in doubt have few of the seats."""
        self._tell()
        self._ask()
        of_form, in_doubt, limit = self._of_form, self._in_doubt, self._limit
        trusted = [i for n in sorted(of_form) if n not in in_doubt for i in of_form[n]]
        doubted = [i for n in sorted(in_doubt) for i in of_form[n]]
        kept = _seated(trusted, limit - int(_IN_DOUBT * limit) if doubted else limit)
        kept += _seated(doubted, limit - len(kept))
        return sorted(kept, key=lambda i: i.estimate.time_us)

    def _is_late_for(self, form: Form, *, is_over: bool) -> bool:
        """When it is late, one form of each structure that is not in doubt is enough; when it is
        over, any.
        """
        if not any(self._of_form.values()):
            return False
        is_far = self._ranker.probe_us(form) > _NEAR_STRUCTURES * self._best_us
        if (is_far or self._begun[form.name]) and is_over:
            return True
        return bool(is_far or self._settled[form.name]) and self._terms.late()

    def _tell(self) -> None:
        if self._terms.begun is not None and not self._is_told:
            found = [i for of_one in self._of_form.values() for i in of_one]
            self._terms.begun(_seated(found, self._limit))
        self._is_told = True

    def _ask(self) -> None:
        while self._unasked and not self._terms.over():
            number = self._unasked.pop(0)
            if self._terms.doubt(self._of_form[number][0].plan):
                self._in_doubt[number] = None
            else:
                self._settled[self._forms[number].name] += 1


def _seated(found: Sequence[Instance], limit: int) -> list[Instance]:
    """At most so many of the plans, of every kind, best first."""
    ranked = sorted(found, key=lambda i: i.estimate.time_us)
    return [_with_thread_graphs(i) for i in diverse(_near(ranked), limit)]


def _near(ranked: Sequence[Instance]) -> list[Instance]:
    """Without what takes a multiple of the best one's time, but for a few of each kind."""
    counts: dict[Hashable, int] = {}
    kept = []
    for instance in ranked:
        counts[instance.sort] = counts.get(instance.sort, 0) + 1
        is_near = instance.estimate.time_us <= HOPELESS * ranked[0].estimate.time_us
        if is_near or counts[instance.sort] <= _OF_EACH_KIND:
            kept.append(instance)
    return kept


def _of_form(
    form: Form, ranker: KernelRanker, limit: int, *, quickly: bool = False
) -> list[Instance]:
    ranking = ranker.ranked_quickly if quickly else ranker.ranked
    ranked = [ranking(form, n) for n in range(len(form.ugraph.kernels))]
    if not all(ranked):
        return []
    # Half the bytes from kernel to kernel are no trifle (1 to 3 us of attention on an H200), though
    # the model sees next to no difference: such plans take turns with the others.
    # Tiles of other dimensions are other tiles (search/rewrites/horizontal_fusion.py), whatever
    # their names.
    types = tuple(t.dtype.name for t in form.ugraph.intermediates)
    what = form.name, types, form.ugraph.program.dims
    found = []
    for combination in _combinations(ranked, limit):
        choices = combination.choices
        ugraph = replace(form.ugraph, kernels=tuple(c.kernel for c in choices))
        options = tuple(c.options for c in choices)
        kept = keeping_for_later(ugraph, options)
        hinted = without_idle_hints(ugraph, kept, ranker.target)
        options = starting_early(ugraph, hinted, ranker.target, ranker.backend)
        plan = Plan(ugraph, options, ranker.backend)
        predicted = PlanEstimate(tuple(c.estimate for c in choices))
        tilings = tuple(c.tiling for c in choices)
        longest = max(range(len(choices)), key=lambda n: choices[n].estimate.time_us)
        found.append(
            Instance(
                form.family,
                plan,
                predicted,
                form.kind,
                form.name,
                tiling=(what, tilings),
                leading=(what, longest, tilings[longest]),
                leading_grid=(what, longest, choices[longest].grid),
            )
        )
    return found


def _combinations(ranked: Sequence[Sequence[KernelChoice]], limit: int) -> Iterator[Combination]:
    """The ``limit`` best with matmuls of float32 computed in one way, for each way."""
    ways = dict.fromkeys(c.options.precision for choices in ranked for c in choices)
    for way in ways:
        of_way = [[c for c in choices if c.options.precision is way] for choices in ranked]
        if any(of_way):
            yield from combinations_of(
                [own or r for own, r in zip(of_way, ranked, strict=True)], limit
            )


def _with_thread_graphs(instance: Instance) -> Instance:
    """The instance with the chains of values that stay in registers marked."""
    ugraph = instance.plan.ugraph
    kernels = tuple(with_threads(k) if isinstance(k, BlockGraph) else k for k in ugraph.kernels)
    return replace(instance, plan=replace(instance.plan, ugraph=replace(ugraph, kernels=kernels)))


@dataclass(frozen=True, slots=True)
class Combination:
    """One choice for every kernel; the time is the sum, each kernel with its launch."""

    choices: tuple[KernelChoice, ...]

    @property
    def time_us(self) -> float:
        """The prediction for the whole plan."""
        return sum(c.estimate.time_us for c in self.choices)


def combinations_of(ranked: Sequence[Sequence[KernelChoice]], limit: int) -> list[Combination]:
    """The ``limit`` best of: every kernel at its best but one, and the best few of two kernels.

    ``ranked`` has for each kernel its choices, best first, at least one. A kernel gets as many
    variants as its share of the time is worth.
    """
    if len(ranked) == 1:
        return [Combination((choice,)) for choice in ranked[0][:limit]]
    best_us = sum(r[0].estimate.time_us for r in ranked)
    kept = [r[: max(_LEAST, ceil(limit * r[0].estimate.time_us / best_us))] for r in ranked]
    # Of plans with equal predictions those come first that vary the kernel that takes longest.
    longest_first = sorted(range(len(ranked)), key=lambda k: -ranked[k][0].estimate.time_us)
    picks = dict.fromkeys(_picks([len(k) for k in kept], longest_first))
    found = [Combination(tuple(k[n] for k, n in zip(kept, pick, strict=True))) for pick in picks]
    found.sort(key=lambda c: c.time_us)
    return found[:limit]


def _picks(counts: Sequence[int], order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Positions among the choices of each kernel; kernels are varied in this order."""

    def pick(changed: dict[int, int]) -> tuple[int, ...]:
        return tuple(changed.get(k, 0) for k in range(len(counts)))

    for kernel in order:
        for n in range(counts[kernel]):
            yield pick({kernel: n})
    for one, other in combinations(range(len(counts)), 2):
        for n in range(1, min(_PAIRED, counts[one])):
            for m in range(1, min(_PAIRED, counts[other])):
                yield pick({one: n, other: m})
