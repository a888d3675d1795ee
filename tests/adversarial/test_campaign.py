"""120 random mutants of all example programs: none that is wrong is accepted. At night 2,000."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import islice

import pytest
from adversarial.campaign import campaign
from adversarial.corpus import Site, descriptions, kinds, mutant, mutants_of, originals, sites
from adversarial.explain import explanation, listed
from adversarial.judge import SAME, verdict
from adversarial.mutants_page import MUTANTS, PAGE, RANDOM, page
from adversarial.programs import EXAMPLES
from adversarial.report import Report, merged, read, write
from adversarial.trial import EQUAL, WRONG, outcome
from nightly import NIGHTLY

# Each test of its own, so that processes share them.
COUNT, PARTS, SEED = 2000 if NIGHTLY else 120, 4, 7
# Of the graphs that are changed: each was found right when it was kept (``make_graphs.py``).
EVERY = 1 if NIGHTLY else 78


@cache
def drawn() -> tuple[Site, ...]:
    return tuple(sites(COUNT, SEED))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_wrong_mutant_is_accepted(part: int) -> None:
    chosen = drawn()[part::PARTS]
    found = {site: outcome(site, seed=SEED) for site in chosen}
    assert [str(s) for s, o in found.items() if o == WRONG] == []
    assert [str(s) for s, o in found.items() if o == EQUAL and not explanation(s)] == []
    assert sum(o not in (EQUAL, WRONG) for o in found.values()) > 0.8 * len(found)


def test_kinds_are_many_and_documented() -> None:
    assert len(kinds()) >= 60
    assert [kind for kind, what in descriptions().items() if not what] == []


def test_every_kind_has_its_turn() -> None:
    tried = Counter(s.kind for s in drawn())
    assert [kind for kind in kinds() if not tried[kind]] == []


def test_every_example_has_right_graphs() -> None:
    # Layers of models have the operators of the others, at their own widths.
    examples = {p.stem for p in EXAMPLES.rglob("*.math") if p.parent.name != "models"}
    # Parts of a program that is searched in parts are numbered.
    named = {
        name.partition(".")[0].removesuffix("_long").rstrip("0123456789") for name in originals()
    }
    assert sorted(examples - named) == []
    families = Counter(name.rpartition(".")[2] for name in originals())
    assert min(families[f] for f in ("one_kernel", "two_kernels", "library", "split")) >= 10


def test_the_graphs_that_are_changed_are_right() -> None:
    some = list(originals().items())[::EVERY]
    assert [name for name, (program, graph) in some if verdict(program, graph) != SAME] == []


def test_a_site_names_one_mutant() -> None:
    site = Site("swaps_operands", "softmax.one_kernel", 0)
    (first, *_) = mutants_of(site.kind, originals()[site.graph][1])
    assert str(site) == "swaps_operands 0 on softmax.one_kernel"
    assert first != originals()[site.graph][1]


def test_what_is_listed_as_equal_is_accepted() -> None:
    assert all(why for why in listed().values())
    for text in list(listed())[::10]:
        kind, place, graph = text.replace(" on ", " ").split()
        assert outcome(Site(kind, graph, int(place))) == EQUAL


def test_two_machines_share_a_campaign(tmp_path) -> None:
    parts = [tmp_path / f"{number}.json" for number in range(2)]
    for number, path in enumerate(parts):
        report = Report("abc", 3, 6)
        list(campaign(report, shard=(number, 2)))
        write(report, path)
    (*_, whole) = campaign(Report("abc", 3, 6))
    assert merged(parts).document() == whole.document()
    assert whole.done == sum(whole.totals.values()) == 6


def test_parts_of_other_campaigns_are_not_added() -> None:
    with pytest.raises(ValueError, match="another campaign"):
        Report("abc", 3, 12).take(Report("abd", 3, 12))


def test_no_two_sites_give_the_same_mutant() -> None:
    first = list(islice(sites(100_000, SEED), 500))
    assert len({mutant(site).digest for site in first}) == len(first)


# Of distinct mutants.
FEWEST = 100_000


def test_the_page_has_the_committed_reports() -> None:
    report = read(MUTANTS)
    assert report.totals.get(WRONG, 0) == 0
    assert report.done >= FEWEST
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, report, json.loads(RANDOM.read_text(encoding="utf-8"))) == text
