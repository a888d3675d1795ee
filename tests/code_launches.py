"""PTX of emitted kernels, stored with the tests, each with its launch."""

from __future__ import annotations

import json
from pathlib import Path

from mirage_py.runtime.code_check.check import CodeReport, check_code
from mirage_py.runtime.code_check.events import Launch, Map, Tensor

_FOLDER = Path(__file__).parent / "data/ptx"
NAMES = tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))
TRITON = tuple(sorted(f"triton/{path.stem}" for path in _FOLDER.glob("triton/*.json")))


def text_of(name: str) -> str:
    """PTX, as nvcc 13.0 wrote it for sm_90a, or Triton 3.6."""
    return (_FOLDER / f"{name}.ptx.txt").read_text(encoding="utf-8")


def launch_for(name: str) -> Launch:
    """What the kernel was launched with."""
    read = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    read["tensors"] = {key: Tensor(**value) for key, value in read["tensors"].items()}
    for value in read["maps"].values():
        value |= {"shape": tuple(value["shape"]), "box": tuple(value["box"])}
    read["maps"] = {key: Map(**value) for key, value in read["maps"].items()}
    return Launch(**read)


def checked(text: str, launch: Launch) -> CodeReport:
    """The report on the only kernel of a text."""
    return check_code(text, "", lambda entry: launch)
