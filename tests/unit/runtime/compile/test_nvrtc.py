"""NVRTC through CuPy, with a CuPy that notes what it is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mirage_py.errors import CompileError
from mirage_py.runtime.compile import cuda_compiler
from mirage_py.runtime.compile.cuda_compiler import CudaCompiler


class Nvrtc(ModuleType):
    """``cupy.cuda.nvrtc``: refuses headers in a folder called old, and sources that say wrong."""

    class NVRTCError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("cupy.cuda.nvrtc")
        self.options: list[tuple[str, ...]] = []
        self.alive = 0

    def getVersion(self) -> tuple[int, int]:
        return (13, 1)

    def createProgram(self, source: str, name: str, headers: Any, names: Any) -> dict[str, str]:
        self.alive += 1
        return {"source": source, "name": name, "log": ""}

    def compileProgram(self, program: dict[str, str], options: tuple[str, ...]) -> None:
        self.options.append(options)
        if any(o.endswith("old") for o in options) or "wrong" in program["source"]:
            program["log"] = f"{program['name']}(3): error: this is wrong\nmore words\n\0"
            raise self.NVRTCError
        program["log"] = "ptxas info    : Used 12 registers\n\0"

    def getProgramLog(self, program: dict[str, str]) -> str:
        return program["log"]

    def getCUBIN(self, program: dict[str, str]) -> bytes:
        return b"\x7fELF" + program["source"].encode()

    def destroyProgram(self, program: dict[str, str]) -> None:
        self.alive -= 1


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> Nvrtc:
    fake = Nvrtc()
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    cuda.nvrtc = fake  # type: ignore[attr-defined]
    for name, module in (("cupy", cupy), ("cupy.cuda", cuda), ("cupy.cuda.nvrtc", fake)):
        monkeypatch.setitem(sys.modules, name, module)
    return fake


def folders(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(cuda_compiler, "_include_folders", lambda: map(Path, names))


def test_the_first_headers_that_nvrtc_takes(nvrtc: Nvrtc, monkeypatch: pytest.MonkeyPatch):
    folders(monkeypatch, "/old", "/new", "/newer")
    assert cuda_compiler._nvrtc() == CudaCompiler("nvrtc", "13.1", "/new")
    assert nvrtc.alive == 0


def test_without_headers_it_is_of_no_use(nvrtc: Nvrtc, monkeypatch: pytest.MonkeyPatch):
    folders(monkeypatch, "/old")
    with pytest.raises(CompileError, match=r"no headers of CUDA \(cuda_fp16\.h\)"):
        cuda_compiler._nvrtc()


def test_a_library_that_is_not_found_is_said(nvrtc: Nvrtc, monkeypatch: pytest.MonkeyPatch):
    def fails() -> None:
        raise RuntimeError("no libnvrtc.so.13\nand more")

    monkeypatch.setattr(nvrtc, "getVersion", fails)
    with pytest.raises(CompileError, match=r"finds no NVRTC \(no libnvrtc\.so\.13\)"):
        cuda_compiler._nvrtc()


def test_code_and_what_ptxas_says(nvrtc: Nvrtc):
    compiler = CudaCompiler("nvrtc", "13.1", "/new")
    cubin, log = compiler.compile("a kernel", "k", "sm_90a")
    assert cubin == b"\x7fELFa kernel"
    assert "Used 12 registers" in log
    (options,) = nvrtc.options
    assert options[0] == "--gpu-architecture=sm_90a"
    assert options[-1] == "-I/new"
    assert "--use_fast_math" not in options
    assert nvrtc.alive == 0


def test_errors_come_first(nvrtc: Nvrtc):
    with pytest.raises(CompileError) as raised:
        CudaCompiler("nvrtc", "13.1", "/new").compile("wrong", "k", "sm_80")
    said = "nvrtc 13.1 does not compile it: k.cu(3): error: this is wrong"
    assert raised.value.what == said
    assert raised.value.where == "k for sm_80"
    assert nvrtc.alive == 0
