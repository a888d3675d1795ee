"""The short list: forms of families that are worth a ranking of all their tilings.

Families are visited in the order of a lower bound; those that cannot come near the best are
skipped. The others get a quick prediction. It only compares families of one sort (``sort_of``), so
each sort keeps its own best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf

from mirage_py.search.rank.forms import Form, Sort, sort_of
from mirage_py.search.rank.instance import Instance
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.tilings.kinds import kind_of
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

# A plan predicted to take this many times as long as the best is not worth a measurement, unless
# it is the best of its kind.
HOPELESS = 3.0
_FORMS_PER_SORT = 12
# Families of a kind that stand for a piece of a larger program.
_FAMILIES_PER_KIND = 3
# Families of a sort that are tried with each number of splits, and when it is late.
_WITH_ALL_SPLITS, _LATE_WITH_ALL_SPLITS = 2, 1
# Families that are asked for each of these.
_ASKED_FOR_SPLITS = 4

# Forms of a sort that get a quick prediction, those of the best bounds first, and of equal ones the
# cheapest by the search; fewer when it is late, and when it is over. Many may fit nowhere, which is
# soon known: of those so many are asked about then.
_PROBED_PER_SORT, _PROBED_LATE, _PROBED_OVER = 16, 3, 1
_UNFIT_LATE, _UNFIT_OVER = 24, 12
# Families of a sort that are made safe, those of the best bounds: that takes milliseconds of each,
# and hardly changes a bound. Many fit nowhere and get no quick prediction: of 408 with two kernels
# of attention with normalised keys the 16th that fits comes 67th.
_LIKELY_PER_SORT = 6 * _PROBED_PER_SORT

_Timed = tuple[float, Form]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a ranking is held to: families that ``may`` be taken, asked of few of them; and an end,
    with the best of what was looked at. When it is ``late`` it looks at few more, and at those only
    until one is not in ``doubt``, which says why a plan is likely refused; when it is ``over``, at
    one of each structure near the best: of those the model does not say which is the fastest.
    ``listed`` is told of the families that it looks at, the likely ones first, before it does;
    ``begun`` of the plans of one form of each structure, before others and what is in doubt.
    """

    may: Callable[[UGraph], bool] = lambda _: True
    late: Callable[[], bool] = lambda: False
    over: Callable[[], bool] = lambda: False
    doubt: Callable[[Plan], str] = lambda _: ""
    listed: Callable[[Sequence[UGraph]], None] = lambda _: None
    begun: Callable[[Sequence[Instance]], None] | None = None


FREE = Terms()


def shortlist(families: Sequence[UGraph], ranker: KernelRanker, terms: Terms = FREE) -> list[Form]:
    """The forms to rank, at most some of each sort, in an order that depends on the input only.

    Only families that come this far are asked about; without those that may not be taken the list
    is what it would be if they had not been given.
    """
    left = list(families)
    while True:
        listed = _listed(left, ranker, terms)
        # Where it gets late in between, the likely ones were asked about.
        order = (listed[number].family for number in likely_first(listed, ranker))
        candidates = {family.digest: family for family in order}
        refused = [d for d, family in candidates.items() if not terms.may(family)]
        if not refused:
            return listed
        if terms.over() and len(refused) < len(candidates):
            return [form for form in listed if form.family.digest not in refused]
        left = [family for family in left if family.digest not in refused]


def _listed(families: Sequence[UGraph], ranker: KernelRanker, terms: Terms) -> list[Form]:
    by_sort: dict[Sort, list[Form]] = {}
    exact = [family for family in families if not _rounds_often(family)]
    for family in exact or families:
        choices = ranker.splits(family)
        if not choices:
            continue
        form = ranker.form(family, choices[0])
        by_sort.setdefault(form.sort, []).append(form)
    forms = [form for of_sort in by_sort.values() for form in of_sort]
    probed = _probed(forms, ranker, lambda form: _fitting(form, ranker), terms)
    best_us = min((time_us for time_us, _ in probed), default=inf)
    found: list[Form] = []
    for sort in by_sort:
        found += _best([p for p in probed if p[1].sort == sort], best_us, ranker, terms)
    return found


def likely_families(families: Sequence[UGraph], ranker: KernelRanker) -> list[UGraph]:
    """Families, not yet safe perhaps, in the order given without those that a ranking will not look
    at: of each sort those of the best lower bounds stay, many times what gets a quick prediction.
    """
    by_sort: dict[Sort, list[int]] = {}
    for number, family in enumerate(families):
        by_sort.setdefault(sort_of(family), []).append(number)
    kept: list[int] = []
    for numbers in by_sort.values():
        if len(numbers) > _LIKELY_PER_SORT:
            bounds = {n: _nominal_bound_us(families[n], ranker) for n in numbers}
            numbers = sorted(numbers, key=bounds.__getitem__)[:_LIKELY_PER_SORT]
        kept += numbers
    return [families[n] for n in sorted(kept)]


def _nominal_bound_us(family: UGraph, ranker: KernelRanker) -> float:
    choices = ranker.splits(family)
    return ranker.bound_us(ranker.form(family, choices[0])) if choices else inf


def likely_first(forms: Sequence[Form], ranker: KernelRanker) -> list[int]:
    """The forms' numbers, those first that are likely the fastest: the best of each structure, as
    the model errs between them; then by the quick prediction, which knows few tilings, and by the
    lower bound, which knows none, in turns.
    """
    probed, bounded = (
        sorted(range(len(forms)), key=lambda n: us_of(forms[n]))
        for us_of in (ranker.probe_us, ranker.bound_us)
    )
    first: dict[str, int] = {}
    for number in probed:
        first.setdefault(forms[number].name, number)
    turns = (n for turn in zip(probed, bounded, strict=True) for n in turn)
    return list(dict.fromkeys((*first.values(), *turns)))


