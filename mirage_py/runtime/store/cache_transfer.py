"""Export of cached results to a folder or tar archive, and import without trusting any.

    TARGET/KEY/manifest.json      the files of an artifact, as they lie in the cache
    TARGET/KEY/plan.json
    ...

Nothing of an archive is unpacked. What is read has to be plain files with names of this form and
of a reasonable size, the artifact has to load (checksums, and sources that are emitted again and
compared), and its µGraph has to compute its program; what is then written to the cache was made
here, from the values that were read. Of what the report says nothing is taken.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from mirage_py.errors import FormatError, InputError, MirageError
from mirage_py.runtime.base.atomic import write_folder, writing
from mirage_py.runtime.base.private_folder import scratch_folder
from mirage_py.runtime.store.artifact import Artifact, load_artifact
from mirage_py.runtime.store.cache import Entry, ResultCache
from mirage_py.runtime.store.manifest import (
    MAX_FILE_BYTES,
    NAME,
    read_checked,
    read_manifest,
    read_plain,
)
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.field_test.field_test import field_test

_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_OTHER_ARCHIVES = (".zip", ".7z", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".gz")
_NAME = re.compile(
    r"(?P<target>[a-z0-9_]{1,40})/(?P<key>[0-9a-f]{8,64})/"
    r"(?P<file>kernels/[^\W\d]\w{,199}\.(?:py|cu)|[a-z]{1,20}(?:\.[a-z]{1,9}){1,2})"
)
# What one archive may hold in all; a cache of ten thousand results is smaller.
_MAX_FILES = 200_000
_MAX_BYTES = 1 << 30
_CHUNK = 1 << 20
# An entry may be replaced while it is read.
_TRIES = 3

Files = dict[str, str]
# What is kept of an artifact for a target.
Verifier = Callable[[Artifact, str], Artifact]


@dataclass(frozen=True, slots=True)
class Imported:
    """``outcome`` is ``imported``, ``known`` (it was in the cache already) or ``refused``."""

    target: str
    key: str
    program: str
    outcome: str
    reason: str = ""


def is_archive(path: Path) -> bool:
    """Whether a path is to be a tar archive, by its name."""
    return path.name.endswith(_ARCHIVES)


def export_entries(entries: Sequence[Entry], destination: Path) -> tuple[Entry, ...]:
    """Write entries to a new folder, or a new archive; those that were sound.

    The same entries give the same archive, byte for byte. Raises InputError where something is in
    the way.
    """
    if destination.is_symlink() or (
        any(destination.iterdir()) if destination.is_dir() else destination.exists()
    ):
        raise InputError(
            "something is there already", where=str(destination), repair="name another file"
        )
    if not is_archive(destination) and destination.name.endswith(_OTHER_ARCHIVES):
        raise InputError(
            "archives of this kind are not written",
            where=str(destination),
            why=f"an archive ends in {', '.join(_ARCHIVES)}; any other name is that of a folder",
            repair=f"{destination.with_suffix('.tar.gz')}",
        )
    sound: list[Entry] = []
    held: dict[str, Files] = {}
    for entry in sorted(entries, key=lambda e: (e.target, e.key)):
        files = _read_entry(entry.folder)
        place = f"{entry.target}/{entry.key}"
        if files is None or not all(_NAME.fullmatch(f"{place}/{name}") for name in files):
            continue  # damaged: it would be refused where it is imported
        held[place] = files
        sound.append(entry)
    with writing("the export", destination, "make room, or name another place"):
        if is_archive(destination):
            _write_archive(destination, held)
        else:
            for place, files in held.items():
                write_folder(destination / place, files)
    return tuple(sound)


def _read_entry(folder: Path) -> Files | None:
    """An entry's files as one writer left them, or None where there is no such state to be had."""
    for _ in range(_TRIES):
        try:
            text = read_plain(folder, NAME)
            manifest = read_manifest(folder)
            files = {name: read_checked(folder, name, manifest) for name in manifest.files}
            if read_plain(folder, NAME) == text:
                return {**files, NAME: text}
        except FormatError:
            if not folder.is_dir():
                return None
    return None


def compared(artifact: Artifact, target: str) -> Artifact:
    """The artifact without its report. Raises VerificationError unless the µGraph computes the
    program.
    """
    if artifact.plan is not None:
        program = lower_masks(artifact.program)
        field_test(program, artifact.plan.ugraph, trials=4, seed=0).require()
    return replace(artifact, report={"target": target})


def import_entries(
    cache: ResultCache, source: Path, *, verified: Verifier | None = compared
) -> Iterator[Imported]:
    """Take in the entries of a folder or archive, one after the other.

    ``verified`` gives what is kept of an artifact for a target, or raises a MirageError that says
    why it is none; by default µGraphs are compared with their programs over finite fields, and no
    report is kept. None: everything is taken as it is, and verified when it is first asked for.
    Raises InputError where the source cannot be read, or holds anything but entries: then nothing
    of it is taken.
    """
    held = _read_archive(source) if source.is_file() else _read_folder(source)
    for (target, key), files in sorted(held.items()):
        yield _take_in(cache, target, key, files, verified)


