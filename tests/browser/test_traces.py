"""Pages of a trace in a real browser: keys lead through the stages, nothing is asked for."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirage_py.pipeline.trace.stage import Item, Stage
from mirage_py.pipeline.trace.trace import Trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_LONG = "%0 = load X[b, n]  # " + "b <- grid 0, " * 30
_STAGES = (
    Stage("program", "The program", (Item("p", f"{_LONG}\n"),)),
    Stage("safe", "Safe " * 20, (Item("f" * 200, f"{_LONG}+\nb\n", f"{_LONG}\n"),), ("a note",)),
    Stage("plans", "Plans", (Item("x", "1\n", "2\n"), Item("y", "1\n", "1\n", dropped="<slow>"))),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace")
    trace = Trace(path)
    with trace.to_the_end():
        for stage in _STAGES:
            trace(lambda stage=stage: stage)  # type: ignore[misc]
    return path


def test_keys_lead_through_the_stages(browser: Browser, folder: Path) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(message.text))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.goto((folder / "index.html").as_uri())
    ways = ("j00_program", "j01_safe", "j02_plans", "j02_plans", "k01_safe", "iindex")
    for key, *name in ways:  # behind the last stage there is none
        page.keyboard.press(key)
        page.wait_for_url(f"**/{''.join(name)}.html")
    page.close()
    outside = [url for url in asked if not url.startswith((folder.as_uri(), "data:"))]
    assert outside == []


@pytest.mark.parametrize(("scheme", "pages"), [("dark", "*.html"), ("light", "01_*.html")])
def test_pages_fit_and_are_accessible(
    browser: Browser, folder: Path, scheme: str, pages: str
) -> None:
    pytest.importorskip("axe_core_python")
    axe = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    for path in sorted(folder.glob(pages)):
        page.goto(path.as_uri())
        for width in (1400, 360):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert [(v["id"], v["nodes"][0]["html"][:200]) for v in serious] == []
    context.close()
