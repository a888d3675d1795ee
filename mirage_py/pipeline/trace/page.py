"""Pages of a trace: a stage with what it changed first, and the index; they load nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from mirage_py.pipeline.trace.stage import Item, Stage

# Of a stage with hundreds of plans the text file has them all.
_MOST_ITEMS = 60

_STYLE = """
:root{color-scheme:light dark;--ground:#fff;--ink:#1d2329;--soft:#5b6470;--line:#d5dae1;
--code:#f5f7f9;--new:#116329;--newground:#dafbe1;--old:#a40e26;--oldground:#ffebe9;--link:#0b57a8}
@media(prefers-color-scheme:dark){:root{--ground:#14181d;--ink:#e3e7ec;--soft:#9aa5b1;--line:#333b45;
--code:#1b2128;--new:#7ee787;--newground:#12301d;--old:#ffa198;--oldground:#3c1618;--link:#79b8ff}}
body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;margin:.3rem 0}h2{font-size:1rem;margin:1.4rem 0 .3rem;overflow-wrap:anywhere}
a{color:var(--link)}nav{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;justify-content:space-between}
.soft{color:var(--soft)}.verdict{font-weight:normal;color:var(--soft)}
pre{margin:.3rem 0;padding:.5rem .7rem;overflow-x:auto;background:var(--code);
border:1px solid var(--line);border-radius:5px;font:13px/1.45 ui-monospace,Menlo,Consolas,monospace}
ins,del{display:block;text-decoration:none}ins{color:var(--new);background:var(--newground)}
del{color:var(--old);background:var(--oldground)}
summary{cursor:pointer;color:var(--soft)}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);
vertical-align:top}td.number{text-align:right;white-space:nowrap}
kbd{border:1px solid var(--line);border-radius:3px;padding:0 .3rem;font-size:.85em}
"""
_SCRIPT = """
addEventListener("keydown",function(e){
if(e.ctrlKey||e.metaKey||e.altKey)return;
var rel={j:"next",k:"prev",i:"up"}[e.key];
var link=rel&&document.querySelector("a[rel="+rel+"]");
if(link)location.href=link.href;
});
"""
_KEYS = "<kbd>j</kbd> next, <kbd>k</kbd> previous, <kbd>i</kbd> index"


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the trace."""

    file: str
    name: str
    title: str


def stage_page(stage: Stage, text_file: str, before: Link | None, after: Link | None) -> str:
    """The page of a stage between two others."""
    items = stage.changed_first
    shown = [_item(item) for item in items[:_MOST_ITEMS]]
    left = len(items) - len(shown)
    everything = f'<a href="{text_file}">{text_file}</a>'
    body = [
        _navigation(before, after),
        f"<h1>{escape(stage.title)}</h1>",
        f'<p class="soft">{escape(stage.summary)}; as text: {everything}</p>',
        *(f"<p>{escape(note)}</p>" for note in stage.notes),
        *shown,
    ]
    if left > 0:
        body.append(f'<p class="soft">{left} more are in {everything}</p>')
    return _document(stage.title, body)


def index_page(rows: Sequence[tuple[Link, str, float]], ending: str) -> str:
    """Every stage so far with its seconds, and how it ended."""
    state = ending or f"not finished: what comes after “{rows[-1][0].title}” is not over"
    first = rows[0][0]
    lines = [
        f'<tr><td class="number">{number}</td><td><a href="{link.file}">{escape(link.title)}</a>'
        f'</td><td>{escape(summary)}</td><td class="number">{seconds:.2f} s</td></tr>'
        for number, (link, summary, seconds) in enumerate(rows)
    ]
    head = "".join(f"<th>{word}</th>" for word in ("", "stage", "what became of it", "took"))
    body = [
        _navigation(None, first),
        "<h1>Stages</h1>",
        f"<p>{escape(state)}</p>",
        f"<table><thead><tr>{head}</tr></thead><tbody>",
        *lines,
        "</tbody></table>",
    ]
    return _document("Stages", body)


def _item(item: Item) -> str:
    parts = [f'<h2>{escape(item.title)} <span class="verdict">{escape(item.verdict)}</span></h2>']
    if item.dropped:
        parts.append(f"<p>{escape(item.dropped)}</p>")
    changes = item.changes
    if changes:
        parts.append(f"<pre>{_diff(changes)}</pre>")
    whole = f"<pre>{escape(item.text.rstrip())}</pre>"
    if item.before is None and not item.dropped:
        parts.append(whole)
    else:
        parts.append(f"<details><summary>all of it</summary>{whole}</details>")
    return "\n".join(parts)


def _diff(lines: Iterable[str]) -> str:
    """Each changed line as an element; where the next hunk begins there is a line number."""
    tags = {"+": "ins", "-": "del"}
    made = []
    for line in lines:
        tag = tags.get(line[0])
        text = escape(line)
        made.append(f"<{tag}>{text}</{tag}>" if tag else f'<span class="soft">{text}</span>\n')
    return "".join(made)


def _navigation(before: Link | None, after: Link | None) -> str:
    links = []
    for link, rel, arrow in ((before, "prev", "←"), (after, "next", "→")):
        if link is not None:
            name = f"{arrow} {escape(link.name)}"
            links.append(f'<a rel="{rel}" href="{link.file}">{name}</a>')
        else:
            links.append("<span></span>")
    middle = (
        f'<span><a rel="up" href="index.html">stages</a> <span class="soft">{_KEYS}</span></span>'
    )
    return f"<nav>{links[0]}{middle}{links[1]}</nav>"


def _document(title: str, body: Sequence[str]) -> str:
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            *body,
            f"<script>{_SCRIPT}</script></body></html>",
            "",
        ]
    )
