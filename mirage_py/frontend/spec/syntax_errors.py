"""Messages for text that does not parse: the place, what was expected, and the repair."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from lark import Token
from lark.exceptions import UnexpectedInput, UnexpectedToken

from mirage_py.errors import SpecError
from mirage_py.frontend.spec.reader import span_of
from mirage_py.frontend.spec.source import Source
from mirage_py.frontend.spec.tree import Span

# Terminals in the order in which they are named. Those of one word are one thing to the reader; a
# value may begin in five ways, and where an operator may stand a comparison may too.
_WORDS = {
    "RSQB": "']'",
    "RPAR": "')'",
    "COMMA": "','",
    "EQUAL": "'='",
    "COLON": "':'",
    "NUMBER": "a value",
    "NAME": "a name",
    "LET": "'let'",
    "COMPARE": "'<'",
    "TIMES": "an operator",
    "_NL": "the end of the statement",
    "$END": "the end of the statement",
}
_COVERED_BY = {"NAME": "NUMBER", "COMPARE": "TIMES"}
_CLOSER = {"LPAR": "RPAR", "LSQB": "RSQB"}
_SIGN = {"LPAR": "(", "LSQB": "[", "RPAR": ")", "RSQB": "]"}
_KEYWORDS = ("LET", "INDEX")
_VALUE_STARTS = ("NAME", "NUMBER", "LPAR")
_VALUE_ENDS = ("NAME", "NUMBER", "RPAR", "RSQB", "TRANSPOSE")
_SPELLINGS = {"and": "&", "or": "|", "if": "where(condition, a, b)"}
_DOUBLED = {
    "*": "write ^ for a power",
    "&": "write a single &",
    "|": "write a single |",
}
_CHARACTERS = {
    ";": "write each statement on a line of its own",
    "!": "write 'not', or '!=' to compare",
    "{": "use parentheses",
    "}": "use parentheses",
    '"': "names stand without quotes",
    "\\": "a statement goes on in the next line after an operator or inside brackets; remove '\\'",
    "²": "write ^2",
    "³": "write ^3",
    "√": "write sqrt(...)",
    "∑": "write sum[k](...)",
    "∏": "write a product as exp[...] of a sum of logarithms",
    "∈": "write index h < 32 for the range of an index",
    "∧": "write &",
    "∨": "write |",  # noqa: RUF001
    "¬": "write not",
    "⌊": "write a // b for a rounded-down division of indices",
}


def bad_character(source: Source, line: int, column: int) -> SpecError:
    """A character that begins no token."""
    character = source.lines[line - 1][column - 1]
    shown = repr(character) if not character.isprintable() else f"'{character}'"
    repair = _CHARACTERS.get(character, "remove it")
    if character.isalpha() and character not in _CHARACTERS:
        # "GREEK SMALL LETTER ALPHA" is best written alpha.
        spelled = unicodedata.name(character, "").rsplit(" ", maxsplit=1)[-1].lower()
        repair = f"write '{spelled}'" if spelled.isidentifier() else "use the letters a to z"
    return source.error(
        Span(line, column, line, column + 1),
        f"unexpected character {shown}",
        why="names are made of the letters a to z, digits and '_'",
        repair=repair,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the parser stopped: the token, the one before, the innermost open bracket."""

    token: Token
    previous: Token | None
    opened: Token | None
    accepts: tuple[str, ...]

    @property
    def text(self) -> str:
        return str(self.token)

    @property
    def before(self) -> str:
        return str(self.previous) if self.previous is not None else ""

    @property
    def closer(self) -> str:
        """Terminal that would close the innermost bracket."""
        return _CLOSER[self.opened.type] if self.opened is not None else ""

    @property
    def opening(self) -> str:
        assert self.opened is not None
        return f"the '{self.opened}' of column {self.opened.column}"

    @property
    def expected(self) -> list[str]:
        """What may stand here, in words."""
        named = [name for name in self.accepts if _COVERED_BY.get(name) not in self.accepts]
        return list(dict.fromkeys(_WORDS[name] for name in named))


