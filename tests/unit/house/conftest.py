from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOP_SECTIONS = ("axioms", "codegen", "search")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder that holds pyproject.toml."""
    return ROOT


@pytest.fixture(scope="session")
def package_files() -> dict[str, Path]:
    """Every file of the package: its path inside mirage_py -> its real place."""
    files: dict[str, Path] = {}
    for folder in ("mirage_py", *TOP_SECTIONS):
        prefix = "" if folder == "mirage_py" else f"{folder}/"
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT / folder)
            if path.is_file() and "__pycache__" not in relative.parts:
                linked = folder == "mirage_py" and relative.parts[0] in TOP_SECTIONS
                if not linked:
                    files[prefix + relative.as_posix()] = path
    return files
