"""Values that callers pass: what can be meant, or an InputError that names the argument."""

from __future__ import annotations

from pathlib import Path
from types import NoneType

from mirage_py.errors import InputError

_SHOWN_CHARACTERS = 80
_LONGEST_PATH = 4096


def shown(value: object) -> str:
    """A value in a message: its repr, of any length and of any object, in a few words."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  too many digits, or whatever another's __repr__ raises
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def check_type(
    name: str, value: object, kinds: tuple[type, ...], *, where: str = "", made_by: str = ""
) -> None:
    """InputError for a value of none of the types, which is ``made_by`` something. A bool is an int
    to Python alone.
    """
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return
    words = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
    made = f", which {made_by} gives" if made_by else ""
    raise InputError(
        f"'{name}' is {shown(value)}", where=where, repair=f"pass a value of type {words}{made}"
    )


def check_callable(name: str, value: object) -> None:
    """InputError for what cannot be called."""
    if not callable(value):
        raise InputError(f"'{name}' is {shown(value)}", repair="pass a function")


def path_of(name: str, value: object) -> Path:
    """The path that a string or a path names, which need not exist. InputError where there can be
    none.
    """
    check_type(name, value, (str, Path))
    path = Path(value)  # type: ignore[arg-type]
    why = unusable(path)
    if why:
        raise InputError(f"'{name}' is {_path_text(path)}", why=why, repair="pass another path")
    return path


def _path_text(path: Path) -> str:
    """All of a path that a system may have; of a longer one its beginning."""
    text = repr(str(path))
    return text if len(text) <= _LONGEST_PATH else f"{text[:_SHOWN_CHARACTERS]}..."


def unusable(path: Path) -> str:
    """Why a file system can have no such path, or nothing if it can."""
    try:
        path.stat()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""
