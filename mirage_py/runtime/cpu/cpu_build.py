"""CUDA kernels as programs for the CPU: compiled against ``codegen/cuda/on_cpu``, cached by
content.

Two files make a program. The runtime (the machine with its fibers and checks) is the same for every
kernel and compiled once; so is the header that every kernel includes. The kernel's is instrumented:
each of its accesses of memory is seen.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mirage_py.codegen.cuda.text import prelude
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import CompileError, InputError
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.private_folder import private_folder, scratch_folder
from mirage_py.settings import Settings

HEADERS = prelude.FOLDER.parent / "on_cpu"
COMPILE_TIMEOUT_S = 120.0

_COMMON = (
    "-std=c++17",
    "-w",
    "-fno-pie",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-c",
)
RUNTIME_FLAGS = (*_COMMON, "-Og")
KERNEL_FLAGS = (*_COMMON, "-O1", "-g1", "-fsanitize=thread", "-fsanitize=alignment")
# nvcc contracts a b + c to one fma, across statements, too; g++ does it in an expensive pass alone.
_CONTRACTION = ("-ffp-contract=fast", "-fexpensive-optimizations")
_CPU_INFO = Path("/proc/cpuinfo")

_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w\s]+?)\s*\b(\w+)\s*\[\s*\]\s*;"
)
# Lines of a kernel are those of its body in messages of the compiler, too.
_KERNEL_FILE = "kernel.cpp"
_ADDRESSES = re.compile(r" @(?: (?:0x[0-9a-f]+|\(nil\)))*")
_WORDS_OF_ERRORS = 1500


def cpp_compiler() -> str | None:
    """Where the system's C++ compiler is."""
    names = [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name]
    return next((path for name in names if (path := shutil.which(name))), None)


def contraction_flags() -> tuple[str, ...]:
    """The compiler's options by which ``a b + c`` rounds once, as on a GPU, where this CPU can."""
    if platform.machine() in ("aarch64", "arm64"):
        return _CONTRACTION
    info = _CPU_INFO.read_text(encoding="utf-8") if _CPU_INFO.exists() else ""
    has_fma = re.search(r"^flags\b.*\bfma\b", info, re.MULTILINE)
    return (*_CONTRACTION, "-mfma") if has_fma else ("-ffp-contract=off",)


def link_flags() -> tuple[str, ...]:
    """gold, where there is one, links a program in a third of the time that GNU ld takes."""
    return ("-no-pie", "-fuse-ld=gold") if shutil.which("ld.gold") else ("-no-pie",)


def executable(kernel: CudaKernel) -> Path:
    """The program that runs a kernel (``on_cpu/runtime.cpp`` says how), compiled or from the cache.

    Raises InputError where there is no C++ compiler, and CompileError when it refuses the text.
    """
    compiler = cpp_compiler()
    if compiler is None:
        raise InputError(
            "there is no C++ compiler",
            why="CUDA kernels run on a CPU as C++",
            repair="install g++ or clang++, or name one in CXX",
        )
    text = cpp_text(kernel)
    flags = (*KERNEL_FLAGS, *contraction_flags())
    key = _digest([compiler, *flags, *link_flags(), *RUNTIME_FLAGS, _headers(), text])
    folder = private_folder("on_cpu") if not Settings.from_env().no_cache else scratch_folder()
    path = folder / f"{key}.run"
    if path.exists():
        return path
    runtime = _runtime(compiler, folder)
    header = _header(compiler, flags, folder)
    with tempfile.TemporaryDirectory(prefix=".build.", dir=folder) as name:
        build = Path(name)
        source, made = build / _KERNEL_FILE, build / "kernel.o"
        write_text(source, text)
        (build / "device.h.gch").symlink_to(header)
        _compile([compiler, *flags, f"-I{HEADERS}", str(source), "-o", str(made)], kernel)
        program = build / "run"
        _compile([compiler, *link_flags(), str(made), str(runtime), "-o", str(program)], kernel)
        program.replace(path)
    return path


