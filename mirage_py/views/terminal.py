"""Values for ``rich``: the headline and what is known as a table, a µGraph as coloured text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirage_py.result import Result
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.printing import format_ugraph
from mirage_py.views.rows import headline, plan_rows, result_rows

_NAME = "bold"
_LABEL = "cyan"
_WORDS = r"^ *(?:kernel|grid|loop|store|thread|input|output|dim|program|library|return)\b"


def renderable(value: Any) -> Any:
    """A result, a µGraph, a plan, or a kernel that has a plan."""
    if isinstance(value, Result):
        return Group(Text(headline(value), style=_NAME), _table(result_rows(value)))
    if isinstance(value, UGraph):
        return _ugraph(value)
    plan = value if isinstance(value, Plan) else value.plan
    name = Text(plan.ugraph.program.name, style=_NAME)
    return Group(name, _table(plan_rows(plan)), _ugraph(plan.ugraph))


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, text in rows:
        table.add_row(Text(label, style=_LABEL), Text(text))
    return table


def _ugraph(ugraph: UGraph) -> Text:
    text = Text(format_ugraph(ugraph).rstrip())
    for line_pattern, style in ((_WORDS, _NAME), (r"%\d+", _LABEL), (r"#.*$", "dim")):
        text.highlight_regex(rf"(?m){line_pattern}", style)
    return text
