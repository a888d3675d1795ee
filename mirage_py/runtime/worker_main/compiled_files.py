"""Compilation for another machine: replies include the entries of the compilers' caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirage_py.runtime.compile.cache_files import Files, packed
from mirage_py.runtime.process.worker_process import Task
from mirage_py.runtime.worker_main.worker import compile_cuda_kernels, compile_plan


def compile(task: Task) -> dict[str, Any]:  # noqa: A001  named as the service that it stands for
    """Compile Triton kernels: ``facts``, and the files by the hash of each compilation."""
    from mirage_py.runtime.compile.compile import KernelSource, compiled_handle

    facts = compile_plan(task)
    files: dict[str, Files] = {}
    for kernel in task["kernels"]:
        source = KernelSource(**{**kernel, "pointer_types": tuple(kernel["pointer_types"])})
        made = compiled_handle(source, int(task["capability"]))
        files[made.metadata.hash] = {n: packed(Path(p)) for n, p in made.metadata_group.items()}
    return {"facts": facts, "triton": files}


def compile_cuda(task: Task) -> dict[str, Any]:
    """Compile CUDA kernels: ``facts``, and the files of their machine code."""
    from mirage_py.runtime.compile.compile_cuda import CudaSource, cubin_path
    from mirage_py.runtime.compile.cuda_compiler import cuda_compiler

    facts = compile_cuda_kernels(task)
    files: Files = {}
    for kernel in task["kernels"]:
        path = cubin_path(CudaSource(**kernel), int(task["capability"]), cuda_compiler())
        # The one that is read first is written last.
        files |= {p.name: packed(p) for p in (path, path.with_suffix(".json"))}
    return {"facts": facts, "cubins": files}
