"""The one category of warning that mirage_py gives, where a filter names it."""

from mirage_py.errors import MirageWarning

__all__ = ["MirageWarning"]
