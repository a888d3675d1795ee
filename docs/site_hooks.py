"""MkDocs hooks: pages of the repository outside of docs/ join the site, and links to them work."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s]+)\)")
# Links, and code, in which nothing is a link. Whichever begins first counts: the text of a link
# may be code.
LINK_OR_CODE = re.compile(rf"^```.*?^```$|{LINK.pattern}|`[^`\n]+`", re.MULTILINE | re.DOTALL)
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE")
SKIPPED = {"docs", "site", "build", "dist", "node_modules"}


def slug(heading: str, separator: str) -> str:
    """The anchor of a heading as GitHub makes it, so that one link serves both."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def outside_pages() -> dict[str, str]:
    """Repository path -> path on the site, of every page outside of docs/."""
    names = [*TOP]
    for folder, below, files in os.walk(ROOT, followlinks=False):
        below[:] = sorted(n for n in below if not n.startswith(".") and n not in SKIPPED)
        path = Path(folder).relative_to(ROOT)
        if "README.md" in files and path != Path():
            names.append((path / "README.md").as_posix())
    return {
        name: "repository/" + (name if name.endswith(".md") else f"{name}.md") for name in names
    }


def on_config(config: Any) -> Any:
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": slug}
    return config


def on_files(files: Files, config: Any) -> Files:
    for name, uri in outside_pages().items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if not name.endswith(".md"):
            text = f"# {name}\n\n```text\n{text}\n```\n"
        files.append(File.generated(config, uri, content=text))
    for name in sorted(linked_pictures()):
        files.append(File.generated(config, f"files/{name}", abs_src_path=str(ROOT / name)))
    return files


def linked_pictures() -> set[str]:
    """Pictures outside of docs/ that a page shows."""
    pages = [*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in outside_pages())]
    found = set()
    for page in pages:
        for bang, _, link in LINK.findall(page.read_text(encoding="utf-8")):
            target = os.path.normpath(page.parent / link)
            if bang and Path(target).is_file():
                found.add(Path(target).relative_to(ROOT).as_posix())
    return {name for name in found if not name.startswith("docs/")}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    pages = outside_pages()
    uri = page.file.src_uri
    homes = {site: name for name, site in pages.items()}
    here = PurePosixPath(homes.get(uri, f"docs/{uri}")).parent

    def moved(match: re.Match[str]) -> str:
        bang, text, link = match.groups()
        if link is None or "://" in link or link.startswith("#"):
            return match[0]
        path, _, anchor = link.partition("#")
        name = os.path.normpath(here / path)
        if (ROOT / name / "README.md").is_file():
            name += "/README.md"
        if name.startswith("docs/"):
            target = name.removeprefix("docs/")
        elif name in pages:
            target = pages[name]
        elif bang:
            target = f"files/{name}"
        elif config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{name})"
        elif (ROOT / name).exists():
            return text  # a source file: its path is the text of the link
        else:
            return match[0]  # MkDocs reports it
        where = os.path.relpath(target, PurePosixPath(uri).parent)
        return f"{bang}[{text}]({where}{'#' + anchor if anchor else ''})"

    # The highlighter takes one word after the fence: of ```math error the first.
    return LINK_OR_CODE.sub(moved, re.sub(r"^```(\w+) .*$", r"```\1", markdown, flags=re.MULTILINE))
