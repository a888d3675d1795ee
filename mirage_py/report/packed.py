"""An artifact as one JSON file without its kernels: program, plan and report, for reports alone."""

from __future__ import annotations

import json
from typing import Any

from mirage_py.errors import FormatError
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import dump_text, load_text

KIND = "mirage_py artifact for a report"


def packed(artifact: Artifact) -> str:
    """The file. Its kernels are emitted anew when it is read, by the version that reads it."""
    plan = json.loads(dump_text(artifact.plan)) if artifact.plan else None
    document = {
        "kind": KIND,
        "program": json.loads(dump_text(artifact.program)),
        "plan": plan,
        "report": dict(artifact.report),
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"


def unpacked(document: Any, where: str) -> Artifact:
    """The artifact of a file that was read as JSON. Raises FormatError for anything else."""
    parts = [document.get(k) for k in ("program", "plan", "report")]
    program, plan = (None if p is None else load_text(json.dumps(p), where) for p in parts[:2])
    is_plan = plan is None or isinstance(plan, Plan)
    if not isinstance(program, Program) or not is_plan or not isinstance(parts[2], dict):
        raise FormatError(
            "is no packed artifact",
            where=where,
            repair="pass an artifact's folder, or a file that `mirage-py report --pack` wrote",
        )
    assert plan is None or isinstance(plan, Plan)
    return Artifact(program, plan, parts[2])
