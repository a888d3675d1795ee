"""``mirage-py cache``: listing, removal, export and import of entries."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from plans import rms_plan, two_kernel_plan

from mirage_py.errors import InputError
from mirage_py.formatting.quantities import age_text, read_age, read_size
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.runtime.store.cache import ResultCache
from mirage_py.runtime.store.seals import seal

PLAN = two_kernel_plan(9, 40)
PROGRAM = PLAN.ugraph.program
KEYS = ("1234" * 16, "12ff" * 16, "ab" * 32)
SUBCOMMANDS = ("ls", "show", "prune", "export", "import")


def _report(kernels: int, time_us: float) -> dict[str, object]:
    best = {"time_us": time_us, "source": "measured", "speedup": 2.5, "kernels": kernels}
    return {"best": best, "notes": ["made for a test"]}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultCache:
    """Three entries, used just now, five hours ago and three weeks ago."""
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "cache"))
    store = ResultCache()
    plans = (PLAN, None, PLAN)
    for key, plan, age_s in zip(KEYS, plans, (0, 5 * 3600, 21 * 86_400), strict=True):
        kernels = len(plan.ugraph.kernels) if plan else 0
        report = _report(kernels, 12.345)
        folder = store.put("h200", key, program=PROGRAM, plan=plan, report=report)
        assert folder is not None
        used_s = time.time() - age_s
        os.utime(folder / "manifest.json", (used_s, used_s))
    return store


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_help_of_subcommands(cli, golden, monkeypatch, command: str):
    monkeypatch.setenv("COLUMNS", "100")
    outcome = cli("cache", command, "--help")
    assert outcome.code == 0
    golden.check(outcome.out, f"cli/help_cache_{command}.txt")


def test_ls(cli, store):
    lines = cli("cache", "ls").out.splitlines()
    assert lines[0].split() == [
        "key", "program", "target", "time", "speedup", "kernels", "size", "used",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:4]] == [key[:12] for key in KEYS]
    first, second, third = lines[1:4]
    assert "12.35 us measured  2.50x    2 kernels" in first
    assert first.endswith("just now")
    assert "original" in second
    assert second.endswith("5 hours ago")
    assert third.endswith("3 weeks ago")
    assert lines[4].startswith("3 entries, ")
    assert lines[4].endswith(str(store.root))


def test_an_empty_cache(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "none"))
    assert cli("cache", "ls").out == f"0 entries, 0 bytes in {tmp_path / 'none' / 'v1'}\n"
    assert cli("cache", "ls", "--json").document["entries"] == []


def test_a_damaged_entry_is_listed_as_one(cli, store):
    (store.folder("h200", KEYS[0]) / "report.json").write_text("{}")
    lines = cli("cache", "ls").out.splitlines()
    assert "damaged" in lines[1]
    assert cli("cache", "ls", "--json").document["entries"][0]["damaged"]
    assert "mirage-py explain" not in cli("cache", "show", KEYS[0]).out


def test_json_of_ls(cli, store):
    document = cli("cache", "ls", "--json").document
    assert document["folder"] == str(store.root)
    first = document["entries"][0]
    assert (first["key"], first["program"], first["target"]) == (KEYS[0], "scale", "h200")
    assert (first["time_us"], first["kernels"], first["speedup"]) == (12.345, 2, 2.5)
    assert first["bytes"] > 0


def test_show(cli, store):
    outcome = cli("cache", "show", "123")
    lines = {line[:10].strip(): line[11:] for line in outcome.out.splitlines()}
    assert lines["key"] == KEYS[0]
    assert lines["best"] == "12.35 us measured"
    assert lines["kernels"] == "2 kernels"
    assert lines["note"] == "made for a test"
    assert lines["folder"] == str(store.folder("h200", KEYS[0]))
    assert lines["more"] == f"mirage-py explain {lines['folder']}"
    document = cli("cache", "show", "AB", "--json").document
    assert document["key"] == KEYS[2]
    assert document["report"]["best"]["kernels"] == 2


@pytest.mark.parametrize(
    ("key", "says"),
    [("12", "'12' names several entries"), ("ff", "names no entry"), ("", "names no entry")],
)
@pytest.mark.usefixtures("store")
def test_a_key_that_is_none(cli, key: str, says: str):
    outcome = cli("cache", "show", key)
    assert outcome.code == 2
    assert says in outcome.err
    assert "mirage-py cache ls" in outcome.err


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--older-than", "4h"], KEYS[:1]),
        (["--older-than", "2w"], KEYS[:2]),
        (["--older-than", "52w"], KEYS),
        (["--max-size", "1kB"], ()),
        (["--max-size", "1GB"], KEYS),
        (["--all"], ()),
        (["--all", "--dry-run"], KEYS),
    ],
)
def test_prune(cli, store, options: list[str], left: tuple[str, ...]):
    outcome = cli("cache", "prune", *options)
    assert outcome.code == 0, outcome.err
    assert tuple(entry.key for entry in store.entries()) == left
    gone = 3 if "--dry-run" in options else 3 - len(left)
    assert len([line for line in outcome.out.splitlines() if "h200" in line]) == gone
    said = "would be removed" if "--dry-run" in options else "removed"
    assert f"{said}, " in outcome.out.splitlines()[-1]


def test_prune_of_all_leaves_nothing(cli, store):
    seal(Artifact(rms_plan().ugraph.program, None, {}))
    private_folder("sources").joinpath("deep").mkdir()
    (private_folder("cubins") / "a.cubin").write_bytes(b"0" * 2000)
    held = private_folder("gpus") / "gpu"
    (private_folder("gpus") / "other").touch()
    with held.open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert "2 kB of compiled code" in cli("cache", "prune", "--all", "--dry-run").out
        assert len(store.entries()) == 3
        assert "3 entries removed" in cli("cache", "prune", "--all").out
        folder = store.root.parent
        # A process is measuring just now.
        assert list(folder.rglob("*")) == [held.parent, held]
    assert cli("cache", "prune", "--all").out.startswith("0 entries removed, 0 bytes")
    assert not folder.exists()


def test_prune_of_all_leaves_what_is_no_part_of_the_cache(cli, store):
    own = store.root.parent / "notes.txt"
    own.write_text("mine")
    document = cli("cache", "prune", "--all", "--json").document
    assert len(document["removed"]) == 3
    assert list(own.parent.iterdir()) == [own]


def test_a_lock_file_that_was_removed_is_not_held(store, monkeypatch):
    """Who waited for it would be alone with a file that nobody else can find."""
    path, flock, calls = store.root / ".lock", fcntl.flock, []

    def held_by_who_removes_it(handle: int, kind: int) -> None:
        if not calls:
            path.unlink()
            path.touch()
        calls.append(kind)
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", held_by_who_removes_it)
    with store._lock(fcntl.LOCK_EX), path.open() as other, pytest.raises(BlockingIOError):
        flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert calls == [fcntl.LOCK_EX] * 2


@pytest.mark.usefixtures("store")
def test_json_of_prune(cli):
    document = cli("cache", "prune", "--older-than", "2w", "--json").document
    assert [entry["key"] for entry in document["removed"]] == [KEYS[2]]
    assert document["dry_run"] is False


@pytest.mark.parametrize(
    "options", [[], ["--all", "--older-than", "1d"], ["--older-than", "soon"],
                ["--older-than", "30"], ["--max-size", "big"], ["--dry-run"]],
)  # fmt: skip
def test_what_to_prune_has_to_be_said(cli, store, options: list[str]):
    outcome = cli("cache", "prune", *options)
    assert outcome.code == 2
    assert len(store.entries()) == 3


def test_export_and_import(cli, store, tmp_path, monkeypatch):
    archive = tmp_path / "results.tar.gz"
    assert cli("cache", "export", archive, "123", "ab").out == f"2 entries written to {archive}\n"
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "other"))
    outcome = cli("cache", "import", archive)
    assert outcome.code == 0, outcome.err
    assert outcome.out == f"2 imported, 0 known, 0 refused from {archive}\n"
    document = cli("cache", "import", archive, "--json").document
    assert (document["imported"], document["known"]) == (0, 2)
    assert len(cli("cache", "ls", "--json").document["entries"]) == 2


@pytest.mark.parametrize("name", ["results.zip", "results.tar.xz", "results.gz"])
def test_an_archive_of_another_kind_is_no_folder(cli, store, tmp_path, name):
    outcome = cli("cache", "export", tmp_path / name)
    assert outcome.code == 2
    assert "archives of this kind are not written" in outcome.err
    assert not (tmp_path / name).exists()


def test_export_says_what_it_left_out(cli, store, tmp_path):
    (store.folder("h200", KEYS[0]) / "plan.json").unlink()
    outcome = cli("cache", "export", tmp_path / "out")
    assert outcome.out.startswith("2 entries written")
    assert "1 entry is damaged and left out" in outcome.err
    assert cli("cache", "export", tmp_path / "out").code == 2


def test_an_entry_that_is_refused(cli, store, tmp_path, monkeypatch):
    cli("cache", "export", tmp_path / "out")
    plan = tmp_path / "out" / "h200" / KEYS[0] / "plan.json"
    plan.write_text(plan.read_text() + " ")
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "other"))
    outcome = cli("cache", "import", tmp_path / "out")
    assert outcome.code == 2
    assert outcome.out.startswith("2 imported, 0 known, 1 refused")
    assert "was altered after it was written" in outcome.err


@pytest.mark.usefixtures("store")
def test_a_link_in_an_import_is_bad_input(cli, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "h200").symlink_to("/etc")
    outcome = cli("cache", "import", tmp_path / "in")
    assert outcome.code == 2
    assert "is a link" in outcome.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("30d", 2_592_000), ("2W", 1_209_600)]
)
def test_ages(text: str, seconds: float):
    assert read_age(text, "--older-than") == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ("1kB", 1000), ("2.5 MB", 2_500_000), ("1gb", 10**9)]
)
def test_sizes(text: str, size: int):
    assert read_size(text, "--max-size") == size


@pytest.mark.parametrize("text", ["", "d", "-3d", "3y", "3 d d", "1e9d"])
def test_what_is_no_age(text: str):
    with pytest.raises(InputError, match="is not an age"):
        read_age(text, "--older-than")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "just now"), (60, "1 minute ago"), (7300, "2 hours ago"), (86_400, "1 day ago")],
)
def test_age_in_words(seconds: float, text: str):
    assert age_text(seconds) == text
