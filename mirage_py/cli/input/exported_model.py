"""The MODEL argument of the command line: an ONNX file or a callable of a module, exported."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from mirage_py.cli.input.example_tensors import example_arguments
from mirage_py.cli.input.user_module import find_function, import_file
from mirage_py.errors import InputError, UnsupportedError


class _Called(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function
        self.__signature__ = inspect.signature(function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def exported_model(text: str, inputs: Sequence[str]) -> torch.export.ExportedProgram:
    """The exported program of MODEL. Raises InputError and UnsupportedError."""
    path, colon, name = text.rpartition(":")
    if text.endswith(".onnx"):
        from mirage_py.frontend.networks.onnx_module import onnx_module

        if inputs:
            raise InputError(
                "--input is for functions", where=text, why="a model says what its inputs are"
            )
        module = onnx_module(Path(text))
        return _exported(text, module, module.examples(), {})
    if not colon or not path.endswith(".py"):
        raise InputError(
            f"'{text}' is no model", repair="pass a file of ONNX, or MODEL.py:FUNCTION"
        )
    imported = import_file(Path(path))
    found = find_function(imported, name, Path(path))
    called = found.forward if isinstance(found, torch.nn.Module) else found
    arguments = example_arguments(called, imported, inputs, text)
    whole = found.eval() if isinstance(found, torch.nn.Module) else _Called(found)
    return _exported(text, whole, (), arguments)


def _exported(
    text: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        try:
            return torch.export.export(module, args, kwargs, strict=False)
        except (InputError, UnsupportedError):
            raise
        # torch raises whatever it meets.
        except Exception as error:
            raise UnsupportedError(
                f"torch.export does not take {text}", why=str(error).splitlines()[0]
            ) from error