def cpp_text(kernel: CudaKernel) -> str:
    """The kernel as C++: its body, and a function that calls it with a list of arguments."""
    body = _DYNAMIC.sub(
        r"\1* const \2 = reinterpret_cast<\1*>(on_cpu::dynamic_shared());", kernel.body
    )
    if "__shared__" in re.sub(r"//.*", "", body):
        raise CompileError(
            "shared memory that is not dynamic",
            where=kernel.name,
            why="CPU emulation gives a block one buffer",
            repair="write `extern __shared__ unsigned char shared_memory[];` inside the kernel",
        )
    products = []
    for shape in prelude.wgmma_shapes(body):
        macro = "ON_CPU_WGMMA_R" if shape.a_in_registers else "ON_CPU_WGMMA_S"
        flags = ", ".join(str(t).lower() for t in (shape.a_is_transposed, shape.b_is_transposed))
        products.append(f"{macro}({shape.name}, {shape.dtype.upper()}, {shape.n}, {flags})")
    return "\n".join(
        [
            '#include "device.h"',
            '#line 1 "products"',
            *products,
            f'#line 1 "{_KERNEL_FILE}"',
            body,
            '#line 1 "call"',
            '#include "call.h"',
            f"void on_cpu_call(void** arguments) {{ on_cpu::call(&{kernel.name}, arguments); }}",
            "",
        ]
    )


def with_lines(words: str, kernel: CudaKernel, program: Path) -> str:
    """What a program says, with lines of the kernel's text instead of addresses."""
    return _ADDRESSES.sub(lambda m: _line_of(m[0].split()[1:], kernel, program), words)


def _line_of(addresses: Sequence[str], kernel: CudaKernel, program: Path) -> str:
    tool = shutil.which("addr2line")
    if tool is None or not addresses:
        return ""
    # A return address is that of the instruction after the call.
    calls = [hex(int(a, 16) - 1) for a in addresses if a != "(nil)"]
    done = subprocess.run(
        [tool, "-i", "-e", str(program), *calls], check=False, capture_output=True, text=True
    )
    for place in done.stdout.splitlines():
        file, _, rest = place.rpartition(":")
        number = re.match(r"\d+", rest)
        if Path(file).name == _KERNEL_FILE and number:
            line = int(number[0])
            text = kernel.body.splitlines()[line - 1 : line]
            return f"\n    line {line}: {''.join(text).strip()}"
    return ""


def _runtime(compiler: str, folder: Path) -> Path:
    return _made_once(folder, ".o", [compiler, *RUNTIME_FLAGS, str(HEADERS / "runtime.cpp")])


def _header(compiler: str, flags: Sequence[str], folder: Path) -> Path:
    """``device.h``, precompiled, which saves g++ a quarter of its time. It reads the text if the
    file does not fit; other compilers do not look for it.
    """
    source = str(HEADERS / "device.h")
    return _made_once(folder, ".gch", [compiler, *flags, "-x", "c++-header", source])


def _made_once(folder: Path, suffix: str, command: Sequence[str]) -> Path:
    path = folder / f"{_digest([*command, _headers()])}{suffix}"
    if not path.exists():
        with tempfile.TemporaryDirectory(prefix=".build.", dir=folder) as name:
            made = Path(name) / "made"
            _compile([*command, "-o", str(made)], None)
            made.replace(path)
    return path


def _compile(command: Sequence[str], kernel: CudaKernel | None) -> None:
    where = kernel.name if kernel is not None else "CPU emulation"
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        why = f"it took longer than {COMPILE_TIMEOUT_S:g} s"
        raise CompileError("the C++ compiler was stopped", where=where, why=why) from None
    if done.returncode:
        errors = [
            line for line in done.stderr.splitlines() if "error" in line or "undefined" in line
        ] or [done.stderr]
        raise CompileError(
            "the C++ compiler refuses it", where=where, why="\n".join(errors)[:_WORDS_OF_ERRORS]
        )


@functools.cache
def _headers() -> str:
    return "".join(p.read_text(encoding="utf-8") for p in sorted(HEADERS.iterdir()) if p.is_file())


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
