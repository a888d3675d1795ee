"""Plans that installed packages bring: what the cache lacks is looked for there.

    [project.entry-points."mirage_py.plans"]
    llama = "llama_plans"

names a package whose folder holds entries as ``mirage-py cache export DIR`` writes them. Nothing of
it is imported or executed: an entry is a foreign one, which is verified before its first use, and
then lies in the cache.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from mirage_py.errors import MirageError
from mirage_py.runtime.store.artifact import load_artifact
from mirage_py.runtime.store.cache import ResultCache

GROUP = "mirage_py.plans"


@functools.cache
def folders() -> tuple[Path, ...]:
    """The folders of all packages with plans, by the names of their entry points."""
    return tuple(_folders())


def _folders() -> Iterator[Path]:
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        # A name with dots would import what is before the last one.
        spec = None if "." in point.value else find_spec(point.value)
        for place in (spec and spec.submodule_search_locations) or ():
            yield Path(place)


def take_in(store: ResultCache, target: str, key: str) -> bool:
    """Put an entry of a package into the cache, not verified yet; whether there is one."""
    for folder in folders():
        place = folder / target / key
        if not place.is_dir():
            continue
        try:
            held = load_artifact(place)
        except MirageError:
            continue  # another package may have a sound one
        store.put(
            target, key, program=held.program, plan=held.plan, report=held.report, verified=False
        )
        return True
    return False