def best_families(
    families: Sequence[UGraph], ranker: KernelRanker, terms: Terms = FREE
) -> list[tuple[float, UGraph]]:
    """A few families of each kind with their quick predictions, best first."""
    known: dict[str, tuple[float, UGraph]] = {}
    timed = ((ranker.probe_us(form), form) for form in shortlist(families, ranker, terms))
    for time_us, form in sorted(timed, key=_time):
        known.setdefault(form.family.digest, (time_us, form.family))
    counts: dict[str, int] = {}
    found = []
    for time_us, family in known.values():
        kind = kind_of(family)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= _FAMILIES_PER_KIND:
            found.append((time_us, family))
    return found


def _fitting(form: Form, ranker: KernelRanker) -> _Timed:
    """A quick prediction, and what it is of: where the nominal number of splits fits nowhere, as
    where blocks of a cluster share long rows, the first other one that fits.
    """
    forms = (form, *_at_other_splits(form, ranker))
    timed = ((ranker.probe_us(other), other) for other in forms)
    return next((found for found in timed if found[0] < inf), (inf, form))


def _at_other_splits(form: Form, ranker: KernelRanker) -> Iterator[Form]:
    for splits in ranker.splits(form.family):
        other = ranker.form(form.family, splits)
        if other.ugraph.program.dims != form.ugraph.program.dims:
            yield other


def _probed(
    forms: Iterable[Form],
    ranker: KernelRanker,
    probe: Callable[[Form], _Timed],
    terms: Terms,
) -> list[_Timed]:
    """The forms with their quick predictions, best first.

    Left out is what fits nowhere, and what by its bound is hopeless, but for the first of a sort;
    when it is late, all of a sort of which a few fit, and when it is over, one; but for what is
    known already.
    """
    bounded = [(ranker.bound_us(f), f) for f in forms]
    best_us = inf
    found: list[_Timed] = []
    of_sort: Counter[Sort] = Counter()
    asked: Counter[Sort] = Counter()
    for bound_us, form in sorted(bounded, key=_time):
        sort = form.sort
        is_hopeless = bound_us > HOPELESS * best_us and of_sort[sort]
        if of_sort[sort] >= _PROBED_PER_SORT or is_hopeless:
            continue
        is_new = not ranker.is_probed(form)
        if found and is_new and _is_enough(of_sort[sort], asked[sort], terms):
            continue
        asked[sort] += 1
        time_us, fitting = probe(form)
        if time_us < inf:
            best_us = min(best_us, time_us)
            of_sort[sort] += 1
            found.append((time_us, fitting))
    return sorted(found, key=_time)


def _is_enough(fitting: int, asked: int, terms: Terms) -> bool:
    """Whether it is too late for another form of a sort, of which so many were asked about."""
    if fitting < _PROBED_OVER and asked < _UNFIT_OVER:
        return False
    is_few = fitting < _PROBED_LATE and asked < _UNFIT_LATE
    return terms.over() if is_few else terms.late() or terms.over()


def _best(
    probed: Sequence[_Timed], best_us: float, ranker: KernelRanker, terms: Terms
) -> Iterator[Form]:
    """The best forms of one sort, in turn among the numbers of splits."""
    most = _LATE_WITH_ALL_SPLITS if terms.late() else _WITH_ALL_SPLITS
    timed_others = _with_all_splits(probed, best_us, ranker, most)
    by_name: dict[str, list[_Timed]] = {}
    for timed in sorted((*probed, *timed_others), key=_time):
        by_name.setdefault(timed[1].name, []).append(timed)
    turns = [timed for turn in zip_longest(*by_name.values()) for timed in turn if timed]
    near = [form for time_us, form in turns if time_us <= HOPELESS * best_us]
    yield from near[:_FORMS_PER_SORT] or [form for _, form in turns[:1]]


def _with_all_splits(
    probed: Sequence[_Timed], best_us: float, ranker: KernelRanker, most: int
) -> Iterator[_Timed]:
    """The first few families of a sort that are worth a ranking at each other number of splits: the
    fastest plan may have any of them. Those that lead at one number may be hopeless at another: a
    block that holds all keys of an eighth of attention holds those of a half in no way.
    """
    counts: Counter[str] = Counter()
    for _, form in probed[: _ASKED_FOR_SPLITS * most]:
        for other in _at_other_splits(form, ranker):
            is_hopeless = ranker.bound_us(other) > HOPELESS * best_us
            if is_hopeless or counts[other.name] >= most:
                continue
            time_us = ranker.probe_us(other)
            if time_us <= HOPELESS * best_us:
                counts[other.name] += 1
                yield time_us, other


def _rounds_often(ugraph: UGraph) -> bool:
    """Whether blocks add to a tensor of halves: every addition rounds, and the numerical check
    refuses most results. On an H200 it passed 9 of 120 such plans, none of them near the fastest.
    """
    return any(t.dtype.is_half for t in _added(ugraph))


def _added(ugraph: UGraph) -> Iterator[Tensor]:
    for kernel in ugraph.kernels:
        if isinstance(kernel, BlockGraph):
            yield from (ugraph.tensors[name] for name in kernel.added_tensors)


def _time(timed: _Timed) -> float:
    return timed[0]
