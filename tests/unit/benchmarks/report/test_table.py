"""The table fits a terminal, and says what is bad first."""

from __future__ import annotations

from unit.benchmarks.rows import document, row

from benchmarks.peers.peers import PEER_NAMES
from benchmarks.report import table
from benchmarks.workloads.suites import ALL, named

# What a log that is cut keeps of its end.
MOST_CHARACTERS = 12_000
BY_CALLS = {"eager": {"us": 9.0, "note": "timed call by call"}}


def worst(workload: str, batch: int) -> dict[str, object]:
    peers = dict.fromkeys(PEER_NAMES, 12345.678)
    return row(
        workload, 99999.123, batch=batch, floor_us=1234.5, result="compile_max_autotune",
        peers_wrong=["flex"], **peers,
    )  # fmt: skip


def test_every_row_of_every_suite_fits():
    rows = [worst(w.name, w.batch) for w in named(ALL)]
    lines = [table.header(), *(table.line(r) for r in rows)]
    assert max(map(len, lines)) <= 100
    assert len("\n".join(lines)) < MOST_CHARACTERS
    assert all(line.startswith(f"{w.key} ") for line, w in zip(lines[1:], named(ALL), strict=True))


def test_what_happened_is_said():
    text = table.table(
        document(
            row("a", 10.0, eager=30.0, compile=20.0, floor_us=9.0),
            row("b", 10.0, eager=9.0, floor_us=12.0, peers=BY_CALLS),
            row("c", 5.0, eager=9.0, flex=1.0, peers_wrong=["flex"], floor_us=2.0),
            failed={"d-b1": "it took longer than 300 s and was stopped"},
            not_run={"e-b8": "out of time"},
            notes=["GPU 3 is left out: it does not start"],
        )
    )  # fmt: skip
    for words in (
        "a-b1", "2.00x", "90%", "losses to the best peer: b-b1 0.90x",
        "wrong and not counted: flex of c-b1", "not captured, launch cost included: eager of b-b1",
        "faster than the roofline allows, to be doubted: b-b1 120%",
        "below 80 % of the floor: c-b1 40%",
        "d-b1                   failed: it took longer", "not run: e-b8", "note: GPU 3 is left out",
        "geometric mean over best peer 1.48x (3)",
    ):  # fmt: skip
        assert words in text
    assert text.index("losses") < text.index("geometric mean")


def test_nothing_measured():
    assert "nothing was measured" in table.table(document(row("a", None, eager=None)))
