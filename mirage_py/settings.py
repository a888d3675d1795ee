"""What the environment may change, read once and passed on as a value.

    MIRAGE_PY_CACHE_DIR        folder of the result cache; default: in the user's cache folder
    MIRAGE_PY_DUMP             folder that receives pages and texts of every stage; default: none
    MIRAGE_PY_WORKERS          processes that compile and time candidates; default: the cores,
                               16 at most
    MIRAGE_PY_COMPILE_TIMEOUT  seconds that one candidate may compile; default: 120
    MIRAGE_PY_NO_CACHE         1 to neither read nor write the cache; default: 0

An empty variable counts as unset.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mirage_py.arguments import shown, unusable
from mirage_py.errors import InputError

MAX_DEFAULT_WORKERS = 16
# No machine has more cores, and each process takes hundreds of megabytes.
MAX_WORKERS = 1024
DEFAULT_COMPILE_TIMEOUT_S = 120.0
# A day. Clocks of the operating system end at a few hundred years.
MAX_COMPILE_TIMEOUT_S = 86_400.0

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one process; ``from_env`` is the usual way to get them."""

    cache_dir: Path
    dump_dir: Path | None
    workers: int
    compile_timeout_s: float
    no_cache: bool

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from ``environ``, the process's own environment by default.

        A value that cannot be meant raises ``InputError``, which names the variable.
        """
        env = os.environ if environ is None else environ
        return cls(
            cache_dir=_folder(env, "MIRAGE_PY_CACHE_DIR") or _default_cache_dir(),
            dump_dir=_folder(env, "MIRAGE_PY_DUMP"),
            workers=_workers(env),
            compile_timeout_s=_compile_timeout_s(env),
            no_cache=_no_cache(env),
        )


def torch_rounds() -> tuple[bool, bool]:
    """Whether torch now rounds float32 to TF32 on a GPU, for matmuls and for convolutions; where it
    was not imported its defaults, which are to round for convolutions alone.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False, True
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if not hasattr(matmul, "fp32_precision"):  # before torch 2.9
        return bool(matmul.allow_tf32), bool(cudnn.allow_tf32)
    return matmul.fp32_precision == "tf32", cudnn.conv.fp32_precision == "tf32"


def _default_cache_dir() -> Path:
    # Here and not above, so that importing the package stays light.
    try:
        from platformdirs import user_cache_dir
    except ModuleNotFoundError:
        # A saved kernel runs without the tools of the search; Linux is what GPUs run under.
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mirage-py"
    return Path(user_cache_dir("mirage-py"))


def _folder(env: Mapping[str, str], name: str) -> Path | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        path = Path(text).expanduser().absolute()
        why = unusable(path)
    except RuntimeError as error:  # a home that there is not
        path, why = Path(text), str(error)
    if why:
        raise InputError(
            f"{shown(text)} is no folder",
            where=name,
            why=why,
            repair=f"set {name} to a folder; it is made when it does not exist",
        )
    if path.exists() and not path.is_dir():
        raise InputError(
            f"{shown(text)} is a file",
            where=name,
            why="the variable names a folder",
            repair=f"set {name} to a folder; it is made when it does not exist",
        )
    return path


def _workers(env: Mapping[str, str]) -> int:
    name = "MIRAGE_PY_WORKERS"
    text = env.get(name, "").strip()
    if not text:
        return min(MAX_DEFAULT_WORKERS, os.cpu_count() or 1)
    try:
        workers = int(text)
    except ValueError:
        workers = 0
    if not 1 <= workers <= MAX_WORKERS:
        raise InputError(
            f"{shown(text)} is not a number of processes",
            where=name,
            why=f"it must be a whole number from 1 to {MAX_WORKERS}",
            repair=f"{name}=2, or unset it to use the cores of this machine",
        )
    return workers


def _compile_timeout_s(env: Mapping[str, str]) -> float:
    name = "MIRAGE_PY_COMPILE_TIMEOUT"
    text = env.get(name, "").strip()
    if not text:
        return DEFAULT_COMPILE_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_COMPILE_TIMEOUT_S:
        raise InputError(
            f"{shown(text)} is not a number of seconds",
            where=name,
            why=f"it must be a number above 0, {MAX_COMPILE_TIMEOUT_S:.0f} at most",
            repair=f"{name}={DEFAULT_COMPILE_TIMEOUT_S:.0f}, or unset it",
        )
    return seconds


def _no_cache(env: Mapping[str, str]) -> bool:
    name = "MIRAGE_PY_NO_CACHE"
    text = env.get(name, "").strip().lower()
    if not text or text in _FALSE:
        return False
    if text in _TRUE:
        return True
    raise InputError(
        f"{shown(env[name])} is neither yes nor no",
        where=name,
        why=f"it must be one of {', '.join(_TRUE + _FALSE)}",
        repair=f"{name}=1 to work without the cache",
    )
