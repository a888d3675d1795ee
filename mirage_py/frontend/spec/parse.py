"""A math spec to a program: the stages in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from unicodedata import normalize

import numpy as np

from mirage_py.arguments import check_type, shown, unusable
from mirage_py.errors import InputError, SpecError
from mirage_py.frontend.spec.extents import infer
from mirage_py.frontend.spec.lower import Lowering
from mirage_py.frontend.spec.products import SpellOut
from mirage_py.frontend.spec.scope import Letters, Scope
from mirage_py.frontend.spec.source import Source
from mirage_py.frontend.spec.symbols import Symbols, collect
from mirage_py.frontend.spec.syntax import read
from mirage_py.frontend.spec.tree import Definition, Name, Span, walk
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.files import read_text

_TITLE_BYTES = 100


def parse(
    text: str,
    *,
    file: str = "<spec>",
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Program:
    """The program that a math spec describes; docs/reference/spec.md is the language.

    ``file`` appears in error messages, ``name`` is the program's (default: the file's stem),
    ``sizes`` sets sizes by name and overrides those in the text.

    Raises:
        SpecError: the text is no spec; with line, column, a caret and a repair.
        InputError: ``sizes`` does not fit the text.
    """
    check_type("text", text, (str,))
    if text.endswith(".math") and "\n" not in text:
        raise InputError(
            f"{shown(text)} names a file",
            why="parse takes the text of a spec",
            repair=f"mirage_py.parse(pathlib.Path({shown(text)}).read_text())",
        )
    check_type("sizes", sizes, (Mapping, NoneType))
    source = Source(file, re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff")))
    if name is None:
        name = _title(Path(file).stem) if file != "<spec>" else "program"
    try:
        # Folding constants may overflow; the value then stays a node, as in the user's text.
        with np.errstate(all="ignore"):
            return _program(source, name, sizes or {})
    except RecursionError:
        raise source.error(
            Span(1, 1, 1, 2),
            "the definitions build on one another too deeply",
            repair="split the spec into several programs",
        ) from None


def parse_file(path: str | Path, sizes: Mapping[str, int] | None = None) -> Program:
    """The program of a ``.math`` file, named after the file.

    Raises:
        SpecError, InputError: as ``parse``, or the file cannot be read.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except UnicodeDecodeError:
        raise InputError(
            "the spec is not UTF-8 text", where=str(file), repair="save it as UTF-8"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read the spec: {reason}", where=str(file), repair=_repair(Path(file))
        ) from None
    return parse(text, file=str(file), sizes=sizes)


def _repair(path: Path) -> str:
    if not unusable(path) and (path / "manifest.json").is_file():
        return "it is an artifact: `mirage-py explain` and `show` read it, mirage_py.load runs it"
    return "name a text file with a spec (*.math), or module.py:function"


def _title(stem: str) -> str:
    """A file's name as a program's: files and functions that are made are named after it."""
    # Kernels are called after it, and Python reads identifiers in this form.
    stem = normalize("NFKC", stem)
    shown = "".join(c if c.isprintable() else "_" for c in stem)
    return shown.encode()[:_TITLE_BYTES].decode(errors="ignore") or "program"


def _program(source: Source, name: str, sizes: Mapping[str, int]) -> Program:
    spec = read(source)
    symbols = collect(source, spec, sizes)
    if all(d.is_let for d in spec.definitions):
        last = spec.definitions[-1].target.span if spec.definitions else Span(1, 1, 1, 2)
        raise source.error(
            last,
            "the spec defines no output",
            why="every definition in it is a let" if spec.definitions else "it defines nothing",
            repair="end it with an equation, as in Y[b, n] = sum[d](X[b, d] * W[d, n])",
        )
    spelled = SpellOut(symbols)
    definitions = [spelled.definition(d) for d in spec.definitions]
    scope = Scope(symbols)
    free = [scope.check(d) for d in definitions]
    extents = infer(symbols, definitions, scope.letters)
    for definition, letters in zip(definitions, free, strict=True):
        _check_free(symbols, definition, letters)
    builder = ProgramBuilder(name)
    for letter in scope.letters:
        builder.dim(letter, extents.letters[letter])
    for tensor in symbols.inputs:
        builder.input(tensor.name, [a.extent for a in tensor.axes], tensor.dtype)
    lowering = Lowering(symbols, extents, builder)
    for definition in definitions:
        lowering.definition(definition)
    _check_used(symbols, scope, builder)
    return builder.build()


def _check_free(symbols: Symbols, definition: Definition, free: Letters) -> None:
    """The two sides of a definition depend on the same indices."""
    left = {
        e.name: e.span
        for i in definition.target.indices
        for e in walk(i)
        if isinstance(e, Name) and e.name not in symbols.sizes
    }
    target = definition.target.name
    for letter, span in free.items():
        if letter not in left:
            raise symbols.source.error(
                span,
                f"index '{letter}' is neither summed over nor on the left side",
                why=f"'{target}' is defined for each {', '.join(left) or 'nothing'}",
                repair=f"reduce over it with sum[{letter}](...), or add {letter} to the indices of "
                f"'{target}'",
            )
    for letter, span in left.items():
        if letter not in free:
            raise symbols.source.error(
                span,
                f"index '{letter}' is on the left side only",
                why=f"every '{target}' along it would be the same",
                repair=f"use {letter} on the right side, or remove it here",
            )


def _check_used(symbols: Symbols, scope: Scope, builder: ProgramBuilder) -> None:
    """Every intermediate tensor is read somewhere, every input on the way to an output."""
    for definition in symbols.definitions:
        target = definition.target
        if definition.is_let and target.name not in scope.used:
            raise _unread(symbols, "intermediate tensor", target.name, target.name_span)
    todo, seen = [o.node for o in builder.outputs], dict.fromkeys(o.node for o in builder.outputs)
    while todo:
        fresh = [a for a in builder.nodes[todo.pop()].args if a not in seen]
        seen.update(dict.fromkeys(fresh))
        todo.extend(fresh)
    read = [n.access.tensor for n in map(builder.nodes.__getitem__, seen) if n.op == "load"]
    for tensor in symbols.inputs:
        if tensor.name not in read:
            raise _unread(symbols, "input", tensor.name, tensor.span)


def _unread(symbols: Symbols, kind: str, name: str, span: Span) -> SpecError:
    return symbols.source.error(
        span, f"{kind} '{name}' is never read", repair="use it, or remove it"
    )
