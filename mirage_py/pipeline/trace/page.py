"""Pages of a trace: a stage with what it changed first, and the index; they load nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mirage_py.pipeline.trace.stage import Stage
from mirage_py.report.page.page import render

# Of each sort; of a stage with hundreds of plans the text file has them all.
_MOST_ITEMS = 40
_INDEX = "index.html"
_Way = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the trace."""

    file: str
    name: str
    title: str


def stage_page(stage: Stage, text_file: str, before: Link | None, after: Link | None) -> str:
    """The page of a stage between two others."""
    shown = stage.changed_first(_MOST_ITEMS)
    return render(
        "stage.html.j2",
        title=stage.title,
        stage=stage,
        text_file=text_file,
        shown=shown,
        left=len(stage.items) - len(shown),
        ways=tuple(_ways(before, after)),
    )


def index_page(rows: Sequence[tuple[Link, str, float]], ending: str) -> str:
    """Every stage so far with its seconds, and how it ended."""
    state = ending or f"not finished: what comes after “{rows[-1][0].title}” is not over"
    ways = tuple(_ways(None, rows[0][0]))
    return render("stages.html.j2", title="Stages", rows=rows, state=state, ways=ways)


def _ways(before: Link | None, after: Link | None) -> Iterator[_Way]:
    """Where the page leads, by the relations that keys know."""
    yield "up", _INDEX, "all stages"
    if before is not None:
        yield "prev", before.file, f"← {before.name}"
    if after is not None:
        yield "next", after.file, f"{after.name} →"
