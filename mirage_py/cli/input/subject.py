"""The content of a path on the command line: a program, a µGraph, a plan or an artifact."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirage_py.arguments import path_of
from mirage_py.cli.input.source import is_function, read_source
from mirage_py.errors import FormatError, InputError, ValidationError
from mirage_py.ugraph.checks.validate import validate_program, validate_ugraph
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.files import read_text
from mirage_py.ugraph.text.json_form import load_text
from mirage_py.ugraph.text.text_form import parse_program, parse_ugraph

_FIRST_WORD = re.compile(r"\A(?:\s|#[^\n]*\n)*(program|ugraph)\b(?!\s*[\[=,:])")


@dataclass(frozen=True, slots=True)
class Subject:
    """``ugraph``, ``plan`` and ``proof`` are there as far as the path holds them.

    ``proof`` is the JSON form of a derivation, unread.
    """

    name: str
    program: Program
    ugraph: UGraph | None = None
    plan: Plan | None = None
    proof: Mapping[str, Any] | None = None


def read_subject(text: str, *, inputs: Sequence[str] = (), sizes: Sequence[str] = ()) -> Subject:
    """Read a spec, ``module.py:function``, a µGraph (JSON or text) or an artifact folder.

    ``inputs`` and ``sizes`` are those of a function or spec. Raises InputError (SpecError,
    FormatError among them) with the place.
    """
    if is_function(text):
        return Subject(text, read_source(text, inputs=inputs, sizes=sizes).program)
    path = path_of("subject", text)
    if path.is_dir():
        from mirage_py.runtime.store.artifact import load_artifact

        held = load_artifact(path)
        ugraph = held.plan.ugraph if held.plan else None
        verification = held.report.get("verification", {})
        return Subject(text, held.program, ugraph, held.plan, verification.get("proof"))
    content = _content(path)
    if path.suffix == ".json" or content.lstrip().startswith("{"):
        return _subject(text, load_text(content, text))
    first = _FIRST_WORD.match(content)
    if first is None or path.suffix == ".math":
        return Subject(text, read_source(text, inputs=inputs, sizes=sizes).program)
    try:
        if first[1] == "program":
            program = parse_program(content, text)
            validate_program(program)
            return Subject(text, program)
        ugraph = parse_ugraph(content, text)
        validate_ugraph(ugraph)
        return _subject(text, ugraph)
    except ValidationError as error:
        # Ill-formed graphs are our bugs, except those that the user wrote.
        where = f"{text}: {error.where}" if error.where else text
        repair = error.repair or "correct this part; mirage_py.ugraph.text.text_form shows the form"
        raise FormatError(error.what, where=where, why=error.why, repair=repair) from error


def _subject(name: str, held: Program | UGraph | Plan) -> Subject:
    if isinstance(held, Program):
        return Subject(name, held)
    if isinstance(held, UGraph):
        return Subject(name, held.program, held)
    return Subject(name, held.ugraph.program, held.ugraph, held)


def _content(path: Path) -> str:
    try:
        return read_text(path)
    except UnicodeDecodeError:
        what = "the file is not UTF-8 text"
    except (OSError, ValueError) as error:
        what = f"cannot read it: {getattr(error, 'strerror', None) or error}"
    raise InputError(
        what,
        where=str(path),
        repair="name a spec (*.math), module.py:function, a µGraph (*.ug.json) or an artifact",
    )
