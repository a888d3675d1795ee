"""Exports are taken in again whole, and nothing else is taken in."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_kernels import doubling_plan, emitting
from plans import two_kernel_plan

from mirage_py.errors import InputError
from mirage_py.runtime.store import cache_transfer
from mirage_py.runtime.store.artifact import artifact_files
from mirage_py.runtime.store.cache import ResultCache
from mirage_py.runtime.store.cache_transfer import export_entries, import_entries
from mirage_py.runtime.store.seals import is_sealed
from mirage_py.ugraph.checks.run_time_sizes import with_run_time_sizes

PLAN = two_kernel_plan(9, 40)
PROGRAM = PLAN.ugraph.program
KEY = "ab" * 32
FILES = artifact_files(PROGRAM, PLAN, {"best": {}})


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    cache = ResultCache(tmp_path / "cache")
    for key, plan in ((KEY, PLAN), ("cd" * 32, None)):
        cache.put("h200", key, program=PROGRAM, plan=plan, report={"best": {"kernels": 2}})
    return cache


@pytest.fixture
def other(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / "other")


def _archive(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _member(name: str, content: str = "{}") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content.encode()


def _link(name: str, target: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def _entry(files: dict[str, str]) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [_member(f"h200/{KEY}/{name}", text) for name, text in files.items()]


@pytest.mark.parametrize("name", ["out", "out.tar", "out.tar.gz", "deep/out.tgz"])
def test_there_and_back(cache: ResultCache, other: ResultCache, tmp_path: Path, name: str):
    written = export_entries(cache.entries(), tmp_path / name)
    assert sorted(e.key for e in written) == [KEY, "cd" * 32]
    outcomes = [(e.key, e.program, e.outcome) for e in import_entries(other, tmp_path / name)]
    assert outcomes == [(KEY, "scale", "imported"), ("cd" * 32, "scale", "imported")]
    taken = other.get("h200", KEY)
    assert taken is not None
    assert taken.plan == PLAN
    # What it says of itself is not taken.
    assert taken.report == {"target": "h200"}
    fallback = other.get("h200", "cd" * 32)
    assert fallback is not None
    assert fallback.plan is None
    assert [e.outcome for e in import_entries(other, tmp_path / name)] == ["known", "known"]


def test_kernels_of_every_kind_travel(
    other: ResultCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    emitting(monkeypatch, lambda _: "plain")
    cache = ResultCache(tmp_path / "cache")
    cuda = doubling_plan()
    sized = with_run_time_sizes(PLAN, ("b",))
    for key, plan in (("ab" * 32, cuda), ("cd" * 32, sized)):
        cache.put("h200", key, program=plan.ugraph.program, plan=plan, report={})
    export_entries(cache.entries(), tmp_path / "out.tar.gz")
    assert [e.outcome for e in import_entries(other, tmp_path / "out.tar.gz")] == ["imported"] * 2
    for key, plan in (("ab" * 32, cuda), ("cd" * 32, sized)):
        taken = other.get("h200", key)
        assert taken is not None
        assert taken.plan == plan


def test_an_archive_is_the_same_every_time(cache: ResultCache, tmp_path: Path):
    for name in ("a.tar.gz", "b.tar.gz"):
        export_entries(cache.entries(), tmp_path / name)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_a_damaged_entry_is_not_exported(cache: ResultCache, tmp_path: Path):
    (cache.folder("h200", KEY) / "plan.json").unlink()
    written = export_entries(cache.entries(), tmp_path / "out")
    assert [e.key for e in written] == ["cd" * 32]


@pytest.mark.parametrize("name", ["file", "full", "link"])
def test_nothing_is_overwritten(cache: ResultCache, tmp_path: Path, name: str):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="something is there already"):
        export_entries(cache.entries(), tmp_path / name)


def test_names_with_a_dot_in_front_are_the_same_names(other: ResultCache, tmp_path: Path):
    members = [_member(f"./h200/{KEY}/{name}", text) for name, text in FILES.items()]
    (entry,) = import_entries(other, _archive(tmp_path / "a.tgz", members))
    assert entry.outcome == "imported"


BAD = {
    "above": _member("../evil"),
    "above an entry": _member(f"h200/{KEY}/../../../evil"),
    "absolute": _member("/etc/passwd"),
    "a stray file": _member("README.md"),
    "a hidden file": _member(f"h200/{KEY}/.lock"),
    "a deep file": _member(f"h200/{KEY}/a/b/c"),
    "no key": _member("h200/nothexadecimal/plan.json"),
    "a symbolic link": _link(f"h200/{KEY}/plan.json", "/etc/passwd", tarfile.SYMTYPE),
    "a hard link": _link(f"h200/{KEY}/plan.json", f"h200/{KEY}/program.json", tarfile.LNKTYPE),
    "a device": _link(f"h200/{KEY}/plan.json", "", tarfile.CHRTYPE),
    "a pipe": _link(f"h200/{KEY}/plan.json", "", tarfile.FIFOTYPE),
    "a block device": _link(f"h200/{KEY}/plan.json", "", tarfile.BLKTYPE),
    "a sparse file": _link(f"h200/{KEY}/plan.json", "", tarfile.GNUTYPE_SPARSE),
    "a file in the place of a folder": _member(f"h200/{KEY}/kernels"),
    "a long file": _member(f"h200/{KEY}/kernels/{'x' * 300}.py"),
    "a long target": _member(f"{'h' * 300}/{KEY}/plan.json"),
    "a long key": _member(f"h200/{'a' * 300}/plan.json"),
    "letters that look alike": _member(f"h200/{KEY}/pl\u0430n.json"),
    "a letter of two parts": _member(f"h200/{KEY}/kernels/e\u0301/x.py"),
    "a target of other letters": _member(f"h\uff12\uff10\uff10/{KEY}/plan.json"),
    "a back slash": _member(f"h200/{KEY}/..\\evil"),
    "a new line": _member(f"h200/{KEY}/plan.json\n"),
    "a space": _member(f"h200/{KEY}/plan.json "),
    "a byte that is no text": _member(f"h200/{KEY}/plan.json\udcff"),
    "a configuration of Python": _member(f"h200/{KEY}/kernels/evil.pth"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_entry_is_refused_with_all_the_rest(
    other: ResultCache, tmp_path: Path, bad: str
):
    path = _archive(tmp_path / "a.tar.gz", [*_entry(FILES), BAD[bad]])
    with pytest.raises(InputError, match="no export of a cache"):
        list(import_entries(other, path))
    assert other.entries() == ()
    assert not (tmp_path / "evil").exists()


def test_a_file_that_is_there_twice(other: ResultCache, tmp_path: Path):
    path = _archive(tmp_path / "a.tar.gz", [*_entry(FILES), _member(f"h200/{KEY}/plan.json")])
    with pytest.raises(InputError, match="is there twice"):
        list(import_entries(other, path))


def test_links_in_a_folder(cache: ResultCache, other: ResultCache, tmp_path: Path):
    export_entries(cache.entries(), tmp_path / "out")
    (tmp_path / "out" / "h200" / KEY / "kernels" / "more.py").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link"):
        list(import_entries(other, tmp_path / "out"))
    (tmp_path / "out" / "h200" / KEY / "kernels" / "more.py").unlink()
    (tmp_path / "out" / "a100").symlink_to(tmp_path / "out" / "h200")
    with pytest.raises(InputError, match="is a link"):
        list(import_entries(other, tmp_path / "out"))
    assert other.entries() == ()


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_archive(other: ResultCache, tmp_path: Path, content: bytes):
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(InputError, match="the archive cannot be read"):
        list(import_entries(other, tmp_path / "a.tar.gz"))


def test_a_source_that_is_not_there(other: ResultCache, tmp_path: Path):
    with pytest.raises(InputError, match="no such folder or archive"):
        list(import_entries(other, tmp_path / "nothing"))


def test_a_small_archive_of_something_huge(other, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(cache_transfer, "_MAX_BYTES", 1 << 20)
    with gzip.open(tmp_path / "a.tar.gz", "wb") as out:
        member = tarfile.TarInfo(f"h200/{KEY}/plan.json")
        member.size = 16 << 20
        out.write(member.tobuf())
        out.write(b"0" * (16 << 20))
    with pytest.raises(InputError):
        list(import_entries(other, tmp_path / "a.tar.gz"))
    # The name of a member may be long as well, and is read before it can be judged.
    with gzip.open(tmp_path / "b.tar.gz", "wb") as out:
        member = tarfile.TarInfo("././@LongLink")
        member.type, member.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
        out.write(member.tobuf())
        out.write(b"a" * (64 << 20))
    with pytest.raises(InputError, match="the archive cannot be read"):
        list(import_entries(other, tmp_path / "b.tar.gz"))


def test_a_chain_of_headers(other: ResultCache, tmp_path: Path):
    """Each says how long the name of the next one is; tarfile follows them by recursion."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1
    (tmp_path / "a.tar").write_bytes((member.tobuf() + b"a" + b"\0" * 511) * 3000)
    with pytest.raises(InputError, match="the archive cannot be read"):
        list(import_entries(other, tmp_path / "a.tar"))


