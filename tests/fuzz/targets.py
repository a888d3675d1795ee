"""What is fuzzed: readers of what others wrote, with valid examples and the errors they may raise.

A target takes any text. It returns whether the text was read; an error that is not documented comes
out, and what was read has to come back equal from what is written for it.
"""

from __future__ import annotations

import io
import random
import shutil
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import samples
import several_kernels
from fuzz.mutation import json_mutated, mutated
from plans import rms_plan, two_kernel_plan

from mirage_py.errors import (
    MAX_PART_CHARACTERS,
    FormatError,
    InputError,
    MirageError,
    UnsupportedError,
    ValidationError,
)
from mirage_py.frontend.spec import parse
from mirage_py.runtime.base.atomic import write_folder
from mirage_py.runtime.store.artifact import artifact_files, load_artifact
from mirage_py.runtime.store.cache import ResultCache
from mirage_py.runtime.store.cache_transfer import import_entries
from mirage_py.runtime.store.manifest import NAME, manifest_text
from mirage_py.ugraph.checks.validate import validate_program, validate_ugraph
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.text_form import (
    format_program,
    format_ugraph,
    parse_program,
    parse_ugraph,
)

if TYPE_CHECKING:
    from mirage_py.search.enumerate.jobs import Setting

ROOT = Path(__file__).parents[2]
KEY = "ab" * 32
# Between files of one text, so that one text is a whole folder: FILE NAME.
_FILE = "\f"

Mutate = Callable[[random.Random, str, Sequence[str]], str]


@dataclass(frozen=True)
class Target:
    """``run`` takes a text; ``seeds`` gives valid examples; ``mutate`` changes one."""

    run: Callable[[str], bool]
    seeds: Callable[[], Sequence[str]]
    mutate: Mutate


class Undocumented(Exception):  # noqa: N818
    """An error of ours that is not of the form that errors have; its cause is that error."""


# What a message may take on a screen, also where it quotes the input.
_LONGEST_MESSAGE = 3 * MAX_PART_CHARACTERS + 500


def documented(error: MirageError, *kinds: type[MirageError]) -> None:
    """Hold an error to the form that errors have."""
    # What breaks a rule of the IR is told what to try where the file is read
    # (cli/input/subject.py).
    told_elsewhere = isinstance(error, ValidationError)
    lacks = [
        *([] if isinstance(error, kinds) else ["the kind that is documented"]),
        *([] if error.what else ["what"]),
        *([] if error.where else ["where"]),
        *([] if error.why or error.repair or told_elsewhere else ["why and what to try"]),
        *([] if len(str(error)) < _LONGEST_MESSAGE else ["an end"]),
    ]
    if lacks:
        raise Undocumented(f"it lacks {', '.join(lacks)}") from error


# -- text --------------------------------------------------------------------------------------


def read_spec(text: str) -> bool:
    """A math spec."""
    try:
        program = parse(text, sizes={"T": 4} if "T = ?" in text else None)
    except MirageError as error:
        documented(error, InputError, UnsupportedError)
        return False
    assert load_text(dump_text(program), "again") == program
    assert parse_program(format_program(program)) == program
    return True


def read_text(text: str) -> bool:
    """The text of a program or µGraph."""
    try:
        if text.lstrip().startswith("program"):
            program = parse_program(text)
            validate_program(program)
            assert parse_program(format_program(program)) == program
        else:
            ugraph = parse_ugraph(text)
            validate_ugraph(ugraph)
            assert parse_ugraph(format_ugraph(ugraph)) == ugraph
    except ValidationError as error:
        documented(error, ValidationError)
    except MirageError as error:
        documented(error, FormatError)
    else:
        return True
    return False


def read_json(text: str) -> bool:
    """The JSON of a program, µGraph or plan."""
    try:
        found = load_text(text, "input.json")
    except MirageError as error:
        documented(error, FormatError)
        return False
    assert load_text(dump_text(found), "again") == found
    return True


# -- folders -----------------------------------------------------------------------------------


def as_text(files: dict[str, str]) -> str:
    """Files as one text."""
    return "".join(f"{_FILE}{name}\n{text}" for name, text in files.items())


