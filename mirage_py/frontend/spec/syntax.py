"""The grammar of a line, the parser, and the limits on its input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, VisitError

from mirage_py.frontend.spec.reader import Reader, span_of
from mirage_py.frontend.spec.source import Source
from mirage_py.frontend.spec.syntax_errors import bad_character, bad_token
from mirage_py.frontend.spec.tree import Span, Spec

# Beyond these a text is an accident or an attack: nobody reads an expression 100 levels deep, and
# what comes after walks it recursively.
MAX_DEPTH = 100
MAX_CHARACTERS = 100_000

# No statement ends with one of these, nor begins with one of these or a closing bracket: such a
# line is part of a longer one.
_JOINS = (
    "OR", "AND", "PLUS", "MINUS", "TIMES", "AT", "SLASH", "FLOOR", "PERCENT", "POWER", "COMPARE",
    "COMMA", "EQUAL", "COLON",
)  # fmt: skip
_OPENERS, _CLOSERS = ("LPAR", "LSQB"), ("RPAR", "RSQB")


class Lines:
    """Drops the newlines that end no statement: in brackets, beside operators, on blank lines."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The tokens with one ``_NL`` between two statements and nowhere else."""
        depth = 0
        previous: Token | None = None
        newline: Token | None = None
        for token in stream:
            if token.type == "_NL":
                newline = token
                continue
            goes_on = token.type in (*_JOINS, *_CLOSERS) or depth > 0
            ended = previous is not None and previous.type not in _JOINS
            if newline is not None and ended and not goes_on:
                yield newline
            depth = max(0, depth + (token.type in _OPENERS) - (token.type in _CLOSERS))
            newline, previous = None, token
            yield token


@cache
def _parser() -> Lark:
    grammar = files("mirage_py.frontend.spec").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", propagate_positions=True, postlex=Lines())


def read(source: Source) -> Spec:
    """The syntax tree of a spec.

    Raises:
        SpecError: the text is not of the language; says where, what was expected and a repair.
    """
    if len(source.text) > MAX_CHARACTERS:
        raise source.error(
            Span(1, 1, 1, 2),
            f"the spec has {len(source.text)} characters",
            why=f"more than {MAX_CHARACTERS} are not read",
            repair="split it into several programs",
        )
    parser = _parser()
    try:
        tree = parser.parse(source.text)
    except UnexpectedCharacters as error:
        raise bad_character(source, error.line, error.column) from None
    except UnexpectedInput as error:
        raise bad_token(source, error, parser.lex(source.text)) from None
    _check_depth(source, tree)
    try:
        spec = Reader(source).transform(tree)
    except VisitError as error:
        # lark wraps what its callbacks raise.
        raise error.orig_exc from None
    assert isinstance(spec, Spec)
    return spec


def _check_depth(source: Source, tree: Tree[Token]) -> None:
    todo: list[tuple[Tree[Token], int]] = [(tree, 0)]
    while todo:
        node, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise source.error(
                span_of(node.meta),
                f"the expression is more than {MAX_DEPTH} operators deep",
                repair="name parts of it with let",
            )
        todo.extend((child, depth + 1) for child in node.children if isinstance(child, Tree))