def bad_token(source: Source, error: UnexpectedInput, tokens: Iterator[Token]) -> SpecError:
    """A token that does not fit; ``tokens`` is the text from its beginning."""
    assert isinstance(error, UnexpectedToken)
    place = _place(error, tokens)
    at_end = place.token.type == "$END"
    expected = _alternatives(place.expected)
    why = f"expected {expected} here" if expected else ""
    if place.opened is not None and (at_end or place.opened.line != place.token.line):
        return source.error(
            span_of(place.opened),
            f"'{place.opened}' is never closed",
            why="a statement goes on over newlines until its brackets are closed",
            repair=f"add the missing '{_SIGN[place.closer]}'",
        )
    if at_end:
        after = span_of(place.previous) if place.previous is not None else Span(1, 1, 1, 1)
        end = Span(after.end_line, after.end_column, after.end_line, after.end_column + 1)
        repair = f"go on with {expected}" if expected else "finish the statement"
        return source.error(end, "the text ends inside a statement", why=why, repair=repair)
    shown = "the end of the line" if place.token.type == "_NL" else f"'{place.text}'"
    repair = _bracket_repair(place) or _spelling_repair(place) or _neighbour_repair(place)
    if not repair:
        repair = f"write {expected} before {shown}" if expected else "remove it"
    return source.error(span_of(place.token), f"unexpected {shown}", why=why, repair=repair)


def _place(error: UnexpectedToken, tokens: Iterator[Token]) -> _Place:
    token, previous, opened = error.token, None, []
    for before in tokens:
        if token.type != "$END" and (before.start_pos or 0) >= (token.start_pos or 0):
            break
        if before.type in _CLOSER:
            opened.append(before)
        elif before.type in _CLOSER.values() and opened:
            opened.pop()
        previous = before if before.type != "_NL" else previous
    accepts = tuple(name for name in _WORDS if name in error.accepts)
    return _Place(token, previous, opened[-1] if opened else None, accepts)


def _bracket_repair(place: _Place) -> str:
    if place.token.type not in _CLOSER.values():
        return ""
    if place.opened is None:
        return f"remove it, or open '{'(' if place.text == ')' else '['}' before"
    if place.closer != place.token.type:
        return f"write '{_SIGN[place.closer]}' here, to close {place.opening}"
    return ""


def _spelling_repair(place: _Place) -> str:
    """Signs and words of other languages."""
    for word in (place.text, place.before):
        if word in _SPELLINGS:
            return f"write {_SPELLINGS[word]} for '{word}'"
    if place.token.type in _KEYWORDS and "NAME" in place.accepts:
        return f"'{place.text}' is a word of the language: choose another name"
    if place.text == place.before and place.text in _DOUBLED:
        return _DOUBLED[place.text]
    if place.text == "=" and "COMPARE" in place.accepts:
        if place.opened is not None:
            return "compare with =="
        return "a statement has one '='; if the line above ends in '=' or an operator, finish it"
    return "write where(condition, a, b)" if place.text == "?" else ""


def _neighbour_repair(place: _Place) -> str:
    """Something left out between the token and the one before it."""
    between = f"between '{place.before}' and '{place.text}'"
    two_values = (
        place.previous is not None
        and place.previous.type in _VALUE_ENDS
        and place.token.type in _VALUE_STARTS
    )
    if two_values and "EQUAL" in place.accepts:
        return f"write '=' {between}"
    if two_values and "TIMES" in place.accepts:
        comma = "',' or " if "COMMA" in place.accepts else ""
        return f"write {comma}an operator such as * {between}"
    if place.closer in place.accepts:
        return f"close {place.opening} with '{_SIGN[place.closer]}' first"
    return ""


def _alternatives(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
