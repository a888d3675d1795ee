"""The list of an artifact's files with their checksums, and reading them without trusting any."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from mirage_py import __version__
from mirage_py.errors import FormatError
from mirage_py.ugraph.text.json_reading import parse_json

SCHEMA = 1
KINDS = ("triton", "cuda", "fallback")
NAME = "manifest.json"
# What a result may take; a longer file is no part of an artifact of ours.
MAX_FILE_BYTES = 64 << 20

# How somebody without this package gets machine code of a stored kernel.
_BY_HAND = "nvcc -std=c++17 -arch=sm_90a -cubin kernels/NAME.cu (sm_90a: H100, H200; sm_80: A100)"
_REPAIR = "make the artifact again with `mirage-py superoptimize ... -o DIR`"


@dataclass(frozen=True, slots=True)
class Manifest:
    """``kind`` is the back end of the plan, or ``fallback``; ``files`` maps each name to its
    SHA-256.
    """

    kind: str
    version: str
    files: Mapping[str, str]


def manifest_text(kind: str, files: Mapping[str, str]) -> str:
    """The manifest of files given as name -> text."""
    document = {
        "schema": SCHEMA,
        "kind": kind,
        "mirage_py": __version__,
        **({"compile": _BY_HAND} if kind == "cuda" else {}),
        "files": {name: sha256(text) for name, text in sorted(files.items())},
    }
    return json.dumps(document, indent=1) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact folder. Raises FormatError."""
    if not folder.is_dir():
        raise FormatError(
            "there is no such folder",
            where=str(folder),
            repair="pass the folder that `mirage-py superoptimize -o DIR` wrote",
        )
    where = str(folder / NAME)
    document: Any = parse_json(read_plain(folder, NAME), where)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise FormatError(f"is not a manifest of schema {SCHEMA}", where=where, repair=_REPAIR)
    kind, version, files = (document.get(k) for k in ("kind", "mirage_py", "files"))
    if kind not in KINDS:
        raise FormatError(f"unknown kind of artifact {kind!r:.80}", where=where, repair=_REPAIR)
    if not isinstance(version, str):
        raise FormatError("does not say which version wrote it", where=where, repair=_REPAIR)
    if not isinstance(files, dict) or not all(isinstance(v, str) for v in files.values()):
        raise FormatError("has no list of files", where=where, repair=_REPAIR)
    return Manifest(kind, version, files)


def read_checked(folder: Path, name: str, manifest: Manifest) -> str:
    """A file's text, which must be the one that the manifest was made for. Raises FormatError."""
    if name not in manifest.files:
        raise FormatError(f"does not list {name}", where=str(folder / NAME), repair=_REPAIR)
    text = read_plain(folder, name)
    if sha256(text) != manifest.files[name]:
        raise FormatError(
            "was altered after it was written",
            where=str(folder / name),
            why="its checksum is not the one in the manifest",
            repair=f"{_REPAIR}; if you edited it, run it with `mirage-py rerun`",
        )
    return text


def read_plain(folder: Path, name: str) -> str:
    """The text of a plain file inside ``folder``: no links, nothing outside. Raises FormatError."""
    where = str(folder / name)
    path = PurePosixPath(name)
    if path.is_absolute() or any(part in ("..", ".", "") for part in name.split("/")):
        raise FormatError("is not a name inside of the artifact", where=where, repair=_REPAIR)
    current, mode = folder, 0
    for part in path.parts:
        current /= part
        try:
            mode = current.lstat().st_mode
        except (OSError, ValueError):
            raise FormatError("is missing", where=where, repair=_REPAIR) from None
        if stat.S_ISLNK(mode):
            raise FormatError(
                "is a symbolic link",
                where=str(current),
                why="an artifact holds plain files only",
                repair="copy the folder with its contents (cp -rL)",
            )
    if not stat.S_ISREG(mode):
        raise FormatError("is not a plain file", where=where, repair=_REPAIR)
    try:
        if current.stat().st_size > MAX_FILE_BYTES:
            raise FormatError(f"is larger than {MAX_FILE_BYTES} bytes", where=where, repair=_REPAIR)
        return current.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError, MemoryError) as error:
        raise FormatError("cannot be read", where=where, why=str(error), repair=_REPAIR) from None


def sha256(text: str) -> str:
    """Hexadecimal SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
