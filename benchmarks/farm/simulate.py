"""A simulation of a shared result store: 1,000 workers of a company ask for plans for a day.

    python -m benchmarks.farm.simulate [--workers N] [--questions N] [--per-second X]

A question is a program at its sizes on a GPU; few are asked often (Zipf). What is not known is
searched and tuned, which takes as long as a row of the committed results of the suite, drawn at
random. Meanwhile other workers may ask the same. Compared are a cache for each worker, a store that
all share, and a store in which who begins a search says so first (a claim that expires).
"""

from __future__ import annotations

import argparse
import heapq
import json
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

RESULTS = Path(__file__).parents[1] / "results/h200-suite.json"
POLICIES = ("own caches", "shared", "shared, claimed")
DAY_S = 86_400.0
_HEAD = (
    "| store | requests | searches | of known questions | GPU hours | without a search | reads/s "
    "| writes |"
)
# Of a worker that asks: it dies before it is done.
_LOST = 0.01
_START_S = 10.0
# A claim ends after this many times the usual search.
_CLAIM = 4.0


@dataclass(frozen=True, slots=True)
class Company:
    """Who asks what, and how often; or, ``deployed``, every worker asks the same so many questions
    within ten seconds, as where a service is started.
    """

    workers: int = 1000
    questions: int = 20_000
    per_second: float = 2.0
    exponent: float = 1.1
    deployed: int = 0


@dataclass(slots=True)
class Day:
    """What a day came to: ``again`` of the searches were of questions that had been searched."""

    requests: int = 0
    searches: int = 0
    again: int = 0
    search_s: float = 0.0
    gets: int = 0
    puts: int = 0

    def row(self, policy: str) -> str:
        """A row of the table in docs/explanation/farm.md."""
        return (
            f"| {policy} | {self.requests} | {self.searches} | {self.again} | "
            f"{self.search_s / 3600:.0f} | {1 - self.searches / self.requests:.1%} | "
            f"{self.gets / DAY_S:.1f} | {self.puts} |"
        )


def seconds_of(path: Path = RESULTS) -> list[float]:
    """How long searching and tuning the rows of a result file took."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [float(row["search_s"] + row["tune_s"]) for row in rows]


def requests_of(company: Company, seed: int) -> Iterator[tuple[float, int, int]]:
    """Time, worker and question of each request of a day, in order."""
    random = Random(seed)
    if company.deployed:
        pairs = [(w, q) for w in range(company.workers) for q in range(company.deployed)]
        yield from sorted((random.random() * _START_S, w, q) for w, q in pairs)
        return
    shares = list(accumulate((n + 1) ** -company.exponent for n in range(company.questions)))
    now = 0.0
    while (now := now + random.expovariate(company.per_second)) < DAY_S:
        question = bisect(shares, random.random() * shares[-1])
        yield now, random.randrange(company.workers), question


def simulate(company: Company, policy: str, seconds: Sequence[float], seed: int = 0) -> Day:
    """A day under a policy."""
    random, day = Random(seed + 1), Day()
    usual_s = sorted(seconds)[len(seconds) // 2]
    known: set[tuple[int, int]] = set()
    claimed: dict[int, float] = {}
    searched: dict[int, int] = {}
    ends: list[tuple[float, tuple[int, int]]] = []
    for now, worker, question in requests_of(company, seed):
        while ends and ends[0][0] <= now:
            known.add(heapq.heappop(ends)[1])
        place = (worker if policy == "own caches" else 0), question
        day.requests += 1
        # Its own folder is asked first; only what that lacks is asked of the store.
        day.gets += policy != "own caches" and (worker + 1, question) not in known
        if place in known:
            known.add((worker + 1, question))
            continue
        if policy == "shared, claimed":
            if claimed.get(question, 0.0) > now:
                continue  # served by what it has until the plan is there
            claimed[question] = now + _CLAIM * usual_s
            day.puts += 1
        takes_s = random.choice(seconds)
        day.searches += 1
        day.again += searched.get(question, 0) > 0
        searched[question] = searched.get(question, 0) + 1
        if random.random() < _LOST:
            continue
        day.search_s += takes_s
        day.puts += policy != "own caches"
        heapq.heappush(ends, (now + takes_s, place))
    return day


def main() -> None:
    """Print a row for each policy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Company()
    parser.add_argument("--workers", type=int, default=usual.workers)
    parser.add_argument("--questions", type=int, default=usual.questions)
    parser.add_argument("--per-second", type=float, default=usual.per_second)
    chosen = parser.parse_args()
    day = Company(chosen.workers, chosen.questions, chosen.per_second)
    for company in (day, Company(chosen.workers, deployed=40)):
        print(_HEAD)
        for policy in POLICIES:
            print(simulate(company, policy, seconds_of()).row(policy))


if __name__ == "__main__":
    main()
