"""Emitted source as a Python module.

``triton.jit`` reads the text of the function it decorates, and profilers and debuggers want a file
to point at, so the source is written to the cache folder. What runs is the text that was passed in:
the file is never read back, and neither is any byte code beside it, so nobody who can write to the
cache can change a kernel.

Interpreting and compiling do not mix in one process. Triton decides at decoration time which of the
two a function is for, its own library functions (``tl.sum``, ``tl.zeros``) are decorated when
triton is imported, and a run of the interpreter leaves ``triton.language.core`` patched. Swapping
and restoring those tables by hand works but rests on triton's private parts, so the interpreter has
a worker process of its own, which costs 1.5 s once.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import linecache
import sys
import threading
from pathlib import Path
from types import ModuleType

from mirage_py.errors import CompileError
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.private_folder import private_folder

_LOCK = threading.Lock()


class _TextLoader(importlib.abc.ExecutionLoader):
    """Loads a module from text that stands for the file at ``path``."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002
        return str(self.path)

    def get_source(self, fullname: str) -> str:  # noqa: ARG002
        return self.text


def module_name(source: str, name: str) -> str:
    """The module's name: the same in every process, because triton's own cache is keyed by it."""
    return f"mirage_py_kernel_{_digest(source)[:16]}_{name}"


def source_path(source: str, name: str) -> Path:
    """Where the file of an emitted source lies."""
    return private_folder("sources") / _digest(source) / f"{name}.py"


def load_module(source: str, name: str) -> ModuleType:
    """The module that ``source`` defines; loaded once per process and text.

    Raises CompileError when the text is not Python or fails while it is imported.
    """
    full_name = module_name(source, name)
    with _LOCK:
        known = sys.modules.get(full_name)
        if known is not None:
            return known
        path = source_path(source, name)
        try:
            write_text(path, source)
        except OSError:
            # The file is for people and tools; the kernel comes from memory.
            path = Path(f"<{name}.py>")
        # Without a modification time the entry counts as loaded from memory and is never checked
        # against the disk.
        linecache.cache[str(path)] = (
            len(source),
            None,
            source.splitlines(keepends=True),
            str(path),
        )
        loader = _TextLoader(path, source)
        spec = importlib.util.spec_from_file_location(full_name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full_name] = module
        try:
            loader.exec_module(module)
        except Exception as error:
            del sys.modules[full_name]
            raise CompileError(
                f"the emitted source of {name} does not load: {type(error).__name__}: {error}",
                where=str(path),
                repair="run the file alone to see where it stops",
            ) from error
        return module


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
