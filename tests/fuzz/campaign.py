"""Kills: searches with a journal and writers of a cache, killed at random moments, many times.

    python tests/fuzz/campaign.py --kills 200

For each kill it is looked at what is left: the journal is a beginning of the one of an undisturbed
search, and the search that goes on finds the same; every entry of the cache and every artifact that
is there loads. Prints counts, ends with 1 if anything was lost or broken.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage_py.search.enumerate.jobs import Setting
    from mirage_py.search.enumerate.search import SearchResult

TESTS = Path(__file__).parents[1]

SEARCH = """
import sys
from pathlib import Path
from fuzz.campaign import digest_of, journal_search
from mirage_py.search.enumerate.search import search
setting = journal_search()
found = search(setting.program, seed=setting.seed, limits=setting.limits, journal=Path(sys.argv[1]))
print(digest_of(found))
"""

WRITE = """
import sys
from pathlib import Path
from plans import two_kernel_plan
from mirage_py.runtime.store.saved import save_artifact
from mirage_py.runtime.store.cache import ResultCache
cache, out = ResultCache(Path(sys.argv[1])), Path(sys.argv[1]) / "out"
plan = two_kernel_plan(9, 40)
program = plan.ugraph.program
print("writing", flush=True)
for turn in range(1_000_000):
    cache.put("h200", "%064x" % (turn % 3), program=program, plan=plan, report={"turn": turn})
    save_artifact(out, program=program, plan=plan, report={"turn": turn})
"""


@dataclass
class Counts:
    """What was seen."""

    kills: int = 0
    lost: int = 0
    broken: int = 0
    different: int = 0


def journal_search() -> Setting:
    """A search of several jobs that takes about a second."""
    from mirage_py.frontend.spec import parse
    from mirage_py.search.enumerate.jobs import Setting
    from mirage_py.search.extract.task import SearchLimits

    text = "X[16, 64] : f16, W[64, 32] : f16\nlet s[b] = sum[d](X[b, d]^2)\n"
    program = parse(text + "Y[b, n] : f16 = sum[d](X[b, d] * W[d, n]) / s[b]")
    return Setting(program, 0, SearchLimits(rings=("factored",)))


def digest_of(found: SearchResult) -> str:
    """Everything that a search found, as one text."""
    families = [(f.kind, f.ugraph.digest, f.cost_us) for f in found.families]
    facts = (families, found.counters, found.exhausted, found.reasons)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def kill_searches(kills: int, folder: Path, rng: random.Random) -> Counts:
    """Searches that are killed a few times each and then left to end."""
    from mirage_py.search.enumerate.search import search

    setting = journal_search()
    whole = folder / "whole"
    right = digest_of(
        search(setting.program, seed=setting.seed, limits=setting.limits, journal=whole)
    )
    content, counts, number = whole.read_bytes(), Counts(), 0
    while counts.kills < kills:
        path, number = folder / f"j{number}", number + 1
        for _ in range(rng.randrange(1, 6)):
            before = path.read_bytes() if path.exists() else b""
            # Starting takes a good part of the time, and a kill there finds nothing to break.
            if not _killed([SEARCH, str(path)], rng.random() * 1.2, wait_for=path):
                break
            counts.kills += 1
            after = path.read_bytes() if path.exists() else b""
            complete = before[: before.rfind(b"\n") + 1]
            counts.lost += not after.startswith(complete)
            counts.broken += not content.startswith(after)
        found = search(setting.program, seed=setting.seed, limits=setting.limits, journal=path)
        counts.different += digest_of(found) != right
    return counts


def kill_writers(kills: int, folder: Path, rng: random.Random) -> Counts:
    """Writers of entries and of an artifact, over older ones."""
    from mirage_py.errors import FormatError
    from mirage_py.runtime.store.artifact import load_artifact
    from mirage_py.runtime.store.cache import ResultCache

    counts, cache, there = Counts(), ResultCache(folder), 0
    for _ in range(kills):
        counts.kills += _killed([WRITE, str(folder)], rng.random() * 0.1)
        entries = cache.entries()
        counts.lost += len(entries) < there
        there = len(entries)
        for place in [e.folder for e in entries] + [folder / "out"] * (folder / "out").exists():
            try:
                load_artifact(place)
            except FormatError:
                counts.broken += 1
        counts.different += there > 0 and not (folder / "out").exists() and there > 1
        cache.sweep()
        left = [p.name for p in cache.root.glob("*/.*")]
        counts.different += bool(left)
    return counts


def _killed(arguments: list[str], after_s: float, wait_for: Path | None = None) -> bool:
    """Start a process, kill it a while after it has begun; whether it was still there."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-c", *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if wait_for is None:
            process.stdout.readline()
        else:
            while not wait_for.exists() and process.poll() is None:
                time.sleep(0.005)
        time.sleep(after_s)
        was_there = process.poll() is None
        process.send_signal(signal.SIGKILL)
    return was_there


def main() -> int:
    """Half of the kills for either kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    bad = 0
    for name, kill in (("searches", kill_searches), ("writers", kill_writers)):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mirage_py_kills_") as folder:
            counts = kill(given.kills // 2, Path(folder), rng)
        bad += counts.lost + counts.broken + counts.different
        seconds = time.monotonic() - begun
        sys.stdout.write(f"{name:9} {counts} in {seconds:.0f} s\n")
        sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS)]
    sys.exit(main())
