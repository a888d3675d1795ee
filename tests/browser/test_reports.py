"""Reports in a real browser: of examples, losses among them, of a model, of what was refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from nightly import NIGHTLY

from benchmarks.gallery.gallery import ENTRIES
from mirage_py.errors import UnsupportedError
from mirage_py.report.packed import unpacked
from mirage_py.report.refused_report import refusal_of, refused_html
from mirage_py.report.result_report import report_html
from mirage_py.report.rows_report import model_html
from mirage_py.report.write import html_of
from mirage_py.runtime.store.artifact import Artifact

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

_MOST_BYTES = 1_000_000
_WIDTHS = (1400, 360)
_BY_NAME = {entry.name: entry for entry in ENTRIES}


def _of(name: str) -> Callable[[], str]:
    entry = _BY_NAME[name]
    return lambda: html_of(entry.source, only=entry.only)


def _held(name: str) -> Artifact:
    source = _BY_NAME[name].source
    return unpacked(json.loads(source.read_text("utf-8")), str(source))


def _kept() -> str:
    """A program that no kernel of ours serves, with a candidate that fell."""
    held = _held("softmax")
    best = {**held.report["baseline"], "speedup": 1.0, "kernels": 0, "ugraph": None}
    fell = {**held.report["candidates"][0], "passed": False, "reason": "it does not compile"}
    served = {"by": "eager", "why": "the original program is faster than every candidate"}
    report = {**held.report, "best": best, "served": served, "candidates": [fell]}
    return report_html(Artifact(held.program, None, report))


def _without_report() -> str:
    """The artifact of a plan's text, of which nothing else is known."""
    held = _held("lora")
    return report_html(Artifact(held.program, held.plan, {}))


def _refused() -> str:
    error = UnsupportedError(
        "no handler for aten.sort", where="f.py:3", why="it sorts", repair="no"
    )
    return refused_html(refusal_of("f.py:f", error, command="mirage-py superoptimize f.py:f"))


def _compiled_model() -> str:
    region = "region x8 [mm add] -> f16[1, 4096]: modelled 1.0 us, outside 2.0 us"
    served = f"inference: {region}; served by 1 kernels of cuda: ours 9.7 us"
    lines = (served, "inference: 5 x aten.cat.default left to inductor: it saves nothing")
    return model_html(lines, "model", {"GPU": "none"})


PAGES: dict[str, Callable[[], str]] = {
    **{name: _of(name) for name in _BY_NAME},
    "kept": _kept,
    "refused": _refused,
    "without_report": _without_report,
    "compiled_model": _compiled_model,
}
# One of each template is looked at in light colours as well.
_IN_LIGHT = ("attention", "llama8b", "refused", "compiled_model")
TEN = [name for name in PAGES if name != "compiled_model"]
# By night: one or two Triton kernels, won or lost, as ``attention``, ``lora`` and ``softmax`` are.
ALIKE = ("gated_mlp", "layernorm_linear", "ntrans", "rmsnorm_matmul")


@pytest.fixture(scope="session")
def axe() -> str:
    pytest.importorskip("axe_core_python")
    return files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")


