"""The math spec language: index notation with named dimensions (docs/reference/spec.md)."""

from __future__ import annotations

from mirage_py.frontend.spec.parse import parse, parse_file

__all__ = ["parse", "parse_file"]
