"""egglog's Rust interface, which the extra ``search`` installs: nothing else imports egglog."""

from __future__ import annotations

from mirage_py.errors import UnsupportedError

try:
    from egglog import bindings as egg
except ModuleNotFoundError as error:
    raise UnsupportedError(
        "the search is not installed",
        where="mirage_py",
        why="it stands on egglog, which saved kernels do without",
        repair="pip install 'mirage-py[search]'",
    ) from error

__all__ = ["egg"]
