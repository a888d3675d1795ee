"""The checks of ``mirage-py doctor``, each with a remedy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version

import numpy as np

from mirage_py.errors import MirageError
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.ahead_of_time import compiled
from mirage_py.runtime.compile.cuda_compiler import cuda_compiler, nvcc
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.env.environment import detect_target, gpu
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.settings import Settings
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph

_POINTS = 100
_CLUSTERS_FROM = 90
_CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``detail`` is what was found, ``repair`` what to do where it is not ``ok``."""

    check: str
    ok: bool
    detail: str
    repair: str = ""


def environment_report() -> list[Check]:
    """Every check, in the order in which one needs another. Takes some seconds."""
    folder = _cache_folder()
    checks = [_python(), *_packages(), _cupy(), *_cuda_tools(), folder, _gpu()]
    if not folder.ok:  # what is compiled goes there
        return checks
    checks.append(_guarded("compile a kernel", _compile))
    found = gpu()
    with_cuda = _compiles_cuda()
    if with_cuda:
        checks.append(_guarded("compile a CUDA kernel", lambda: _compile(_CUDA)))
    if found is not None:
        checks += [_clusters(found.capability), _c_compiler()]
        checks.append(_guarded("run a kernel on the GPU", _run_on_gpu))
        if with_cuda:
            checks.append(_guarded("run a CUDA kernel on the GPU", lambda: _run_on_gpu(_CUDA)))
    else:
        checks.append(_guarded("run a kernel in the interpreter", _run_in_interpreter))
        if cpp_compiler() is not None:
            checks.append(_guarded("run a CUDA kernel on the CPU", _run_on_cpu))
    return checks


def _python() -> Check:
    found = sys.version.split()[0]
    return Check("python", sys.version_info >= (3, 11), found, "install Python 3.11 or later")


def _packages() -> Iterator[Check]:
    needs = (
        ("torch", "to run kernels", "pip install torch"),
        ("triton", "to compile kernels", "pip install triton"),
        ("numpy", "to verify", "pip install numpy"),
        ("egglog", "to search; a saved kernel runs without", "pip install -e '.[search]'"),
        ("islpy", "to verify; a saved kernel runs without", "pip install islpy"),
        ("lark", "to read specs; a saved kernel runs without", "pip install lark"),
    )
    for name, purpose, repair in needs:
        try:
            yield Check(name, True, version(name))
        except PackageNotFoundError:
            yield Check(name, False, f"not installed; it is needed {purpose}", repair)


def _cupy() -> Check:
    names = sorted(
        {
            str(d.metadata["Name"])
            for d in distributions()
            if str(d.metadata["Name"]).lower().startswith("cupy")
        }
    )
    if len(names) > 1:
        repair = f"pip uninstall {' '.join(names)}, then install the one that fits the driver"
        return Check("cupy", False, f"installed {len(names)} times: {', '.join(names)}", repair)
    return Check("cupy", True, names[0] if names else "not installed; only the CUDA back end asks")


def _cuda_tools() -> Iterator[Check]:
    """What the CUDA back end works with; without any of it Triton's kernels are all there is."""
    try:
        yield Check("CUDA compiler", True, str(cuda_compiler()))
    except MirageError as error:
        yield Check("CUDA compiler", True, f"none, so no CUDA kernels: {error.why}")
    toolkit = nvcc()
    yield Check("nvcc", True, f"{toolkit.version}, {toolkit.path}" if toolkit else "none")
    yield Check(
        "C++ compiler", True, cpp_compiler() or "none: CUDA kernels are not run without a GPU"
    )


def _clusters(capability: int) -> Check:
    known = "in hardware" if capability >= _CLUSTERS_FROM else f"sm_{capability} has none"
    return Check("thread-block clusters", True, known)


def _cache_folder() -> Check:
    try:
        folder = Settings.from_env().cache_dir
        write_text(folder / ".doctor", "")
        (folder / ".doctor").unlink()
    except MirageError as error:
        return Check("cache folder", False, error.what, error.repair)
    except OSError as error:
        return Check(
            "cache folder",
            False,
            f"cannot be written: {error}",
            "set MIRAGE_PY_CACHE_DIR to a folder of yours",
        )
    return Check("cache folder", True, str(folder))


def _gpu() -> Check:
    found, target = gpu(), detect_target()
    if found is None or target is None:
        return Check("GPU", True, "none: kernels are ranked by the cost model and not measured")
    detail = f"{found.name}, sm_{found.capability}, CUDA {found.cuda_version}, "
    detail += f"target {target.name}" + ("" if target.measured else " (rates estimated)")
    repair = "use a GPU of compute capability 8.0 or later"
    return Check("GPU", found.capability >= 80, detail, repair)


def _c_compiler() -> Check:
    names = [name for name in (os.environ.get("CC"), "gcc", "clang", "cc") if name]
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        repair = "install gcc; triton builds its launcher with it"
        return Check("C compiler", False, "none of gcc, clang, cc", repair)
    return Check("C compiler", True, found)


def _guarded(name: str, run: Callable[[], str]) -> Check:
    try:
        return Check(name, True, run())
    except Exception as error:  # noqa: BLE001
        # Whatever is broken here is what the user wants to read about.
        what = " ".join(str(error).split())[:300]
        repair = "check that torch, triton and the driver fit together"
        return Check(name, False, f"{type(error).__name__}: {what}", repair)


def _compiles_cuda() -> bool:
    try:
        cuda_compiler()
    except MirageError:
        return False
    return True


def _compile(backend: str = "triton") -> str:
    target = detect_target()
    capability = target.capability if target else 90
    (kernel,) = emit_kernels(_doubling_plan(backend))
    facts = compiled(kernel, capability)
    return f"sm_{capability}, {facts.cubin_bytes} bytes in {facts.seconds:.1f} s"


def _run_on_gpu(backend: str = "triton") -> str:
    import torch

    x = torch.arange(_POINTS, dtype=torch.float32, device="cuda")
    (y,) = PlanRunner(_doubling_plan(backend)).run_poisoned(x)
    if not torch.equal(y, x + x):
        raise ArithmeticError("the kernel ran, and its result is wrong")
    return "right"


def _run_in_interpreter() -> str:
    return _judged(lambda x: run_interpreted(_doubling_plan(), {"X": x})["Y"])


def _run_on_cpu() -> str:
    return _judged(lambda x: run_emulated(_doubling_plan(_CUDA), {"X": x})["Y"])


def _judged(run: Callable[[FloatArray], FloatArray]) -> str:
    x = np.arange(float(_POINTS))
    y = run(x)
    if not np.array_equal(y, x + x):
        raise ArithmeticError("the kernel ran, and its result is wrong")
    return "right"


def _doubling_plan(backend: str = "triton") -> Plan:
    """Y = X + X, with a tail."""
    builder = ProgramBuilder("doubling")
    builder.dim("i", _POINTS)
    builder.input("X", (_POINTS,), F32)
    x = builder.load("X", ("i",))
    builder.output("Y", builder.apply("add", x, x), ("i",), F32)
    index = (ix.dim("i"),)
    nodes = (
        Node("load", (), Access("X", index), ("i",)),
        Node("add", (0, 0), None, ("i",)),
        Node("store", (1,), Access("Y", index), ("i",)),
    )
    block = BlockGraph("doubling_kernel", (GridAxis("i", 64),), nodes, (Section((0, 1, 2)),))
    return Plan(UGraph(builder.build(), (block,)), (LaunchConfig(1),), backend)
