"""Seals: records that this user verified a result on this machine.

    CACHE/seals/SHA-256      an empty file: what has this digest was found, or verified, here

The cache may be shared, so that others may write there what is sound in itself and wrong. The
folder of seals is private; where it cannot be, seals last as long as the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json

from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.ugraph.text.json_form import dump_text

_KIND = "seals"


def seal(found: Artifact) -> None:
    """Remember that a result was verified; one that cannot be remembered is verified again."""
    with contextlib.suppress(OSError):
        write_text(private_folder(_KIND) / _digest(found), "")


def is_sealed(found: Artifact) -> bool:
    """Whether a result is one that was verified here, unaltered."""
    return (private_folder(_KIND) / _digest(found)).is_file()


def _digest(found: Artifact) -> str:
    """Of what was read, not of files that may be exchanged meanwhile."""
    plan = dump_text(found.plan) if found.plan is not None else ""
    report = json.dumps(found.report, sort_keys=True)
    content = json.dumps([dump_text(found.program), plan, report])
    return hashlib.sha256(content.encode()).hexdigest()
