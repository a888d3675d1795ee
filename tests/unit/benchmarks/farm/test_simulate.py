"""The simulated result store: what sharing and claims save."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.farm.simulate import POLICIES, Company, requests_of, seconds_of, simulate

SMALL = Company(workers=20, questions=50, per_second=0.02)


def test_a_shared_store_searches_a_question_once_but_for_what_is_lost_or_under_way():
    asked = {question for _, _, question in requests_of(SMALL, 0)}
    own, shared, claimed = (simulate(SMALL, p, [40.0]) for p in POLICIES)
    assert own.requests == shared.requests == claimed.requests
    assert own.searches > 5 * shared.searches
    assert shared.searches - shared.again == len(asked) == claimed.searches - claimed.again
    assert claimed.searches <= shared.searches
    assert (own.gets, own.puts) == (0, 0)
    assert shared.gets < shared.requests


def test_claims_are_for_the_start_of_a_service():
    start = replace(SMALL, deployed=7)
    _, shared, claimed = (simulate(start, p, seconds_of()) for p in POLICIES)
    assert shared.requests == claimed.requests == shared.searches == 140
    assert claimed.searches == 7
