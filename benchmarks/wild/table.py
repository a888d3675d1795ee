"""The tables of the page docs/reference/wild.md, from the files of a dry run and of a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.wild.catalogue import FAMILIES
from benchmarks.wild.summary import KINDS, WAYS, is_right, served_as

Row = Mapping[str, Any]


def counts_table(document: Mapping[str, Any]) -> str:
    """A line for each family, and one for all."""
    rows: Sequence[Row] = document["rows"]
    lines = [_line(("family", "programs", *KINDS, "right"))]
    lines.append(_line(("---", *["---:"] * 5)))
    lines += [_counts(name, [row for row in rows if row["family"] == name]) for name in FAMILIES]
    budget_s = document["budget_s"]
    spent = f"Up to {budget_s:g} s for each search." if budget_s else "Nothing was searched."
    return "\n".join([*lines, _counts("all", rows), "", spent])


def reasons_table(document: Mapping[str, Any]) -> str:
    """Why the decorator does not serve a program, then what torch.compile leaves to torch."""
    found = document["summary"]
    lines = []
    for title, key in (
        ("why no kernel graph of ours serves it whole", "reasons"),
        ("operator outside regions, why", "left"),
    ):
        lines += [_line((title, "programs")), _line(("---", "---:"))]
        lines += [_line((name.replace("|", "/"), str(n))) for name, n in found[key].items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def programs_table(document: Mapping[str, Any]) -> str:
    """Every program in a line."""
    head = ("program", "served", "operators in regions", "right", "search s")
    lines = [_line(head), _line(("---", "---", "---:", "---", "---:"))]
    for row in document["rows"]:
        inside = row["compile"]
        spent = row["decorator"]["search_cpu_s"] + inside["search_cpu_s"]
        lines.append(
            _line(
                (
                    row["program"],
                    served_as(row),
                    f"{inside['in_regions']} of {inside['operators']}",
                    "yes" if is_right(row) else "**no**",
                    f"{spent:.1f}",
                )
            )
        )
    return "\n".join(lines)


def measured_table(document: Mapping[str, Any]) -> str:
    """What a GPU says: the counts, then every program in a line, best first."""
    found, rows = document["summary"], document["rows"]
    head = ("program", "ours us", "best peer us", "peer", "ratio", "first call s", "served", "tree")
    said = (
        f"{found['programs']} programs, {found['timed']} of them timed: geometric mean "
        f"{found['geomean']:.3f}x, {found['faster']} at least as fast as the best peer, "
        f"{found['below_0_98']} below 0.98x, {found['right']} right both ways. By itself "
        + ", ".join(
            f"the {way} has {own['geomean']:.3f}x and {own['below_0_98']} below 0.98x"
            for way, own in found["by_way"].items()
            if own["timed"]
        )
        + "."
    )
    lines = [
        said,
        "",
        _line(head),
        _line(("---", *["---:"] * 2, "---", *["---:"] * 2, "---", "---")),
    ]
    for row in sorted(rows, key=lambda row: -(row["against_best"] or 0.0)):
        peers = {name: us for name, us in row["times_us"].items() if name not in WAYS}
        peer = min(peers, key=peers.__getitem__)
        ours, ratio = row["ours_us"], row["against_best"]
        wrong = [name for name in row["faults"] if name in WAYS]
        lines.append(
            _line(
                (
                    row["program"],
                    "" if ours is None else f"{ours:.1f}",
                    f"{peers[peer]:.1f}",
                    peer,
                    "" if ratio is None else f"{ratio:.3f}x",
                    f"{row['first_call_s'].get('decorator', 0.0):.0f}",
                    row["served"].partition(":")[0]
                    + "".join(f"; **{way} not right**" for way in wrong),
                    row.get("commit", document["commit"])[:8],
                )
            )
        )
    return "\n".join(lines)


def row_line(row: Row) -> str:
    """A row in one line, for whoever waits."""
    held, parts = row["decorator"], row["compile"]
    words = [
        f"{row['program']}: {served_as(row)}",
        f"{parts['in_regions']} of {parts['operators']} operators in regions",
        f"{held['search_cpu_s'] + parts['search_cpu_s']:.1f} s",
    ]
    if served_as(row) != "whole":
        words.append(f"{held['code']}: {held['why'].splitlines()[0][:110]}")
    words += [f"WRONG: {fault}" for fault in (held["fault"], parts["fault"]) if fault]
    return ", ".join(words)


def measured_line(row: Row) -> str:
    """A row of a GPU in one line."""
    times = ", ".join(f"{name} {us:.1f} us" for name, us in row["times_us"].items())
    said = f"{row['program']}: {row['against_best']}x of the best, {times}; {row['served'][:100]}"
    return "; ".join([said, *(f"{name}: {fault}" for name, fault in row["faults"].items())])


def _counts(name: str, rows: Sequence[Row]) -> str:
    kinds = Counter(served_as(row) for row in rows)
    right = sum(is_right(row) for row in rows)
    return _line((name, str(len(rows)), *(str(kinds[kind]) for kind in KINDS), str(right)))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
