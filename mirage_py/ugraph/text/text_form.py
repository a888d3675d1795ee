"""The text form of programs and µGraphs: for reading, editing and tests.

    ugraph rms_norm_matmul              # a program file starts with `program NAME`
    fp32_precision tf32                 # only where matmuls of float32 need not be exact
    dim b = 16                          # named dimensions, in order
    input X[16, 4096] : f16             # device tensors; `strides (1, 16)` where not row-major
    output Y[16, 6144] : f16
    tensor P[2, 16] : f32               # a µGraph's intermediates
    program {                           # what the µGraph implements (in a program file: no braces)
      %0 = load X[b, d]
      %1 = sum[d] %0 : [b]              # operator, attribute, operands, dimensions of the result
      return Y[b, n] = %1
    }
    kernel k0 {
      grid n by 64, b by ?              # tiles; `?` in a family; `d_part by 1 in cluster`
      %0 = const 1e-06
      loop d by 128 {
        %1 = load X[b, d]  # b <- grid 1, d <- loop
        ...
        %4 = accum_rescaled[1] %3, %2 : [b]
      }
      store Y[b, n] = %6                # or store_add, which sums over grid axes that %6 has
      thread { %5 %6 }
    }
    library k1 = matmul(X, W) -> Y
    library k2 = aten(Y) -> Z {         # what PyTorch computes, as statements of a program
      %0 = load Y[b, n]
      store Z[b, n] = %0
    }

Dimensions of a result may be left out; they then follow from the operands. A store is numbered by
its line. The grammar is graph_text.lark; a text that does not parse raises FormatError with line
and column. What parses may still break rules of the IR: mirage_py.ugraph.checks.validate says so.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from mirage_py.errors import FormatError
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.printing import format_block, format_program, format_ugraph
from mirage_py.ugraph.text.reading import (
    read_access,
    read_expression,
    read_predicate,
    read_program,
    read_ugraph_tree,
)

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

__all__ = [
    "format_block",
    "format_program",
    "format_ugraph",
    "parse_access",
    "parse_index",
    "parse_predicate",
    "parse_program",
    "parse_ugraph",
]


def parse_program(text: str, source: str = "program text") -> Program:
    """The program that ``format_program`` wrote; ``source`` names the text in errors."""
    return read_program(_tree(text, "program", source), source)


def parse_ugraph(text: str, source: str = "µGraph text") -> UGraph:
    """The µGraph that ``format_ugraph`` wrote; ``source`` names the text in errors."""
    return read_ugraph_tree(_tree(text, "ugraph", source), source)


def parse_index(text: str, source: str = "index") -> IndexExpr:
    """One index expression, exactly as written (nothing is folded)."""
    return read_expression(_tree(text, "expr", source), source)


def parse_access(text: str, source: str = "access") -> Access:
    """A tensor with its indices, as in ``X[b, d + 1]``."""
    return read_access(_tree(text, "access", source), source)


def parse_predicate(text: str, source: str = "predicate") -> Predicate:
    """One condition on indices."""
    return read_predicate(_tree(text, "pred", source), source)


# A µGraph of a hundred nodes takes ten thousand; reading takes seconds where this is reached.
MAX_CHARACTERS = 1_000_000

_BLANK = re.compile(r"(\s|#[^\n]*)*")


@cache
def _parser() -> Lark:
    from lark import Lark

    grammar = (files("mirage_py.ugraph.text") / "graph_text.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        start=["program", "ugraph", "access", "expr", "pred"],
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=False,
    )


def _tree(text: str, start: str, source: str) -> Tree[Token] | Token:
    from lark.exceptions import UnexpectedInput

    if len(text) > MAX_CHARACTERS:
        raise FormatError(
            f"the text has {len(text)} characters",
            where=f"{source}:1:1",
            why=f"more than {MAX_CHARACTERS} are not read",
            repair="see the form in mirage_py.ugraph.text.text_form",
        )
    # Lines before the first statement would end it before it began; the last end may be missing.
    body = text.rstrip() + ("\n" if start in ("program", "ugraph") else "")
    blank = _BLANK.match(body)
    skipped = blank.end() if blank else 0
    try:
        return _parser().parse(body[skipped:], start=start)
    except UnexpectedInput as error:
        line = error.line + body[:skipped].count("\n")
        raise FormatError(
            _unexpected(error),
            where=f"{source}:{line}:{error.column}",
            why=f"in: {_line(text, line)}",
            repair="see the form in mirage_py.ugraph.text.text_form",
        ) from None


def _unexpected(error: Exception) -> str:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    if isinstance(error, UnexpectedToken):
        if error.token.type == "$END":
            return "the text ends too early"
        found = "end of line" if error.token.type == "_NL" else f"'{error.token}'"
        return f"unexpected {found}"
    if isinstance(error, UnexpectedCharacters):
        return f"unexpected character {error.char!r}"
    return "the text ends too early"


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip()[:80] if 0 < number <= len(lines) else ""
