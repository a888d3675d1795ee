"""Values as HTML for a notebook: the headline, what is known, and the µGraph as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from mirage_py.report.pictures.ugraph_svg import ugraph_svg
from mirage_py.result import Result
from mirage_py.search.tilings.kinds import describe
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.views.rows import headline, plan_rows, result_rows

# A picture of more nodes would not be looked at in a cell.
_MOST_NODES = 400
_TABLE = "border-collapse:collapse;margin:.3em 0"
_CELL = "text-align:left;vertical-align:top;padding:.1em .8em .1em 0"


def html(value: Any) -> str:
    """A result, a µGraph, a plan, or a kernel that has a plan."""
    if isinstance(value, Result):
        ugraph = value.ugraph
        return _box(headline(value), result_rows(value), ugraph)
    if isinstance(value, UGraph):
        return _box(f"{value.program.name}: {describe(value)}", (), value)
    plan = value if isinstance(value, Plan) else value.plan
    return _box(plan.ugraph.program.name, plan_rows(plan), plan.ugraph)


def _box(title: str, rows: Iterable[tuple[str, str]], ugraph: UGraph | None) -> str:
    cells = "".join(
        f'<tr><th style="{_CELL}">{escape(label)}</th><td style="{_CELL}">{escape(text)}</td></tr>'
        for label, text in rows
    )
    table = f'<table style="{_TABLE}">{cells}</table>' if cells else ""
    return f"<div><strong>{escape(title)}</strong>{table}{_picture(ugraph)}</div>"


def _picture(ugraph: UGraph | None) -> str:
    """The µGraph, which scrolls in its own box."""
    if ugraph is None:
        return ""
    nodes = sum(len(getattr(kernel, "nodes", ())) for kernel in ugraph.kernels)
    if nodes > _MOST_NODES:
        return f"<p>{nodes} nodes are no picture: <code>print(ugraph)</code></p>"
    return f'<div style="overflow-x:auto">{ugraph_svg(ugraph, standalone=True)}</div>'
