"""The one category of warning that mirage_py gives, so that a filter can name it."""

from __future__ import annotations


class MirageWarning(UserWarning):
    """A fallback to eager, and its reason."""
