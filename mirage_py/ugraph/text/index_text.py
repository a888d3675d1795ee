"""Index expressions, accesses and conditions from text, with nothing but the standard library.

The same forms as in `graph_text.lark`. The JSON form needs only these, and a saved kernel that is
loaded where it runs should not ask for a parser generator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from mirage_py.errors import FormatError
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access

# Expressions are walked by recursion, here and wherever they are used.
MAX_DEPTH = 64

_TOKEN = re.compile(r"[ \t]*(?:([^\W\d]\w*)|(\d{1,18}(?!\d))|(//|<=|>=|==|!=|[-+*%<>&|~()\[\],]))")
_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_FACTORS = {"*": "mul", "//": "floordiv", "%": "mod"}

T = TypeVar("T")


def read_index(text: str, source: str = "index") -> IndexExpr:
    """One index expression, exactly as written (nothing is folded). Raises FormatError."""
    return _Parser(text, source).whole(lambda p: p.expression(0))


def read_access(text: str, source: str = "access") -> Access:
    """A tensor with its indices, as in ``X[b, d + 1]``. Raises FormatError."""
    return _Parser(text, source).whole(_Parser.access)


def read_predicate(text: str, source: str = "predicate") -> Predicate:
    """One condition on indices, fully parenthesised. Raises FormatError."""
    return _Parser(text, source).whole(lambda p: p.predicate(0))


class _Parser:
    """Recursive descent over a list of tokens."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.tokens: list[str] = []
        self.columns: list[int] = []
        self.next = 0
        end = len(text.rstrip())
        at = len(text) - len(text.lstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(f"unexpected character {text[at]!r}", at)
            self.tokens.append(match.group(match.lastindex or 0))
            self.columns.append(match.start(match.lastindex or 0))
            at = match.end()

    def whole(self, rule: Callable[[_Parser], T]) -> T:
        """What ``rule`` reads, which must be all of the text."""
        result = rule(self)
        if self.next < len(self.tokens):
            raise self._unexpected()
        return result

    def access(self) -> Access:
        tensor = self._name()
        self._take("[")
        return Access(tensor, self._indices(0))

    def _indices(self, depth: int) -> tuple[IndexExpr, ...]:
        index: list[IndexExpr] = []
        while not self._skip("]"):
            if index:
                self._take(",")
            index.append(self.expression(depth))
        return tuple(index)

    def expression(self, depth: int) -> IndexExpr:
        left = self._term(depth)
        while self._peek() in ("+", "-"):
            sign = self._advance()
            right = self._term(depth)
            if sign == "-":
                # There is no subtraction: x - 3 is x + -3, and x - y is x + y * -1.
                negated = IndexExpr("mul", value=-1, args=(right,))
                right = IndexExpr("const", value=-right.value) if right.op == "const" else negated
            left = self._nested(IndexExpr("add", args=(left, right)))
        return left

    def predicate(self, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise self._error(f"a condition deeper than {MAX_DEPTH}", self._column())
        self._take("(")
        if self._skip("~"):
            result = Predicate("not", args=(self.predicate(depth + 1),))
        elif self._is_condition():
            left = self.predicate(depth + 1)
            op = {"&": "and", "|": "or"}.get(self._peek())
            if op is None:
                raise self._unexpected()
            self._advance()
            result = Predicate(op, args=(left, self.predicate(depth + 1)))
        else:
            left_side = self.expression(0)
            sign = _COMPARISONS.get(self._peek())
            if sign is None:
                raise self._unexpected()
            self._advance()
            result = Predicate(sign, exprs=(left_side, self.expression(0)))
        self._take(")")
        return result

    # -- inside ----------------------------------------------------------------------------------

    def _term(self, depth: int) -> IndexExpr:
        left = self._factor(depth)
        while self._peek() in _FACTORS:
            at = self._column()
            op = _FACTORS[self._advance()]
            value = self._integer()
            if op != "mul" and value < 1:
                raise self._error(f"division by {value} in an index", at)
            left = self._nested(IndexExpr(op, value=value, args=(left,)))
        return left

    def _factor(self, depth: int) -> IndexExpr:
        if depth > MAX_DEPTH:
            raise self._error(f"an index expression deeper than {MAX_DEPTH}", self._column())
        if self._skip("("):
            inner = self.expression(depth + 1)
            self._take(")")
            return inner
        word = self._peek()
        if word == "-" or word[:1].isdecimal():
            return IndexExpr("const", value=self._integer())
        name = self._name()
        if not self._skip("["):
            return IndexExpr("dim", name=name)
        return IndexExpr("data", name=name, args=self._indices(depth + 1))

    def _nested(self, expr: IndexExpr) -> IndexExpr:
        """The expression, unless it is too deep for those that will walk it."""
        depth, part = 0, expr
        while part.args:
            depth, part = depth + 1, part.args[0]
        if depth > MAX_DEPTH:
            raise self._error(f"an index expression deeper than {MAX_DEPTH}", self._column())
        return expr

    def _is_condition(self) -> bool:
        """Whether the parenthesis that comes holds a condition and not a number."""
        depth = 0
        for word in self.tokens[self.next :]:
            depth += (word == "(") - (word == ")")
            if depth == 0:
                return False
            if word in _COMPARISONS or word == "~":
                return True
        return False

    def _integer(self) -> int:
        sign = -1 if self._skip("-") else 1
        word = self._peek()
        if not word[:1].isdecimal():
            raise self._unexpected()
        return sign * int(self._advance())

    def _name(self) -> str:
        word = self._peek()
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise self._unexpected()
        return self._advance()

    def _peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else ""

    def _advance(self) -> str:
        word = self._peek()
        self.next += 1
        return word

    def _skip(self, word: str) -> bool:
        found = self._peek() == word
        self.next += found
        return found

    def _take(self, word: str) -> None:
        if not self._skip(word):
            raise self._unexpected()

    def _column(self) -> int:
        return self.columns[self.next] if self.next < len(self.columns) else len(self.text)

    def _unexpected(self) -> FormatError:
        word = self._peek()
        what = f"unexpected '{word}'" if word else "the text ends too early"
        return self._error(what, self._column())

    def _error(self, what: str, at: int) -> FormatError:
        return FormatError(
            what,
            where=f"{self.source}:1:{at + 1}",
            why=f"in: {self.text.strip()[:80]}",
            repair="see the form in mirage_py.ugraph.text.text_form",
        )
