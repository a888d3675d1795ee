"""The pages of the project: links resolve, files that are named exist, examples run."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

import mirage_py
from mirage_py.cli.shell.group import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
MAX_README_LINES = 40

# Every room: a folder of modules, or of rooms.
TOPS = ("axioms", "benchmarks", "codegen", "mirage_py", "search")
ROOMS = sorted(
    {
        str(path.parent.relative_to(ROOT))
        for top in TOPS
        for path in (ROOT / top).rglob("__init__.py")
        if not path.is_relative_to(ROOT / "benchmarks/results")
    }
)
FOLDERS = ("docs", "examples", "tests", *ROOMS)
READMES = tuple(f"{folder}/README.md" for folder in FOLDERS)
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    *READMES,
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("[a-z]*.md"))),
)
# Pages whose every path in backticks is one of the project. The others show users' files too.
ABOUT_THE_TREE = ("README.md", "CONTRIBUTING.md", "docs/explanation/architecture.md", *READMES)

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"([\w.-]+/)*[\w.-]+\.(py|md|lark|toml|math)|([\w.-]+/)+")
# What a reader is to write, or never to write.
NO_FILES = re.compile(r"\bNAME\b|_NAME_|^utils\.py$")
ARROWS = re.compile(r"(?:mirage_py|axioms|search|codegen)/[\w/]+(?:\.py|/)")


def prose(page: str) -> str:
    """The text of a page without its blocks of code."""
    return BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code of one language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def slugs(page: Path) -> list[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]


def dead_links(page: str) -> Iterator[str]:
    for link in LINK.findall(CODE.sub("code", prose(page))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = ROOT / page if not name else (ROOT / page).parent / name
        if not target.exists() or (anchor and anchor not in slugs(target)):
            yield link


def missing_files(page: str) -> Iterator[str]:
    """Paths in backticks that are neither beside the page nor in the project."""
    for code in CODE.findall(prose(page)):
        if not FILE.fullmatch(code) or NO_FILES.search(code):
            continue
        places = ((ROOT / page).parent, ROOT, ROOT / "mirage_py")
        if not any((place / code).exists() for place in places):
            yield code


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_a_short_readme(folder: str):
    lines = (ROOT / folder / "README.md").read_text(encoding="utf-8").count("\n")
    if folder != "docs":  # a map of the pages, a line each
        assert lines <= MAX_README_LINES


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_readme_names_what_is_in_the_room(folder: str):
    """Each module and each room below, by name or in a link."""
    page = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    named = [*CODE.findall(page), *(link.partition("#")[0] for link in LINK.findall(page))]
    modules = [p.name for p in sorted((ROOT / folder).glob("*.py")) if not p.name.startswith("_")]
    below = [Path(r).name for r in ROOMS if Path(r).parent == Path(folder)]
    stems = {m: m.removesuffix(".py") for m in modules}
    unnamed = [
        m
        for m, stem in stems.items()
        if stem not in named and not any(fnmatch(m, n) for n in named)
    ]
    missing = [r for r in below if not any(n in (f"{r}/", f"{r}/README.md") for n in named)]
    assert unnamed + missing == []


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str):
    assert list(dead_links(page)) == []


@pytest.mark.parametrize("page", ABOUT_THE_TREE)
def test_named_files_exist(page: str):
    assert list(missing_files(page)) == []


DOCS = tuple(sorted(str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")))


def test_the_map_has_every_page_once():
    linked = [link.partition("#")[0] for link in LINK.findall(prose("docs/README.md"))]
    assert sorted(n for n in linked if not n.startswith("..")) == [
        page for page in DOCS if page != "README.md"
    ]


def pages_in(nav: object) -> Iterator[str]:
    """The pages that the navigation of the site names."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for entry in nav:
            yield from pages_in(entry)
    elif isinstance(nav, dict):
        yield from pages_in(list(nav.values()))


def test_the_navigation_of_the_site_has_every_page_once():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert tuple(sorted(pages_in(site["nav"]))) == DOCS


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    described = re.findall(r"^::: mirage_py\.(\w+)$", page, re.MULTILINE)
    # What ``parse`` and ``trace`` return is described with them.
    undescribed = {"__version__", "Program"}
    assert sorted(described) == sorted(set(mirage_py.__all__) - undescribed)


def test_the_licence_and_the_citation_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["license"] == project["license"] == "Apache-2.0"
    assert citation["version"] == mirage_py.__version__
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert f"## {mirage_py.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_diagram_names_real_files():
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    drawn = ARROWS.findall("".join(BLOCK.findall(page)))
    assert len(drawn) > 20
    assert [name for name in drawn if not (ROOT / name).exists()] == []


def test_the_architecture_names_seven_files_to_read():
    page = prose("docs/explanation/architecture.md")
    listed = re.search(r"^## Read these 7 files\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert len(re.findall(r"^\d\. \[`", listed[1], re.MULTILINE)) == 7


def test_commands_of_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    used = re.findall(r"^mirage-py (\w+)", text, re.MULTILINE)
    assert used
    assert [name for name in used if name not in COMMANDS] == []


@pytest.mark.parametrize("number", range(2))
@pytest.mark.filterwarnings("ignore::mirage_py.MirageWarning")  # there is no GPU
def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    examples = blocks("README.md", "python")
    assert len(examples) == 2
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "example.py"
    script.write_text(examples[number], encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")
