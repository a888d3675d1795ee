"""The SPEC argument of the command line: a program, and the torch functions it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirage_py.arguments import shown
from mirage_py.cli.input.example_tensors import example_arguments
from mirage_py.cli.input.options import WHOLE
from mirage_py.cli.input.user_module import find_function, functions_in, import_file
from mirage_py.errors import InputError
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.files import read_text

_FUNCTION = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_][\w.]*)")


@dataclass(frozen=True, slots=True)
class Source:
    """A program; ``baselines`` are torch functions of the program's inputs, by name, and ``text``
    is what it was read from.
    """

    program: Program
    baselines: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    text: str = ""


def is_function(text: str) -> bool:
    """Whether SPEC names a function of a module, or tries to."""
    return _FUNCTION.fullmatch(text) is not None or text.endswith(".py")


def read_source(text: str, *, inputs: Sequence[str] = (), sizes: Sequence[str] = ()) -> Source:
    """The program that SPEC names.

    ``inputs`` are ``NAME=dtype[d0,...]`` for the parameters of a function, ``sizes`` are
    ``NAME=NUMBER`` for the sizes of a math spec. Raises InputError (SpecError among them) for bad
    input and UnsupportedError for a function that cannot be a program.
    """
    if not is_function(text):
        if inputs:
            raise InputError(
                "--input is for functions",
                where=text,
                why="a math spec says itself what its inputs are",
                repair="give sizes with --size NAME=NUMBER",
            )
        from mirage_py.frontend.spec.parse import parse_file

        program = parse_file(text, dict(map(parse_size, sizes)))
        return Source(program, text=read_text(Path(text)))
    if sizes:
        raise InputError(
            "--size is for math specs",
            where=text,
            why="a function takes its sizes from its arguments",
            repair="give shapes with --input NAME=dtype[d0,d1,...]",
        )
    return _traced(text, inputs)


def parse_size(text: str) -> tuple[str, int]:
    """``B=16`` as name and number. Raises InputError."""
    name, equals, number = (part.strip() for part in text.partition("="))
    if not (equals and name.isidentifier() and WHOLE.fullmatch(number)):
        raise InputError(
            f"{shown(text)} is not a size",
            where="--size",
            why="a size is NAME=NUMBER, the number whole and at least 1",
            repair="for instance --size B=16",
        )
    return name, int(number)


def _traced(text: str, inputs: Sequence[str]) -> Source:
    found = _FUNCTION.fullmatch(text)
    if found is None:
        known = functions_in(Path(text))
        raise InputError(
            "which function of the module?",
            where=text,
            why=f"it defines {', '.join(known)}" if known else "",
            repair=f"{text}:{known[0] if known else 'FUNCTION'}",
        )
    path = Path(found["path"])
    module = import_file(path)
    function = find_function(module, found["name"], path)
    arguments = example_arguments(function, module, inputs, text)

    from mirage_py.cli.input.traced import text_of, trace_source

    name = found["name"].rpartition(".")[2]
    return Source(*trace_source(function, arguments, name), text_of(function))