@pytest.mark.parametrize("seed", range(8))
def test_a_packed_archive_with_wrong_bits(cache, other, tmp_path: Path, seed: int):
    export_entries(cache.entries(), tmp_path / "a.tar.gz")
    content = bytearray((tmp_path / "a.tar.gz").read_bytes())
    rng = random.Random(seed)
    for _ in range(3):
        content[rng.randrange(12, len(content))] ^= 1 << rng.randrange(8)
    (tmp_path / "b.tar.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"the archive cannot be read|no export"):
        list(import_entries(other, tmp_path / "b.tar.gz"))


def test_folders_without_end(other: ResultCache, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(cache_transfer, "_MAX_FILES", 50)
    folder = tarfile.TarInfo("h200")
    folder.type = tarfile.DIRTYPE
    (tmp_path / "a.tar").write_bytes(folder.tobuf() * 60)
    with pytest.raises(InputError, match="one too many"):
        list(import_entries(other, tmp_path / "a.tar"))


def test_an_entry_of_another_target_is_refused(cache: ResultCache, other, tmp_path: Path):
    cache.put("h200", KEY, program=PROGRAM, plan=PLAN, report={"target": "h200"})
    export_entries(cache.entries(), tmp_path / "out")
    (tmp_path / "out" / "h200").rename(tmp_path / "out" / "a100")
    found = {e.key: (e.outcome, e.reason) for e in import_entries(other, tmp_path / "out")}
    assert found[KEY] == ("refused", "is an entry of another target")


def test_an_export_without_room(cache: ResultCache, tmp_path: Path, monkeypatch):
    def full(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mirage_py.runtime.store.cache_transfer.tempfile.mkstemp", full)
    monkeypatch.setattr("mirage_py.runtime.base.atomic.tempfile.mkdtemp", full)
    for name in ("a.tar", "folder"):
        with pytest.raises(InputError, match="cannot be written") as raised:
            export_entries(cache.entries(), tmp_path / name)
        assert "No space left" in str(raised.value)


def test_an_import_without_room(cache: ResultCache, other, tmp_path: Path, monkeypatch):
    export_entries(cache.entries(), tmp_path / "a.tar")

    def full(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mirage_py.runtime.store.cache_transfer.write_folder", full)
    found = list(import_entries(other, tmp_path / "a.tar"))
    assert [e.outcome for e in found] == ["refused"] * 2
    assert all("No space left" in e.reason for e in found)


def test_an_entry_that_names_strange_files_is_not_exported(cache: ResultCache, tmp_path: Path):
    """Or nothing of the export could be imported."""
    folder = cache.folder("h200", KEY)
    (folder / "notes and thoughts").write_text("x")
    document = json.loads((folder / "manifest.json").read_text())
    document["files"]["notes and thoughts"] = hashlib.sha256(b"x").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(document))
    assert [e.key for e in export_entries(cache.entries(), tmp_path / "out")] == ["cd" * 32]


def _without_plan(files: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if name != "plan.json"}


def _altered(files: dict[str, str]) -> dict[str, str]:
    return {**files, "plan.json": files["plan.json"].replace("40", "41")}


def _other_source(files: dict[str, str]) -> dict[str, str]:
    """A kernel that does something else, with a manifest that fits it."""
    (name,) = [n for n in files if n.startswith("kernels/row")]
    changed = {**files, name: files[name] + "\nprint('executed')\n"}
    return _with_manifest(changed)


def _wrong(files: dict[str, str]) -> dict[str, str]:
    """Sound in itself, but the kernels compute something else."""
    kernels = tuple(
        replace(
            kernel,
            nodes=tuple(
                replace(n, op="max", attr=n.attr) if n.op == "sum" else n for n in kernel.nodes
            ),
        )
        for kernel in PLAN.ugraph.kernels
    )
    wrong = replace(PLAN, ugraph=replace(PLAN.ugraph, kernels=kernels))
    return artifact_files(PROGRAM, wrong, json.loads(files["report.json"]))


def _with_manifest(files: dict[str, str]) -> dict[str, str]:
    from mirage_py.runtime.store.manifest import NAME, manifest_text

    own = {name: text for name, text in files.items() if name != NAME}
    return {**own, NAME: manifest_text("triton", own)}


@pytest.mark.parametrize("harm", [_without_plan, _altered, _other_source, _wrong])
def test_an_entry_that_is_not_sound_is_refused(
    other: ResultCache, tmp_path: Path, harm: Callable[[dict[str, str]], dict[str, str]], capsys
):
    path = _archive(tmp_path / "a.tar.gz", _entry(harm(FILES)))
    (entry,) = import_entries(other, path)
    assert entry.outcome == "refused"
    assert entry.reason
    assert other.entries() == ()
    assert "executed" not in capsys.readouterr().out


def test_without_verifying_a_wrong_plan_is_taken(other: ResultCache, tmp_path: Path):
    path = _archive(tmp_path / "a.tar.gz", _entry(_wrong(FILES)))
    (entry,) = import_entries(other, path, verified=None)
    assert entry.outcome == "imported"
    taken = other.get("h200", KEY)
    assert taken is not None
    assert not is_sealed(taken)
