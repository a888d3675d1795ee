"""Name checks: tensors are defined and have the right number of indices, calls are well formed.

Afterwards a bare name on a right side is a size, a constant or an index, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mirage_py.frontend.spec.functions import (
    CONSTANTS,
    FUNCTIONS,
    REDUCTIONS,
    function_names,
    usage,
)
from mirage_py.frontend.spec.source import did_you_mean
from mirage_py.frontend.spec.symbols import Symbols, wrong_rank
from mirage_py.frontend.spec.tree import (
    Binary,
    Call,
    Definition,
    Expr,
    Name,
    Number,
    Ref,
    Span,
    Unary,
    children,
    walk,
)

# A letter and the first place where it stands free.
Letters = dict[str, Span]


@dataclass
class Scope:
    """Goes through the definitions in order; what is defined so far may be referred to."""

    symbols: Symbols
    # Tensors that may be read: their number of axes and where they are from.
    readable: dict[str, tuple[int, Span]] = field(default_factory=dict)
    # Every letter of the spec and its first place, in the order of the text.
    letters: Letters = field(default_factory=dict)
    used: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for declaration in self.symbols.inputs:
            self.readable[declaration.name] = (len(declaration.axes), declaration.span)

    def check(self, definition: Definition) -> Letters:
        """Check one definition; the free letters of its right side."""
        target = definition.target
        seen: Letters = {}
        for letter in self._letters_of(target):
            if letter.name in seen:
                raise self.symbols.source.error(
                    letter.span,
                    f"index '{letter.name}' stands twice on the left side",
                    repair="give each axis an index of its own; to take a diagonal, repeat the "
                    "index on the right side",
                )
            self._letter(letter, seen)
        free: Letters = {}
        self._value(definition.value, free)
        self.readable[target.name] = (len(target.indices), target.name_span)
        return free

    # -- values ----------------------------------------------------------------------------------

    def _value(self, expr: Expr, free: Letters) -> None:
        match expr:
            case Name(name=name):
                if name not in self.symbols.sizes and name not in CONSTANTS:
                    self._letter(expr, free)
            case Ref():
                self._ref(expr, free)
            case Call():
                self._call(expr, free)
            case _:
                for part in children(expr):
                    self._value(part, free)

    def _ref(self, ref: Ref, free: Letters) -> None:
        source = self.symbols.source
        if ref.name not in self.readable:
            raise self._unknown_tensor(ref)
        self.used[ref.name] = True
        axes, place = self.readable[ref.name]
        if len(ref.indices) != axes:
            raise wrong_rank(source, ref, axes, place)
        for letter in self._letters_of(ref):
            self._letter(letter, free)

    def _unknown_tensor(self, ref: Ref) -> Exception:
        source = self.symbols.source
        defined = [d for d in self.symbols.definitions if d.target.name == ref.name]
        if defined:
            return source.error(
                ref.name_span,
                f"'{ref.name}' is read before it is defined",
                why=f"its definition is on {source.line_of(defined[0].target.name_span)}; a tensor "
                "that is assigned to is no input",
                repair="move the definition up, or give the result another name",
            )
        if ref.name in function_names():
            return source.error(
                ref.span,
                f"'{ref.name}' needs its argument",
                repair=f"write {usage(ref.name)}",
            )
        return source.error(
            ref.name_span,
            f"unknown tensor '{ref.name}'",
            repair=did_you_mean(
                ref.name,
                (*self.readable, *function_names()),
                f"declare it, as in {ref.name}[{', '.join('MNKLIJ'[: len(ref.indices)])}] : f16",
            ),
        )

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, call: Call, free: Letters) -> None:
        source, name = self.symbols.source, call.name
        if name not in function_names():
            what = "a tensor, not a function" if self.symbols.is_tensor(name) else ""
            raise source.error(
                call.name_span,
                f"'{name}' is {what}" if what else f"unknown function '{name}'",
                repair=f"write '*' before the parenthesis to multiply by {name}"
                if what
                else did_you_mean(
                    name, function_names(), f"use one of {', '.join(function_names())}"
                ),
            )
        if call.over is None:
            self._function(call, free)
        else:
            self._reduction(call, call.over, free)

    def _function(self, call: Call, free: Letters) -> None:
        source, name = self.symbols.source, call.name
        if name not in FUNCTIONS and name != "cast":
            raise source.error(
                call.name_span,
                f"'{name}' does not say over which index it runs",
                repair=f"write {usage(name)}",
            )
        for keyword, _ in call.keywords:
            raise source.error(
                keyword.span,
                f"'{name}' has no argument named '{keyword.name}'",
                repair=f"write {usage(name)}; to compare, write {keyword.name} == ...",
            )
        fewest, most = 2, 2
        if name in FUNCTIONS:
            fewest, most = FUNCTIONS[name].fewest, FUNCTIONS[name].most or len(call.args)
        if not fewest <= len(call.args) <= most:
            raise source.error(
                call.span,
                f"'{name}' takes {_amount(fewest, name)}, not {len(call.args)}",
                repair=f"write {usage(name)}",
            )
        # The second argument of a cast is a type.
        for arg in call.args[:1] if name == "cast" else call.args:
            self._value(arg, free)

    def _reduction(self, call: Call, over: tuple[Expr, ...], free: Letters) -> None:
        source, name = self.symbols.source, call.name
        row = REDUCTIONS.get(name)
        if row is None:
            raise source.error(
                call.name_span,
                f"'{name}' works on each element and takes no index",
                repair=f"write {usage(name)}",
            )
        allowed = ("eps",) if row.eps is not None else ()
        for keyword, _ in call.keywords:
            if keyword.name not in allowed:
                raise source.error(
                    keyword.span,
                    f"'{name}' has no argument named '{keyword.name}'",
                    repair=f"write {row.usage}",
                )
        given = len(call.args) + len(call.keywords)
        if not call.args or given > 1 + len(allowed):
            raise source.error(
                call.span,
                f"'{name}' is given {given} arguments",
                repair=f"write {row.usage}",
            )
        if not over:
            raise source.error(
                call.name_span,
                f"'{name}' does not say over which index it runs",
                repair=f"write {row.usage}",
            )
        body: Letters = {}
        self._value(call.args[0], body)
        for extra in (*call.args[1:], *(value for _, value in call.keywords)):
            self._value(extra, free)
        names: list[str] = []
        for expr in over:
            names.append(self._reduced_letter(call, expr, names, body))
        for letter, span in body.items():
            if row.keeps or letter not in names:
                free.setdefault(letter, span)

    def _reduced_letter(self, call: Call, expr: Expr, before: list[str], body: Letters) -> str:
        source = self.symbols.source
        if not isinstance(expr, Name):
            raise source.error(
                expr.span,
                f"'{call.name}' runs over plain indices, and this is an expression",
                repair=f"write {usage(call.name)} with a letter k, and use the letter in the body",
            )
        if expr.name in self.symbols.sizes:
            raise source.error(
                expr.span,
                f"'{expr.name}' is a size, and '{call.name}' runs over an index",
                repair=f"use the index, such as '{self._letter_for(expr.name)}'",
            )
        if expr.name in before:
            raise source.error(
                expr.span, f"index '{expr.name}' stands twice", repair="name each index once"
            )
        if expr.name not in body:
            inside = ", ".join(f"'{letter}'" for letter in body)
            raise source.error(
                expr.span,
                f"'{call.name}' runs over '{expr.name}', but its argument does not depend on it",
                why=f"the argument depends on {inside}" if body else "the argument is a scalar",
                repair=did_you_mean(
                    expr.name,
                    body,
                    f"remove '{expr.name}' here, or use it inside; tensors without indices are "
                    "read at those of the left side",
                ),
            )
        return expr.name

    # -- indices ---------------------------------------------------------------------------------

    def _letters_of(self, ref: Ref) -> Iterator[Name]:
        """The letters in the indices of ``ref``, after checking that nothing else stands there."""
        sizes = self.symbols.sizes
        for index in ref.indices:
            if isinstance(index, Name) and index.name in sizes:
                raise self.symbols.source.error(
                    index.span,
                    f"'{index.name}' is a size ({sizes[index.name]}), not an index",
                    why="an axis is read at an index, whose values run from 0 to below the size",
                    repair=f"use an index, such as '{self._letter_for(index.name)}'",
                )
            for part in walk(index):
                if not _may_stand_in_an_index(part):
                    raise self.symbols.source.error(
                        part.span,
                        "this cannot stand in an index",
                        why="an index is made of letters and whole numbers with + - * // %",
                        repair="compute the position from indices alone",
                    )
                if isinstance(part, Name) and part.name not in sizes:
                    yield part

    def _letter(self, name: Name, free: Letters) -> None:
        if self.symbols.is_tensor(name.name):
            raise self.symbols.source.error(
                name.span,
                f"'{name.name}' is a tensor and cannot be an index",
                repair="name the index or the tensor otherwise",
            )
        if name.name in CONSTANTS or name.name in function_names():
            raise self.symbols.source.error(
                name.span,
                f"'{name.name}' is {'a constant' if name.name in CONSTANTS else 'a function'} "
                "and cannot be an index",
                repair=f"write {usage(name.name)}"
                if name.name in function_names()
                else "use another letter",
            )
        self.letters.setdefault(name.name, name.span)
        free.setdefault(name.name, name.span)

    def _letter_for(self, size: str) -> str:
        letter = size.lower()
        return letter if letter not in self.symbols.sizes else f"{letter[0]}_1"


def _may_stand_in_an_index(expr: Expr) -> bool:
    match expr:
        case Name() | Unary(op="-"):
            return True
        case Number(is_integer=is_integer):
            return is_integer
        case Binary(op=op):
            return op in ("+", "-", "*", "/", "//", "%")
    return False


def _amount(count: int, name: str) -> str:
    more = " or more" if name in FUNCTIONS and FUNCTIONS[name].most is None else ""
    return f"{count}{more} argument{'s' if count != 1 or more else ''}"