def _take_in(
    cache: ResultCache, target: str, key: str, files: Files, verified: Verifier | None
) -> Imported:
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        staged = Path(folder) / key
        try:
            write_folder(staged, files)
            artifact = load_artifact(staged)
            if artifact.report.get("target", target) != target:
                raise FormatError("is an entry of another target", where=f"{target}/{key}")
            if cache.folder(target, key).is_dir():
                return Imported(target, key, artifact.program.name, "known")
            artifact = verified(artifact, target) if verified is not None else artifact
        except MirageError as error:
            return Imported(target, key, "", "refused", f"{error.what} {error.why}".strip())
        except OSError as error:
            return Imported(target, key, "", "refused", f"cannot be looked at: {error}")
    written = cache.put(
        target,
        key,
        program=artifact.program,
        plan=artifact.plan,
        report=artifact.report,
        verified=verified is not None,
    )
    outcome = "refused" if written is None else "imported"
    reason = "the cache cannot be written" if written is None else ""
    return Imported(target, key, artifact.program.name, outcome, reason)


# -- archives and folders ------------------------------------------------------------------------


def _write_archive(path: Path, held: dict[str, Files]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            _pack(out, held, compressed=not path.name.endswith(".tar"))
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _pack(out: IO[bytes], held: dict[str, Files], *, compressed: bool) -> None:
    stream = gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0) if compressed else out
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for place, files in held.items():
            for name, text in sorted(files.items()):
                member = tarfile.TarInfo(f"{place}/{name}")
                content = text.encode()
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))
    if compressed:
        stream.close()


class _Collector:
    """Files of entries by target and key, with the bounds that a whole source has."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.held: dict[tuple[str, str], Files] = {}
        self._files = 0
        self._bytes = 0

    def name_of(self, name: str, size: int) -> tuple[str, str, str]:
        """Target, key and file of a name. Raises InputError for anything else or for too much."""
        found = _NAME.fullmatch(name.removeprefix("./"))
        if found is None:
            raise self.refusal(name, "is not TARGET/KEY/FILE")
        self.count(name, size)
        return found["target"], found["key"], found["file"]

    def count(self, name: str, size: int) -> None:
        """Take note of something that is read. Raises InputError for too much."""
        self._files += 1
        self._bytes += size
        if size > MAX_FILE_BYTES:
            raise self.refusal(name, f"is larger than {MAX_FILE_BYTES} bytes")
        if self._files > _MAX_FILES or self._bytes > _MAX_BYTES:
            raise self.refusal(name, f"is one too many: at most {_MAX_FILES} files are read")

    def add(self, place: tuple[str, str, str], content: bytes) -> None:
        target, key, file = place
        files = self.held.setdefault((target, key), {})
        if file in files:
            raise self.refusal("/".join(place), "is there twice")
        try:
            files[file] = content.decode("utf-8")
        except UnicodeDecodeError:
            raise self.refusal("/".join(place), "is not text") from None

    def refusal(self, name: str, why: str) -> InputError:
        return InputError(
            "this is no export of a cache",
            where=str(self.source),
            why=f"{name[:120]!r} {why}",
            repair="name a folder or archive that `mirage-py cache export` wrote",
        )


class _Bounded(io.RawIOBase):
    """A stream that ends in an error before it fills the memory, however well it was compressed."""

    def __init__(self, stream: gzip.GzipFile | io.BufferedIOBase) -> None:
        self._stream = stream
        self._left = 2 * _MAX_BYTES

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {2 * _MAX_BYTES} bytes")
        return content


def _read_archive(source: Path) -> dict[tuple[str, str], Files]:
    collector = _Collector(source)
    try:
        with source.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with (
            gzip.open(source) if is_packed else source.open("rb") as stream,
            _Bounded(stream) as bounded,
            tarfile.open(fileobj=bounded, mode="r|") as archive,
        ):
            for member in archive:
                if member.isdir():
                    collector.count(member.name, 0)
                    continue
                if not member.isreg() or member.issparse():
                    raise collector.refusal(member.name, "is a link or another special file")
                place = collector.name_of(member.name, member.size)
                content = archive.extractfile(member)
                assert content is not None
                collector.add(place, content.read(member.size))
            while bounded.read(_CHUNK):
                pass  # to the end, where gzip compares its checksum
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, RecursionError) as error:
        # Headers that describe the next header are read by recursion.
        raise InputError(
            "the archive cannot be read",
            where=str(source),
            why=str(error),
            repair="name an archive that `mirage-py cache export` wrote",
        ) from None
    return collector.held


def _read_folder(source: Path) -> dict[tuple[str, str], Files]:
    collector = _Collector(source)
    if not source.is_dir():
        raise InputError(
            "there is no such folder or archive", where=str(source), repair="check the path"
        )
    try:
        for folder, folders, names in os.walk(source):
            folders.sort()
            for name in sorted((*names, *folders)):
                path = Path(folder) / name
                relative = path.relative_to(source).as_posix()
                if path.is_symlink() or not (path.is_file() or path.is_dir()):
                    raise collector.refusal(relative, "is a link or another special file")
                if path.is_file():
                    place = collector.name_of(relative, path.stat().st_size)
                    collector.add(place, path.read_bytes())
    except OSError as error:
        raise InputError(
            "the folder cannot be read", where=str(source), why=str(error), repair="check the path"
        ) from None
    return collector.held
