"""The files of the compilers' caches, which travel between machines by their content keys.

A worker answers with the facts of the kernels and with what lies in its cache for them; here that
is put into the cache under the same keys. Both may be one folder. Nothing of it is unpickled or
run: it is what the compiler would have written here.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mirage_py.runtime.base.atomic import write_bytes
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.process.worker_process import Reply, Task

Files = dict[str, str]

_SERVICES = "mirage_py.runtime.worker_main.compiled_files"
_HASH = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"\w[\w.\-]{0,250}")


def there(task: Task) -> Task:
    """The task of a compile worker (worker_main.worker) whose answer has the files, too."""
    return {**task, "service": f"{_SERVICES}:{task['service']}"}


def taken_here(reply: Reply) -> Reply:
    """The reply with the facts alone; its files lie in the caches of this machine."""
    if not reply.done:
        return reply
    for key, files in reply.value.get("triton", {}).items():
        _take_triton(key, files)
    folder = private_folder("cubins")
    for name, text in reply.value.get("cubins", {}).items():
        if _FILE.fullmatch(name) and not (folder / name).exists():
            write_bytes(folder / name, _unpacked(text))
    return replace(reply, value=reply.value["facts"])


def _take_triton(key: str, files: Mapping[str, str]) -> None:
    """Triton's groups name the files by their places, so they are made anew."""
    from triton.runtime.cache import get_cache_manager

    whole = next((n for n in files if n.endswith(".json")), None)
    if whole is None or not _HASH.fullmatch(key) or not all(map(_FILE.fullmatch, files)):
        return
    manager = get_cache_manager(key)
    if not manager.get_group(whole):
        manager.put_group(whole, {n: manager.put(_unpacked(t), n) for n, t in files.items()})


def packed(path: Path) -> str:
    """A file as text."""
    return base64.b64encode(zlib.compress(path.read_bytes(), 1)).decode("ascii")


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
