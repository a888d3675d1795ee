"""The page of environment variables names what the code reads, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from mirage_py.settings import Settings

_OURS = re.compile("MIRAGE_PY_[A-Z_]+")


def _read_by(source: str) -> set[str]:
    """Variables of ours, and those that are asked for by name."""
    found: set[str] = set()
    if "environ" not in source and _OURS.search(source) is None:
        return found
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) else ""
        if isinstance(text, str) and _OURS.fullmatch(text):
            found.add(text)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get":
            asked = node.args[0]
            found |= {asked.value} if isinstance(asked, ast.Constant) else set()
    return found


def test_every_variable_is_on_the_page(root: Path, package_files: dict[str, Path]):
    files = [path for path in package_files.values() if path.suffix == ".py"]
    read = set().union(*(_read_by(path.read_text(encoding="utf-8")) for path in files))
    page = (root / "docs/reference/environment.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[A-Z`, _]+`) \|", page, re.MULTILINE)
    told = {name for row in rows for name in re.findall("`([A-Z_]+)`", row)}
    assert read >= {"MIRAGE_PY_WORKERS", "CXX", "NO_COLOR"}
    assert told == read


def test_the_settings_are_those_of_the_page(root: Path):
    """Each field of the settings has its variable, and its variable changes it."""
    values = ("/a", "/b", "3", "2.5", "1")
    names = ("CACHE_DIR", "DUMP", "WORKERS", "COMPILE_TIMEOUT", "NO_CACHE")
    assert len(names) == len(Settings.__slots__)
    default = Settings.from_env({})
    for name, value, field in zip(names, values, Settings.__slots__, strict=True):
        changed = Settings.from_env({f"MIRAGE_PY_{name}": value})
        differ = [f for f in Settings.__slots__ if getattr(changed, f) != getattr(default, f)]
        assert differ == [field]
