"""The compiler of CUDA kernels: NVRTC through CuPy where it is installed, else nvcc.

Neither needs a GPU. NVRTC takes a tenth of a second for what takes nvcc two: it has no host side.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mirage_py.errors import CompileError
from mirage_py.reasons import Code
from mirage_py.runtime.base.private_folder import scratch_folder

# What both take. No --use_fast_math: the emitter writes approximations where it means them.
OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v")
# A header that every toolkit has and emitted text asks for.
_HEADER = "cuda_fp16.h"
_PROBE = f"#include <{_HEADER}>\n#include <cuda_bf16.h>\n"
_PROBED = "sm_80"
_NVCC_TIMEOUT_S = 600
_LINES = 8
# Of a 64-bit file, where its tables of segments and of sections lie, and how long they are.
_ELF_HEADER = struct.Struct("<32x2Q6x4H2x")


@dataclass(frozen=True, slots=True)
class CudaCompiler:
    """``kind`` is ``nvrtc`` or ``nvcc``; ``include`` the folder of CUDA's headers, for NVRTC;
    ``path`` is that of nvcc.
    """

    kind: str
    version: str
    include: str = ""
    path: str = ""

    def compile(self, source: str, name: str, arch: str) -> tuple[bytes, str]:
        """Machine code of one file for an ``arch`` such as ``sm_90a``, and what ptxas says of it.

        Raises CompileError with what the compiler says of it.
        """
        return (_by_nvrtc if self.kind == "nvrtc" else _by_nvcc)(self, source, name, arch)

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"


@cache
def cuda_compiler() -> CudaCompiler:
    """The one that is used here. Raises CompileError, with what to install, where there is none."""
    try:
        return _nvrtc()
    except CompileError as error:
        without = error
    found = nvcc()
    if found is None:
        raise CompileError(
            "there is no compiler for CUDA kernels",
            why=f"{without.what}, and there is no nvcc on the path",
            repair='pip install "mirage_py[cuda13]" (or [cuda12], as the driver asks for), or use '
            "--backend triton",
        )
    return found


def _nvrtc() -> CudaCompiler:
    """Raises CompileError where CuPy or its NVRTC is missing."""
    try:
        from cupy.cuda import nvrtc
    except ImportError as error:
        raise CompileError(f"CuPy is not there ({error})") from error
    try:
        version = ".".join(map(str, nvrtc.getVersion()))
    except Exception as error:
        # What CuPy raises of a library that it does not find depends on its version.
        raise CompileError(f"CuPy finds no NVRTC ({_first_line(error)})") from error
    for include in _include_folders():
        compiler = CudaCompiler("nvrtc", version, include=str(include))
        # Headers of another version may be there too, and NVRTC may not take them.
        with contextlib.suppress(CompileError):
            _by_nvrtc(compiler, _PROBE, "probe", _PROBED)
            return compiler
    raise CompileError(f"there are no headers of CUDA ({_HEADER}) that NVRTC takes")


def nvcc() -> CudaCompiler | None:
    """The nvcc of CUDA_HOME or the path, if it runs."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    beside = Path(home) / "bin/nvcc" if home else None
    path = str(beside) if beside is not None and beside.exists() else shutil.which("nvcc")
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout)
    return CudaCompiler("nvcc", version[1] if version else "unknown", path=path)


def _include_folders() -> Iterator[Path]:
    """Folders with CUDA's headers: those of NVIDIA's packages, as CuPy looks there for NVRTC first,
    the toolkit's, triton's own.
    """
    for root in _package_folders("nvidia"):
        for part in ("cu13", "cu12", "cuda_runtime"):
            yield from _with_headers(root / part / "include")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield from _with_headers(Path(os.environ[variable]) / "include")
    path = shutil.which("nvcc")
    if path is not None:
        yield from _with_headers(Path(path).resolve().parents[1] / "include")
    yield from _with_headers(Path("/usr/local/cuda/include"))
    for root in _package_folders("triton"):
        yield from _with_headers(root / "backends/nvidia/include")


def _with_headers(folder: Path) -> Iterator[Path]:
    if (folder / _HEADER).exists():
        yield folder


def _package_folders(name: str) -> list[Path]:
    """Where a package lies, without importing it."""
    found = importlib.util.find_spec(name)
    return [Path(p) for p in (found.submodule_search_locations or ())] if found else []


def _by_nvrtc(compiler: CudaCompiler, source: str, name: str, arch: str) -> tuple[bytes, str]:
    from cupy.cuda import nvrtc

    options = (f"--gpu-architecture={arch}", *OPTIONS, f"-I{compiler.include}")
    program: Any = nvrtc.createProgram(source, f"{name}.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as error:
            raise _refused(compiler, nvrtc.getProgramLog(program), name, arch) from error
        return whole_elf(bytes(nvrtc.getCUBIN(program))), str(nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)


def whole_elf(cubin: bytes) -> bytes:
    """Machine code up to where its headers say that it ends. CuPy takes the last byte of NVRTC's
    for the end of a string; the driver does not miss it, and nvdisasm does not read such a file.
    """
    if not cubin.startswith(b"\x7fELF") or len(cubin) < _ELF_HEADER.size:
        return cubin
    places, sizes = (found := _ELF_HEADER.unpack_from(cubin))[:2], found[2:]
    end = max(places[0] + sizes[0] * sizes[1], places[1] + sizes[2] * sizes[3])
    return cubin + b"\0" if len(cubin) == end - 1 else cubin


def _by_nvcc(compiler: CudaCompiler, source: str, name: str, arch: str) -> tuple[bytes, str]:
    code = arch.removeprefix("sm_")
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        (Path(folder) / f"{name}.cu").write_text(source, encoding="utf-8")
        command = [
            *(compiler.path, *OPTIONS, "-cubin"),
            f"-gencode=arch=compute_{code},code={arch}",
            *("-o", "kernel.cubin", f"{name}.cu"),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=_NVCC_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CompileError(f"nvcc does not run: {error}", where=name) from error
        if done.returncode:
            raise _refused(compiler, done.stderr + done.stdout, name, arch)
        return (Path(folder) / "kernel.cubin").read_bytes(), done.stderr


def _refused(compiler: CudaCompiler, log: str, name: str, arch: str) -> CompileError:
    """What the compiler says, errors before all else."""
    lines = [line.strip() for line in log.replace("\0", "").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line or "fatal" in line]
    said = errors[:_LINES] if errors else lines[-_LINES:]
    words = " | ".join(said) or "nothing"
    what = f"{compiler} does not compile it: {words}"
    return CompileError(what, where=f"{name} for {arch}", code=Code.NOT_COMPILED)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