@contextmanager
def opened(context: BrowserContext, path: Path) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what it said or asked for besides itself."""
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    own = path.as_uri()

    def asked(url: str) -> None:
        if url.split("#", maxsplit=1)[0] != own and not url.startswith("data:"):
            said.append(f"request: {url}")

    page.on("request", lambda request: asked(request.url))
    page.goto(own)
    yield page, said
    page.close()


@pytest.mark.parametrize("name", [n for n in PAGES if NIGHTLY or n not in ALIKE])
def test_a_report_opens_and_all_of_it_works(
    dark: BrowserContext, without_script: BrowserContext, axe: str, tmp_path: Path, name: str
) -> None:
    path = tmp_path / f"{name}.html"
    path.write_text(PAGES[name](), "utf-8")
    assert path.stat().st_size < _MOST_BYTES
    with opened(dark, path) as (page, said):
        assert said == []
        assert _overflowing(page) == []
        assert page.evaluate(_DEAD_LINKS) == []
        assert _node_and_code(page) == []
        if name in TEN:
            assert _unanswered(page) == []
        # Everything that is folded is looked at, too.
        page.evaluate(_OPEN_AND_SHORTEN)
        assert _found_by_axe(page, axe) == []
        if name in _IN_LIGHT:
            page.evaluate("document.documentElement.dataset.theme = 'light'")
            assert _found_by_axe(page, axe, "color-contrast") == []
        assert said == []
    with opened(without_script, path) as (page, said):
        assert said == []
        text = page.locator("body").inner_text()
        assert page.locator("h1").inner_text() in text
        for heading in page.locator("h2").all_inner_texts():
            assert heading in text
        assert len(text) > 700


def _overflowing(page: Page) -> list[str]:
    """Widths at which the page is wider than its window."""
    found = []
    for width in _WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        needed = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{needed} at {width}"] if needed > width else []
    # On paper what is folded is open, and nothing scrolls.
    page.set_viewport_size({"width": 794, "height": 1123})
    page.emulate_media(media="print")
    needed = page.evaluate("document.documentElement.scrollWidth")
    found += [f"{needed} on paper"] if needed > 794 else []
    found += page.evaluate(_FOLDED)
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1400, "height": 900})
    return found


# Rows of a table are alike, and so are lines of code: axe-core looks at some of each.
_OPEN_AND_SHORTEN = """() => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  document.querySelectorAll('tbody').forEach(body => {
    Array.from(body.rows).slice(3, -1).forEach(row => row.remove());
  });
  document.querySelectorAll('.listing pre').forEach(pre => {
    const at = Array.from(pre.children).findIndex(l => l.id === pre.parentElement.dataset.start);
    Array.from(pre.children).forEach((line, n) => {
      if (n > 4 && (n < at || n > at + 22)) line.remove();
    });
  });
  document.querySelectorAll('ol').forEach(list => {
    Array.from(list.children).slice(4).forEach(item => item.remove());
  });
  document.querySelectorAll('main > details').forEach((row, n) => { if (n > 3) row.remove(); });
  const drawn = document.querySelectorAll('.plot g, .mp-edge');
  drawn.forEach((part, n) => { if (n > 9) part.remove(); });
}"""
_FOLDED = """() => Array.from(document.querySelectorAll('details'))
  .filter(d => d.lastElementChild.getBoundingClientRect().height < 8)
  .map(d => 'folded: ' + d.firstElementChild.textContent)"""
_DEAD_LINKS = """() => Array.from(document.querySelectorAll('a[href^="#"]'))
  .map(a => a.getAttribute('href').slice(1)).filter(id => !document.getElementById(id))"""
_BACK = """() => {
  const nodes = Array.from(document.querySelectorAll('a.mp-node[id]'));
  const lost = nodes.filter(node => {
    const line = document.getElementById(node.getAttribute('href').slice(1));
    return !line || !line.matches('.listing .l') || !line.querySelector('a[href^="#node-"]');
  }).map(node => node.id);
  const boxes = Array.from(document.querySelectorAll('.picture g.mp-node[id]')).map(g => g.id);
  return [nodes.length, lost, boxes];
}"""
_LIT = """id => {
  const line = document.getElementById(id), frame = line.closest('.listing');
  const a = line.getBoundingClientRect(), b = frame.getBoundingClientRect();
  return line.classList.contains('on') && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
}"""


def _node_and_code(page: Page) -> list[str]:
    """Boxes that lead to no line, and what a click on one does not light up and bring into view."""
    count, lost, without = page.evaluate(_BACK)
    if not count:
        return []
    found = [*lost, *without]
    last = page.locator("a.mp-node[id]").last
    line = (last.get_attribute("href") or "")[1:]
    last.dispatch_event("click")
    found += [] if page.evaluate(_LIT, line) else [f"{line} is not lit"]
    back = page.locator(f"#{line} > a")
    node = (back.get_attribute("href") or "")[1:]
    back.dispatch_event("click")
    lit = page.evaluate("id => document.getElementById(id).classList.contains('mp-on')", node)
    return found + ([] if lit else [f"{node} is not lit"])


def _unanswered(page: Page) -> list[str]:
    """Of the ten questions those without an answer, or not on the first screen."""
    boxes = page.locator(".facts > div")
    questions = boxes.locator("dt").all_inner_texts()
    answers = boxes.locator("dd").all_inner_texts()
    empty = [q for q, a in zip(questions, answers, strict=True) if len(a.strip()) < 4]
    end = page.evaluate("document.querySelector('.facts').getBoundingClientRect().bottom")
    wrong = [] if len(questions) == 10 else [f"{len(questions)} questions"]
    return empty + wrong + ([] if end <= 900 else [f"the last one ends at {end}"])


def _found_by_axe(page: Page, axe: str, *rules: str) -> list[str]:
    """Serious and critical findings of axe-core."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(axe)
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{v['id']}: {n['html'][:200]} {n.get('failureSummary', '')[:200]}"
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
        for n in v["nodes"]
    ]
