"""Traces: a page and a text for each stage, what changed first, whole after a crash."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mirage_py.errors import InputError
from mirage_py.frontend.spec.parse import parse
from mirage_py.pipeline.pipeline import normalise, optimize, run
from mirage_py.pipeline.selection.request import Request
from mirage_py.pipeline.trace.stage import Item, Stage
from mirage_py.pipeline.trace.trace import Trace
from mirage_py.ugraph.text.text_form import parse_program, parse_ugraph

SOFTMAX = """
B = 64, N = 256
X[B, N] : f16
Y[b, n] = exp(X[b, n]) / sum[n](exp(X[b, n]))
"""
NAMES = ["program", "normal", "families", "safe", "plans", "verified", "kernels", "result"]


class Page(HTMLParser):
    """What a page says, and what it would load."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        self.loaded: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        if tag == "a" and "rel" in held:
            self.links[str(held["rel"])] = str(held["href"])
        self.loaded += [str(held[a]) for a in ("src", "data") if a in held]
        outside = tag == "link" and held["href"] != "data:,"
        self.loaded += [str(held["href"])] if outside else []

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory):
    """A program's result and its trace, by the variable as by the option."""
    folder = tmp_path_factory.mktemp("trace") / "dump"
    program = parse(SOFTMAX, name="softmax")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIRAGE_PY_DUMP", str(folder))
        result = optimize(program, target="h200", backend="triton", effort="none")
    return program, result, folder


def test_every_stage_has_a_text_that_reads_back(traced):
    program, result, folder = traced
    texts = {p.stem.partition("_")[2]: p.read_text() for p in sorted(folder.glob("*.txt"))}
    assert list(texts) == NAMES
    assert parse_program(texts["program"]) == program
    assert parse_program(texts["normal"]) == normalise(program)
    first = texts["plans"].split("\n# ")[0].partition("\n")[2]
    assert parse_ugraph(first) == result.ugraph
    assert texts["kernels"].startswith('"""softmax: a kernel for softmax.')
    assert "accum_rescaled" in texts["safe"]
    assert "accum_rescaled" not in texts["families"]


def test_pages_lead_from_one_to_the_next_and_load_nothing(traced):
    _, _, folder = traced
    pages = {p.name: Page(p) for p in sorted(folder.glob("*.html"))}
    files = [f"{n:02d}_{name}.html" for n, name in enumerate(NAMES)]
    assert list(pages) == [*files, "index.html"]
    assert [pages[f].links.get("next") for f in files] == [*files[1:], None]
    assert [pages[f].links.get("prev") for f in files] == [None, *files[:-1]]
    assert all(page.loaded == [] for page in pages.values())
    assert "finished" in pages["index.html"].text


def test_a_page_shows_what_changed_before_the_whole(traced):
    _, _, folder = traced
    page = (folder / "03_safe.html").read_text()
    added = page.index("<ins>+  %1 = max[n] %0 : [b]</ins>")
    assert added < page.index("<details>")
    assert "<del>-  %1 = exp %0 : [b, n]</del>" in page


def test_changed_items_come_first_and_dropped_ones_say_why():
    same = Item("same", "a\n", "a\n")
    dropped = Item("dropped", "a\n", "a\n", dropped="it <overflows>")
    changed = Item("changed", "a\nc\n", "a\nb\n")
    stage = Stage("s", "S", (same, dropped, Item("new", "n\n"), changed))
    assert [i.title for i in stage.changed_first(9)] == ["changed", "new", "dropped", "same"]
    twice = Stage("s", "S", (changed, dropped, dropped, changed))
    assert [i.title for i in twice.changed_first(1)] == ["changed", "dropped"]
    assert changed.changes == ("@@ -2 +2 @@", "-b", "+c")
    assert changed.verdict == "2 lines changed"
    assert stage.summary == "1 same, 1 dropped, 1 new, 1 changed"
    assert "# dropped; dropped: it <overflows>\na\n" in stage.text


def test_what_was_written_stays_after_a_crash(tmp_path: Path):
    trace = Trace(tmp_path)

    def fails_after_one_stage() -> None:
        with trace.to_the_end():
            trace(lambda: Stage("one", "One", (Item("x", "1\n"),)))
            assert "not finished: what comes after “One”" in Page(tmp_path / "index.html").text
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fails_after_one_stage()
    assert (tmp_path / "00_one.txt").read_text() == "1\n"
    assert "ended by RuntimeError: no more" in Page(tmp_path / "index.html").text
    assert not re.findall(r"\.tmp|\.\w{8}$", " ".join(p.name for p in tmp_path.iterdir()))


def test_a_refused_program_leaves_its_stages(tmp_path: Path):
    program = parse("N = 8\nX[N] : f16\nY[n] = X[n] / (X[n] - X[n])", name="p")
    result = run(program, Request("h200", "triton", "none", trace=Trace(tmp_path)))
    assert result.plan is None
    assert "divides by zero in each of" in Page(tmp_path / "02_families.html").text
    assert "no fused µGraph was found" in Page(tmp_path / "06_result.html").text


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    trace = Trace(tmp_path / "file" / "folder")
    with pytest.raises(InputError, match="cannot be written"):
        trace(lambda: Stage("one", "One", ()))


def test_without_a_folder_nothing_is_made():
    Trace(None)(lambda: pytest.fail("it was made"))


def test_a_request_is_what_is_asked_for_whatever_is_traced(tmp_path: Path):
    assert Request("h200") == Request("h200", trace=Trace(tmp_path))
