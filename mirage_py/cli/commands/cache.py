"""``mirage-py cache``: the cached results of earlier optimisations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirage_py.cli.shell.screen import Screen, stdout_to_stderr

if TYPE_CHECKING:
    from mirage_py.runtime.store.cache import Entry

REFUSED = 2
_JSON = click.option("--json", is_flag=True, help="Print one JSON document instead of text.")


@click.group(short_help="List, show, prune, export and import cached results.")
def cache() -> None:
    """List, show, prune, export and import cached results.

    Functions decorated with `mirage_py.superoptimize` look here before they search.
    MIRAGE_PY_CACHE_DIR sets the folder.
    """


@cache.command(short_help="List the entries, the most recently used first.")
@_JSON
@click.pass_obj
def ls(screen: Screen, json: bool) -> None:
    """List the entries, the most recently used first."""
    from mirage_py.cli.commands.cache_entries import cached, table, total
    from mirage_py.runtime.store.cache import ResultCache

    store = ResultCache()
    rows = [cached(entry) for entry in store.entries()]
    if json:
        entries = [row.document() for row in rows]
        screen.document({"schema": 1, "folder": str(store.root), "entries": entries})
        return
    for line in table(rows) if rows else ():
        screen.out(line)
    screen.out(total(rows, store.root))


@cache.command(short_help="Print one entry.")
@click.argument("key", metavar="KEY")
@_JSON
@click.pass_obj
def show(screen: Screen, key: str, json: bool) -> None:
    """Print one entry. KEY is a key of `cache ls`, or the beginning of one."""
    from mirage_py.cli.commands.cache_entries import cached, facts, find
    from mirage_py.runtime.store.cache import ResultCache

    held = cached(find(ResultCache().entries(), key))
    if json:
        screen.document({"schema": 1, **held.document(), "report": held.report})
        return
    for label, text in facts(held):
        screen.out(f"{label:<10} {text}")


@cache.command(short_help="Remove entries by age or size, or all.")
@click.option("--older-than", metavar="AGE", help="Not used for so long, as in 12h, 30d, 2w.")
@click.option("--max-size", metavar="SIZE", help="The least recently used beyond it, as in 500MB.")
@click.option("--all", "every", is_flag=True, help="Every entry, and all else in the cache.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed.")
@_JSON
@click.pass_obj
def prune(
    screen: Screen,
    older_than: str | None,
    max_size: str | None,
    every: bool,
    dry_run: bool,
    json: bool,
) -> None:
    """Remove entries by age or size, or all."""
    from mirage_py.cli.commands.cache_entries import cached, table
    from mirage_py.formatting.kernel_format import count_text, size_text
    from mirage_py.formatting.quantities import read_age, read_size
    from mirage_py.runtime.store.cache import ResultCache

    if every == bool(older_than or max_size):
        raise click.UsageError("say which: --older-than, --max-size, or --all")
    age_s = read_age(older_than, "--older-than") if older_than else None
    most = read_size(max_size, "--max-size") if max_size else None
    store = ResultCache()
    removed = store.stale(max_bytes=most, older_than_s=age_s)
    rows = [cached(entry) for entry in removed]
    compiled_bytes = store.compiled_bytes() if every else 0
    if not dry_run and every:
        store.clear()
    elif not dry_run:
        for entry in removed:
            store.remove(entry)
        store.sweep()
    if json:
        document = {"dry_run": dry_run, "removed": [row.document() for row in rows]}
        screen.document({"schema": 1, **document, "compiled_bytes": compiled_bytes})
        return
    for line in table(rows) if rows else ():
        screen.out(line)
    said = "would be removed" if dry_run else "removed"
    size = size_text(sum(entry.bytes for entry in removed))
    compiled = f"; {size_text(compiled_bytes)} of compiled code and records" if every else ""
    screen.out(f"{count_text(len(removed), 'entry', 'entries')} {said}, {size}{compiled}")


@cache.command("export", short_help="Write entries to a folder or a tar archive.")
@click.argument("destination", type=click.Path(path_type=Path), metavar="DIR|FILE.tar.gz")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@_JSON
@click.pass_obj
def export_(screen: Screen, destination: Path, keys: tuple[str, ...], json: bool) -> None:
    """Write entries to a folder or a tar archive; all of them unless keys are given."""
    from mirage_py.formatting.kernel_format import count_text
    from mirage_py.runtime.store.cache import ResultCache
    from mirage_py.runtime.store.cache_transfer import export_entries

    chosen = _chosen(ResultCache().entries(), keys)
    written = export_entries(chosen, destination)
    damaged = len(chosen) - len(written)
    if json:
        listed = [f"{entry.target}/{entry.key}" for entry in written]
        document: dict[str, Any] = {"entries": listed, "damaged": damaged}
        screen.document({"schema": 1, "destination": str(destination), **document})
        return
    screen.out(f"{count_text(len(written), 'entry', 'entries')} written to {destination}")
    if damaged:
        screen.message(f"{count_text(damaged, 'entry is', 'entries are')} damaged and left out")


@cache.command("import", short_help="Import exported entries.")
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR|FILE.tar.gz")
@click.option("--no-verify", is_flag=True, help="Verify each when it is first used, not now.")
@_JSON
@click.pass_obj
def import_(screen: Screen, source: Path, no_verify: bool, json: bool) -> int:
    """Import exported entries. None of their code is executed.

    Each has to be whole and unaltered. Its µGraph is tested over finite fields, its derivation
    replayed, its kernels run on the CPU, and its report made anew: times that were measured
    elsewhere are left out. Entries that are in the cache already stay as they are. Exits with 2 if
    one was refused.
    """
    from mirage_py.cache.foreign_results import verified_here
    from mirage_py.runtime.store.cache import ResultCache
    from mirage_py.runtime.store.cache_transfer import import_entries

    verified = None if no_verify else verified_here
    with stdout_to_stderr(), screen.progress() as progress:
        found = []
        for entry in import_entries(ResultCache(), source, verified=verified):
            progress(f"{entry.target}/{entry.key[:12]}: {entry.outcome}")
            found.append(entry)
    counts = {o: sum(e.outcome == o for e in found) for o in ("imported", "known", "refused")}
    if json:
        rows = [
            {"target": e.target, "key": e.key, "program": e.program, "outcome": e.outcome,
             "reason": e.reason}
            for e in found
        ]  # fmt: skip
        screen.document({"schema": 1, "source": str(source), **counts, "entries": rows})
    else:
        listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        screen.out(f"{listed} from {source}")
    for entry in found:
        if entry.outcome == "refused":
            screen.message(f"refused {entry.target}/{entry.key[:12]}: {entry.reason}")
    return REFUSED if counts["refused"] else 0


def _chosen(entries: Sequence[Entry], keys: Sequence[str]) -> list[Entry]:
    from mirage_py.cli.commands.cache_entries import find

    if not keys:
        return list(entries)
    return [find(entries, key) for key in dict.fromkeys(keys)]