def as_files(text: str) -> dict[str, str]:
    """The files of one text; text in front of the first is dropped."""
    parts = (part.partition("\n") for part in text.split(_FILE)[1:])
    return {name: content for name, _, content in parts}


@cache
def _scratch() -> Path:
    shared = Path("/dev/shm")
    place = shared if shared.is_dir() else None
    return Path(tempfile.mkdtemp(prefix="mirage_py_fuzz_", dir=place))


def clean() -> None:
    """Remove what targets wrote."""
    shutil.rmtree(_scratch(), ignore_errors=True)


def _folder_of(files: dict[str, str]) -> Path | None:
    """The files on disk, or None where the disk refuses such names."""
    folder = _scratch() / "artifact"
    shutil.rmtree(folder, ignore_errors=True)
    inside = {n: t for n, t in files.items() if n and not n.startswith("/") and ".." not in n}
    try:
        write_folder(folder, {n: t.encode(errors="replace").decode() for n, t in inside.items()})
    except (OSError, ValueError):
        return None
    return folder


def read_artifact(text: str) -> bool:
    """An artifact's folder; ``kind`` of its manifest and checksums are mended where it has none."""
    files = as_files(text)
    if NAME not in files:
        files[NAME] = manifest_text("triton" if "plan.json" in files else "fallback", files)
    folder = _folder_of(files)
    if folder is None:
        return False
    try:
        held = load_artifact(folder)
    except MirageError as error:
        documented(error, FormatError)
        return False
    assert artifact_files(held.program, held.plan, held.report)
    return True


def read_archive(text: str) -> bool:
    """A tar archive to import; each file of the text is a member, its name as it stands."""
    files = as_files(text)
    scratch = _scratch()
    source = scratch / "in.tar"
    try:
        source.write_bytes(_packed(files))
    except ValueError:
        return False
    return _imported(source)


