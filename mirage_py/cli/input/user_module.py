"""Importing the user's Python file by its path; whatever it raises becomes an InputError."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mirage_py.errors import InputError, MirageError
from mirage_py.frontend.spec.source import did_you_mean


def import_file(path: Path) -> ModuleType:
    """The module of a file; its folder is on ``sys.path`` as it is for ``python FILE``.

    Raises InputError with the line of the file that failed.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"the module {what}", where=str(path), repair="check the path")
    name = f"mirage_py_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module  # dataclasses and pickles look themselves up by it
    try:
        spec.loader.exec_module(module)
    except (MirageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise InputError(
            f"the module cannot be imported: {type(error).__name__}: {error}",
            where=_place(error, path),
            repair=f"`python {path}` shows the whole traceback",
        ) from error
    return module


def find_function(module: ModuleType, name: str, path: Path) -> Callable[..., Any]:
    """The function, module or method ``name`` (dots allowed). Raises InputError."""
    try:
        found = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        known = functions_in(path)
        raise InputError(
            f"the module has no function '{name}'",
            where=str(path),
            why=f"it defines {', '.join(known)}" if known else "it defines no function",
            repair=did_you_mean(name, known, "name one of its functions after the colon"),
        ) from None
    if isinstance(found, type):
        raise InputError(
            f"'{name}' is a class, not a function",
            where=str(path),
            why="what it computes depends on the object that is made of it",
            repair=f"make one in the module, as in block = {name}(...), and name that",
        )
    if not callable(found):
        raise InputError(
            f"'{name}' is of type {type(found).__name__}, not a function",
            where=str(path),
            repair="name a function or a torch.nn.Module",
        )
    function: Callable[..., Any] = found
    return function


def call_example_inputs(module: ModuleType) -> Any:
    """What ``example_inputs()`` of the module returns.

    Raises InputError with the line of the file that failed.
    """
    try:
        return module.example_inputs()
    except (MirageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise InputError(
            f"example_inputs() failed: {type(error).__name__}: {error}",
            where=_place(error, Path(str(module.__file__))),
            why="it is called without arguments, for the arguments of the function",
            repair="mend it, or give each argument with --input NAME=dtype[d0,d1,...]",
        ) from error


def functions_in(path: Path) -> list[str]:
    """Names of the functions at the top of a file, without running it."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name != "example_inputs" and not name.startswith("_")]


def _place(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == path.resolve()
    ]
    return f"{path}:{own[-1].lineno}" if own else str(path)
