"""Source text as HTML: a line each, coloured, with a number that may be a link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from markupsafe import Markup, escape
from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Literal, Name, Number, Operator, String, _TokenType

# The class of each kind of token; what has none is plain text.
_CLASSES = (
    (Comment, "c"),
    (String.Doc, "c"),
    (String, "s"),
    (Number, "m"),
    (Literal, "s"),
    (Keyword.Type, "b"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Builtin, "b"),
    (Name.Decorator, "n"),
    (Name.Function, "n"),
)


def highlighted(
    source: str,
    language: str,
    *,
    name: str = "line",
    links: Mapping[int, str] | None = None,
) -> Markup:
    """The lines of a source in ``python`` or ``cuda``; line 3 has the identity ``NAME-3``, and its
    number leads to ``links[3]``, if that is there.
    """
    rows = []
    for number, text in enumerate(_lines(source, language), 1):
        to = (links or {}).get(number)
        shown = (
            Markup('<a href="{}">{}</a>').format(to, number)
            if to
            else Markup("<i>{}</i>").format(number)
        )
        rows.append(
            Markup('<span class="l" id="{}-{}">{}{}</span>').format(name, number, shown, text)
        )
    return Markup("").join(rows)


def _lines(source: str, language: str) -> Iterator[Markup]:
    """Each line of the source with its tokens in their colours."""
    lexer: Lexer = PythonLexer(ensurenl=False) if language == "python" else CppLexer(ensurenl=False)
    line = Markup("")
    for kind, text in lex(source.rstrip("\n"), lexer):
        style = _class_of(kind)
        first, *others = text.split("\n")
        line += _token(first, style)
        for other in others:
            yield line
            line = _token(other, style)
    yield line


def _token(text: str, style: str) -> Markup:
    if not style or not text.strip():
        return escape(text)
    return Markup('<span class="{}">{}</span>').format(style, text)


def _class_of(kind: _TokenType) -> str:
    return next((style for family, style in _CLASSES if kind in family), "")