def _packed(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, body in files.items():
            data = body.encode(errors="replace")
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def read_archive_bytes(text: str) -> bool:
    """An archive as it is, byte for byte."""
    source = _scratch() / "raw.tar"
    source.write_bytes(text.encode("latin-1", errors="replace"))
    return _imported(source)


def _imported(source: Path) -> bool:
    shutil.rmtree(_scratch() / "cache", ignore_errors=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = list(import_entries(ResultCache(_scratch() / "cache"), source))
    except MirageError as error:
        documented(error, InputError)
        return False
    assert all(e.outcome != "refused" or e.reason for e in found)
    return any(e.outcome == "imported" for e in found)


# -- journals ----------------------------------------------------------------------------------


@cache
def journal_setting() -> Setting:
    """A search that takes a moment."""
    from mirage_py.search.enumerate.jobs import Setting
    from mirage_py.search.extract.task import SearchLimits

    spec = "X[16, 64] : f16\nS[b] = sum[d](X[b, d]^2)\nY[b, d] : f16 = X[b, d] / S[b]"
    program = parse(spec)
    return Setting(program, 0, SearchLimits(rings=("factored",), max_kernels=1))


@cache
def journal_lines() -> tuple[str, ...]:
    """The lines of a complete journal, without their checksums."""
    from mirage_py.search.enumerate.search import search

    setting = journal_setting()
    path = _scratch() / "seed.journal"
    path.unlink(missing_ok=True)
    search(setting.program, seed=0, limits=setting.limits, journal=path)
    return tuple(line.partition(" ")[2] for line in path.read_text().splitlines())


def _sealed(lines: Sequence[str]) -> str:
    from mirage_py.search.enumerate.journal import _check

    return "".join(f"{_check(line)} {line}\n" for line in lines)


def read_journal(text: str) -> bool:
    """A journal of lines without their checksums, which are made here."""
    path = _scratch() / "fuzz.journal"
    lines = text.encode(errors="replace").decode().split("\n")
    path.write_text(_sealed(lines), encoding="utf-8", newline="")
    return _opened(path)


def read_journal_bytes(text: str) -> bool:
    """A journal as it is."""
    path = _scratch() / "raw.journal"
    path.write_bytes(text.encode(errors="replace"))
    return _opened(path)


def _opened(path: Path) -> bool:
    from mirage_py.search.enumerate.journal import Journal

    before = path.read_bytes()
    try:
        known = Journal(path, journal_setting()).known
    except MirageError as error:
        documented(error, InputError)
        assert path.read_bytes() == before, "a file that was refused was changed"
        return False
    assert Journal(path, journal_setting()).known.keys() == known.keys()
    return bool(known)


# -- the table ---------------------------------------------------------------------------------


@cache
def _spec_seeds() -> tuple[str, ...]:
    folders = ("examples", "examples/odd", "tests/data/malformed_specs")
    paths = (p for f in folders for p in sorted((ROOT / f).glob("*.math")))
    return tuple(p.read_text(encoding="utf-8") for p in paths)


@cache
def _ugraphs() -> tuple[str, ...]:
    own = [samples.ugraph(name) for name in sorted(samples.TEXTS)]
    own += [several_kernels.ugraph(name) for name in ("split_matmul_added", "library_epilogue")]
    return tuple(format_ugraph(u) for u in own) + tuple(format_program(u.program) for u in own[:3])


@cache
def _documents() -> tuple[str, ...]:
    plans = [rms_plan(), two_kernel_plan(9, 40)]
    values = [plans[0], plans[1], plans[0].ugraph.program, plans[1].ugraph]
    return tuple(dump_text(v) for v in values)


@cache
def _artifacts() -> tuple[str, ...]:
    plan = two_kernel_plan(9, 40)
    program = plan.ugraph.program
    sound = artifact_files(program, plan, {"best": {}})
    unsealed = {name: text for name, text in sound.items() if name != NAME}
    small = artifact_files(program, None, {})
    return tuple(as_text(files) for files in (sound, unsealed, small))


@cache
def _archives() -> tuple[str, ...]:
    plan = two_kernel_plan(9, 40)
    program = plan.ugraph.program
    entries = (artifact_files(program, plan, {}), artifact_files(program, None, {}))
    return tuple(
        as_text({f"h200/{KEY}/{name}": text for name, text in files.items()}) for files in entries
    )


@cache
def _raw_archives() -> tuple[str, ...]:
    return tuple(_packed(as_files(text)).decode("latin-1") for text in _archives())


@cache
def _raw_journals() -> tuple[str, ...]:
    return (_sealed(journal_lines()),)


def _resealed(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """One file changed, as text or as JSON, and the manifest made anew more often than not."""
    files = as_files(text)
    if not files:
        return mutated(rng, text, others)
    name = rng.choice([*files])
    change = json_mutated if name.endswith("json") and rng.random() < 0.6 else None
    files[name] = change(rng, files[name]) if change else mutated(rng, files[name], others)
    manifest = next((n for n in files if n.endswith(NAME)), "")
    if manifest and name != manifest and rng.random() < 0.8:
        prefix = manifest.removesuffix(NAME)
        held = {n.removeprefix(prefix): t for n, t in files.items() if n != manifest}
        kind = "triton" if "plan.json" in held else "fallback"
        files[manifest] = manifest_text(kind, held)
    return as_text(files)


def _json_or_text(rng: random.Random, text: str, others: Sequence[str]) -> str:
    if rng.random() < 0.7:
        return json_mutated(rng, text)
    return mutated(rng, text, others)


def _journal_mutated(rng: random.Random, text: str, others: Sequence[str]) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    if rng.random() < 0.1:
        lines[at] = mutated(rng, lines[at], others)
    elif rng.random() < 0.1:
        return mutated(rng, text, others)
    else:
        # The first line names the search: any change there ends the reading.
        at = at or len(lines) - 1
        lines[at] = json_mutated(rng, lines[at])
    return "\n".join(lines)


TARGETS: dict[str, Target] = {
    "spec": Target(read_spec, _spec_seeds, mutated),
    "text": Target(read_text, _ugraphs, mutated),
    "json": Target(read_json, _documents, _json_or_text),
    "artifact": Target(read_artifact, _artifacts, _resealed),
    "archive": Target(read_archive, _archives, _resealed),
    "raw_archive": Target(read_archive_bytes, _raw_archives, mutated),
    "journal": Target(read_journal, lambda: ("\n".join(journal_lines()),), _journal_mutated),
    "raw_journal": Target(read_journal_bytes, _raw_journals, mutated),
}
