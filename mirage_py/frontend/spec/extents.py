"""The extent of every index, from the axes it stands on.

An index that stands alone on an axis runs over that axis; ``index h < 32`` says it outright. One
that stands in expressions only, as in ``X[h // 4]``, has no extent until one of these gives it one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mirage_py.frontend.spec.functions import function_names
from mirage_py.frontend.spec.indices import Layout, as_index, layout
from mirage_py.frontend.spec.scope import Letters
from mirage_py.frontend.spec.source import did_you_mean
from mirage_py.frontend.spec.symbols import Symbols
from mirage_py.frontend.spec.tree import Definition, Expr, Name, Ref, Span, walk
from mirage_py.ugraph.ir import index as ix


@dataclass(frozen=True, slots=True)
class Origin:
    """Who gave an index its extent."""

    extent: int
    place: str
    span: Span


@dataclass
class Extents:
    """What is known of the indices and the tensors' axes."""

    symbols: Symbols
    letters: dict[str, int] = field(default_factory=dict)
    # The size names of the axes that a letter stands on.
    size_names: dict[str, list[str]] = field(default_factory=dict)
    # Layout of each definition's left side, once its letters are known.
    layouts: dict[str, Layout] = field(default_factory=dict)
    # Where each letter's extent is from.
    origins: dict[str, Origin] = field(default_factory=dict)

    def axes_of(self, tensor: str) -> tuple[int, ...] | None:
        """Extents of a tensor's axes; None while they are not known."""
        declaration = self.symbols.declared.get(tensor)
        if declaration is not None:
            return tuple(axis.extent for axis in declaration.axes)
        found = self.layouts.get(tensor)
        return None if found is None else found.extents


def infer(symbols: Symbols, definitions: Sequence[Definition], letters: Letters) -> Extents:
    """The extents of ``letters``.

    Raises:
        SpecError: an index has two extents or none; an access leaves its tensor; a left side
            does not give every element one place.
    """
    extents = Extents(symbols)
    for letter, (extent, span) in symbols.ranges.items():
        extents.letters[letter] = extent
        extents.origins[letter] = Origin(extent, "its declaration", span)
    before = -1
    # A tensor's axes may be known only after its letters are, and other letters after it.
    while before != len(extents.letters) + len(extents.layouts):
        before = len(extents.letters) + len(extents.layouts)
        for definition in definitions:
            _visit(extents, definition)
    for letter, span in letters.items():
        if letter not in extents.letters:
            raise _no_extent(extents, letter, span)
    for definition in definitions:
        for ref in _refs(definition):
            _check_range(extents, ref)
    return extents


def _visit(extents: Extents, definition: Definition) -> None:
    for ref in _refs(definition):
        axes = extents.axes_of(ref.name)
        for number, index in enumerate(ref.indices):
            if axes is not None and isinstance(index, Name):
                _bind(extents, ref, number, axes[number], index)
    target = definition.target
    names = [e.name for i in target.indices for e in walk(i) if isinstance(e, Name)]
    known = (*extents.letters, *extents.symbols.sizes)
    if target.name not in extents.layouts and all(name in known for name in names):
        source = extents.symbols.source
        found = layout(source, target, extents.symbols.sizes, extents.letters)
        declared = extents.axes_of(target.name) or found.extents
        for expr, given, expected in zip(target.indices, found.extents, declared, strict=True):
            if given != expected:
                raise source.error(
                    expr.span,
                    f"this index has {given} values, the axis of '{target.name}' has {expected}",
                    repair="change the declaration, or the ranges of the indices",
                )
        extents.layouts[target.name] = found


def _bind(extents: Extents, ref: Ref, number: int, extent: int, index: Name) -> None:
    """Index ``index`` stands alone on axis ``number`` of ``ref``."""
    source = extents.symbols.source
    declaration = extents.symbols.declared.get(ref.name)
    place = f"axis {number + 1} of '{ref.name}'"
    if declaration is not None:
        place += f" (declared on {source.line_of(declaration.span)})"
    known = extents.origins.get(index.name)
    if known is None:
        extents.letters[index.name] = extent
        known = extents.origins[index.name] = Origin(extent, place, index.span)
    if index.name in extents.symbols.ranges:
        if known.extent > extent:
            raise source.error(
                index.span,
                f"index '{index.name}' runs to {known.extent}, but {place} has {extent} elements",
                why=f"its range is declared on {source.line_of(known.span)}",
                repair=f"declare index {index.name} < {extent}, or use another index here",
            )
    elif known.extent != extent:
        raise source.error(
            index.span,
            f"index '{index.name}' has two extents, {known.extent} and {extent}",
            why=f"{source.line_of(known.span)} makes it {known.extent}, from {known.place}; here "
            f"it is {extent}, from {place}",
            repair="use another letter for one of the two, or mend the declaration; index "
            f"{index.name} < {min(extent, known.extent)} reads a part of the longer axis",
        )
    if declaration is not None:
        name = declaration.axes[number].size_name
        names = extents.size_names.setdefault(index.name, [])
        if name is not None and name not in names:
            names.append(name)


def _refs(definition: Definition) -> Iterator[Ref]:
    for top in (definition.target, definition.value):
        for expr in walk(top):
            if isinstance(expr, Ref):
                yield expr


def _check_range(extents: Extents, ref: Ref) -> None:
    source, sizes = extents.symbols.source, extents.symbols.sizes
    axes = extents.axes_of(ref.name)
    assert axes is not None
    for number, (expr, extent) in enumerate(zip(ref.indices, axes, strict=True)):
        index = as_index(expr, sizes, extents.letters)
        if index is None:
            raise source.error(
                expr.span,
                "this is no position",
                why="an index may be multiplied, divided (//) and taken modulo (%) by positive "
                "whole numbers only",
                repair="rewrite it as a sum of letters times numbers",
            )
        low, high = ix.simplify(index, extents.letters).bounds(extents.letters)
        if low < 0 or high >= extent:
            raise source.error(
                expr.span,
                f"index '{_shown(expr, index)}' runs from {low} to {high}, but axis {number + 1} "
                f"of '{ref.name}' has elements 0 to {extent - 1}",
                repair="shift the index, or declare a smaller range for a letter in it, as in "
                f"index {_first_letter(expr)} < {max(1, extent - max(0, high - extent + 1))}",
            )


def _shown(expr: Expr, index: ix.IndexExpr) -> str:
    return expr.name if isinstance(expr, Name) else str(index)


def _first_letter(expr: Expr) -> str:
    return next((e.name for e in walk(expr) if isinstance(e, Name)), "k")


def _no_extent(extents: Extents, letter: str, span: Span) -> Exception:
    """A name that is no size, tensor or function, and that no axis gives a range."""
    symbols = extents.symbols
    known = (*symbols.tensor_names(), *symbols.sizes, *extents.letters, *function_names())
    return symbols.source.error(
        span,
        f"unknown name '{letter}'",
        why="it is no tensor and no size; as an index it stands alone on no axis, which would give "
        "it a range",
        repair=did_you_mean(
            letter,
            known,
            f"declare index {letter} < 32 for an index, or {letter}[N] : f16 for a tensor",
        ),
    )
