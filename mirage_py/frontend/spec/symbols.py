"""The symbol table of a spec: sizes, tensors, ranges of indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirage_py.errors import InputError
from mirage_py.frontend.spec.functions import reserved_as
from mirage_py.frontend.spec.sizes import integer, resolve
from mirage_py.frontend.spec.source import Source, did_you_mean
from mirage_py.frontend.spec.tree import (
    Declared,
    Definition,
    Name,
    Ref,
    Span,
    Spec,
)
from mirage_py.ugraph.ir.dtypes import ALL_DTYPES, DType, dtype


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a declared tensor; ``size_name`` is set where its extent is one name."""

    extent: int
    size_name: str | None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declared tensor."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    span: Span


@dataclass
class Symbols:
    """The names of one spec. ``declared`` holds inputs and those outputs that were declared."""

    source: Source
    sizes: dict[str, int] = field(default_factory=dict)
    declared: dict[str, Declaration] = field(default_factory=dict)
    ranges: dict[str, tuple[int, Span]] = field(default_factory=dict)
    definitions: tuple[Definition, ...] = ()
    _places: dict[str, tuple[str, Span]] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Declaration, ...]:
        """Declared tensors that nothing is assigned to."""
        assigned = {d.target.name for d in self.definitions}
        return tuple(d for name, d in self.declared.items() if name not in assigned)

    def is_tensor(self, name: str) -> bool:
        """Whether a name is a tensor, declared or defined anywhere in the spec."""
        return name in self.declared or any(d.target.name == name for d in self.definitions)

    def tensor_names(self) -> tuple[str, ...]:
        """All tensors."""
        return tuple(dict.fromkeys((*self.declared, *(d.target.name for d in self.definitions))))

    def claim(self, name: str, what: str, span: Span) -> None:
        """Take a name, or say who has it."""
        taken = reserved_as(name)
        if taken:
            raise self.source.error(
                span,
                f"'{name}' is {taken} and cannot name {what}",
                repair=f"choose another name, such as '{name}_1'",
            )
        if name in self._places:
            first, place = self._places[name]
            raise self.source.error(
                span,
                f"'{name}' is defined twice",
                why=f"it is {first} since {self.source.line_of(place)}",
                repair="choose another name, or remove one of the two",
            )
        self._places[name] = (what, span)


def element_type(source: Source, name: Name) -> DType:
    """The element type a name stands for, or an error with the known ones."""
    try:
        return dtype(name.name)
    except InputError:
        known = [d.name for d in ALL_DTYPES]
        raise source.error(
            name.span,
            f"unknown element type '{name.name}'",
            repair=did_you_mean(name.name, known, f"use one of {', '.join(known)}"),
        ) from None


def collect(source: Source, spec: Spec, bound: Mapping[str, int]) -> Symbols:
    """Sizes with their numbers, tensors with their shapes; ``bound`` overrides sizes by name."""
    symbols = Symbols(source, definitions=spec.definitions)
    for size in spec.sizes:
        symbols.claim(size.name, "a size", size.span)
    symbols.sizes = resolve(source, spec.sizes, bound)
    for group in spec.declarations:
        _declare(symbols, group)
    for definition in spec.definitions:
        _define(symbols, definition)
    for entry in spec.ranges:
        symbols.claim(entry.name, "an index", entry.span)
        if entry.op != "<":
            raise source.error(
                entry.span,
                f"the range of index '{entry.name}' is written with '{entry.op}'",
                repair=f"write index {entry.name} < 32",
            )
        extent = integer(source, symbols.sizes, entry.bound)
        if extent < 1:
            raise source.error(
                entry.bound.span, f"index '{entry.name}' has no values", repair="use 1 or more"
            )
        symbols.ranges[entry.name] = (extent, entry.span)
    return symbols


def _declare(symbols: Symbols, group: tuple[Declared, ...]) -> None:
    source = symbols.source
    following: Name | None = None
    types: list[Name | None] = []
    for entry in reversed(group):
        following = entry.dtype or following
        types.append(following)
    for entry, written in zip(group, reversed(types), strict=True):
        ref = entry.tensor
        if written is None:
            raise source.error(
                ref.span,
                f"tensor '{ref.name}' has no element type",
                why="a line with no '=' declares tensors, and these end with a type",
                repair="write ': f16' (or f32, bf16, ...) after it, or '= ...' to define it",
            )
        symbols.claim(ref.name, "a tensor", ref.name_span)
        if not ref.indices:
            raise _no_axes(source, ref)
        axes = []
        for expr in ref.indices:
            extent = integer(source, symbols.sizes, expr)
            if extent < 1:
                raise source.error(
                    expr.span,
                    f"an axis of '{ref.name}' has extent {extent}",
                    repair="use 1 or more",
                )
            axes.append(Axis(extent, expr.name if isinstance(expr, Name) else None))
        symbols.declared[ref.name] = Declaration(
            ref.name, tuple(axes), element_type(source, written), ref.name_span
        )


def _define(symbols: Symbols, definition: Definition) -> None:
    source, target = symbols.source, definition.target
    declared = symbols.declared.get(target.name)
    if not definition.is_let and not target.indices:
        raise _no_axes(source, target)
    if declared is None or definition.is_let:
        what = "an intermediate tensor" if definition.is_let else "an output"
        symbols.claim(target.name, what, target.name_span)
        return
    if sum(d.target.name == target.name for d in symbols.definitions) > 1:
        first = next(d for d in symbols.definitions if d.target.name == target.name)
        if definition is not first:
            raise source.error(
                target.name_span,
                f"'{target.name}' is defined twice",
                why=f"first on {source.line_of(first.target.name_span)}",
                repair="choose another name, or remove one of the two",
            )
    if len(declared.axes) != len(target.indices):
        raise wrong_rank(source, target, len(declared.axes), declared.span)
    if definition.dtype is not None:
        given = element_type(source, definition.dtype)
        if given != declared.dtype:
            raise source.error(
                definition.dtype.span,
                f"'{target.name}' has two element types",
                why=f"it is declared as {declared.dtype} on {source.line_of(declared.span)}",
                repair="remove one of the two",
            )


def _no_axes(source: Source, ref: Ref) -> Exception:
    return source.error(
        ref.span,
        f"'{ref.name}' has no axes",
        why="inputs and outputs lie in memory",
        repair=f"give it an axis of one element: {ref.name}[1] to declare it, {ref.name}[0] = ... "
        "to define it",
    )


def wrong_rank(source: Source, ref: Ref, axes: int, place: Span) -> Exception:
    """A tensor with too many or too few indices."""
    given = len(ref.indices)
    if axes == 0:
        repair = f"write {ref.name} without brackets"
    else:
        shown = ", ".join("ijklmn"[: min(axes, 6)])
        repair = f"write {ref.name}[{shown}{', ...' if axes > 6 else ''}] with {axes} of them"
    return source.error(
        ref.span,
        f"'{ref.name}' has {axes} {_plural('axis', axes)} but is given {given} "
        f"{_plural('index', given)}",
        why=f"see {source.line_of(place)}",
        repair=repair,
    )


def _plural(word: str, count: int) -> str:
    many = {"axis": "axes", "index": "indices"}
    return word if count == 1 else many[word]
