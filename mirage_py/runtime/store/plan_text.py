"""A plan as one line of text: to paste into a decorator, a message, a file of settings.

    mirage-plan-1:CHECKSUM:BASE85

It holds the program and the plan in their JSON form, compressed. Reading executes nothing: kernels
are emitted from the plan, and a plan that does not compute its program is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mirage_py.arguments import check_type
from mirage_py.errors import FormatError
from mirage_py.runtime.base.emission import emit_steps
from mirage_py.runtime.store.artifact import Artifact, load_artifact
from mirage_py.runtime.store.artifact_check import checked
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.printing import format_program, format_ugraph
from mirage_py.ugraph.text.tiles_text import tiles_of
from mirage_py.verify.field_test.field_test import field_test

PREFIX = "mirage-plan-1:"
_MAX_CHARACTERS = 1 << 20
_MAX_BYTES = 16 << 20
_AGAIN = "copy the whole line again, or load the artifact's folder"


def plan_text(program: Program, plan: Plan) -> str:
    """The line for a plan of ``program``."""
    both = [json.loads(dump_text(value)) for value in (program, plan)]
    packed = zlib.compress(json.dumps(both, separators=(",", ":")).encode(), 9)
    return f"{PREFIX}{_checksum(packed)}:{base64.b85encode(packed).decode()}"


def is_plan_text(text: str) -> bool:
    """Whether a text is such a line, and no path."""
    return text.lstrip().startswith(PREFIX)


def artifact_of(text_or_folder: str | Path, *, check: bool = True) -> Artifact:
    """The artifact of a folder, or of a line that ``plan_text`` made.

    Raises FormatError for anything else, and VerificationError for a plan that is found not to
    compute its program. A line is always tested over finite fields; a folder with ``check``, once,
    if it was not saved by this user here.
    """
    check_type("text_or_folder", text_or_folder, (str, Path))
    text = str(text_or_folder)
    if not is_plan_text(text):
        found = load_artifact(text)
        return checked(found) if check else found
    program, plan = _unpacked(text.strip())
    field_test(lower_masks(program), plan.ugraph, seed=0).require()
    try:
        emit_steps(plan)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        what = "cannot be made into kernels"
        raise FormatError(what, where="plan", why=reason, repair=_AGAIN) from error
    return Artifact(program, plan, {})


def kernel_from(text_or_folder: str | Path, *, check: bool = True) -> Callable[..., Any]:
    """The kernel of a plan's text or of an artifact's folder, ready to call on torch tensors.

    ``check`` is as for ``load``: a folder that this user did not save on this machine is compared
    with its program first, once. A text is always tested. Raises FormatError for anything else, and
    VerificationError for a plan that computes another function.
    """
    return artifact_of(text_or_folder, check=check).runner()


def explanation(program: Program, plan: Plan | None, report: Mapping[str, Any]) -> list[str]:
    """What a result is in lines: evidence from its report, µGraph, and the line that gives the same
    plan again.
    """
    lines = _evidence(report)
    if plan is None:
        return [*lines, "", format_program(program)]
    lines += [f"tiles: {tiles_of(plan)}", "", format_ugraph(plan.ugraph)]
    lines += ["", "The same again without a search:", ""]
    return [*lines, f'@mirage_py.superoptimize(plan="{plan_text(program, plan)}")']


def _evidence(report: Mapping[str, Any]) -> list[str]:
    best, baseline = report.get("best"), report.get("baseline")
    checked, search = report.get("verification"), report.get("search")
    lines = []
    if best and baseline:
        lines.append(
            f"time: {best['time_us']} us ({best['source']}), "
            f"{baseline['name']} {baseline['time_us']} us"
        )
    if checked:
        proved = "proved, and " if checked["proved"] else ""
        lines.append(
            f"equality: {proved}equal in {checked['trials']} trials over finite fields; "
            f"largest error {checked['max_rel_error']:.3g} of {checked['float_bound']:.3g} allowed"
        )
    if search:
        whole = "all of the space" if search["exhausted"] else "a part of the space"
        lines.append(f"search: {search['candidates']} candidates, {whole}")
    return [*lines, *(f"note: {note}" for note in report.get("notes", ()))]


def _unpacked(text: str) -> tuple[Program, Plan]:
    checksum, _, body = text.removeprefix(PREFIX).partition(":")
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError(f"it is longer than {_MAX_CHARACTERS} characters")
        packed = base64.b85decode(body)
        if _checksum(packed) != checksum:
            raise ValueError("its checksum is another one")
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(packed, _MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise ValueError(f"it unpacks to more than {_MAX_BYTES} bytes")
        parts = json.loads(raw)
        if not isinstance(parts, list) or len(parts) != 2:
            raise ValueError("it holds no program and plan")
    except (ValueError, zlib.error, RecursionError) as error:
        raise FormatError("is no plan", where="plan", why=str(error), repair=_AGAIN) from None
    program, plan = (load_text(json.dumps(part), "plan") for part in parts)
    if not isinstance(program, Program) or not isinstance(plan, Plan):
        raise FormatError("holds no program and plan", where="plan", repair=_AGAIN)
    own = plan.ugraph.program
    if own.inputs != program.inputs or [o.tensor for o in own.outputs] != [
        o.tensor for o in program.outputs
    ]:
        raise FormatError("is a plan for another program", where="plan", repair=_AGAIN)
    return program, plan


def _checksum(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()[:12]
