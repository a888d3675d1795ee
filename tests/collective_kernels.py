"""Small CUDA kernels, each for one thing that threads do together, with their results in NumPy.

``from collective_kernels import KERNELS``. They run in the CPU stand-in; a script can run the same on a
GPU: ``Collective.source`` compiles alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage_py.codegen.cuda.cuda_kernel import CudaKernel, TensorMap
from mirage_py.codegen.cuda.prelude import names_used, prelude_text
from mirage_py.ugraph.dtypes import BF16, F16, F32, DType
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.program import Output, Program, Tensor

Arrays = Mapping[str, NDArray[np.float64]]

TYPES = {"f16": F16, "bf16": BF16, "f32": F32}


@dataclass(frozen=True)
class Collective:
    """A kernel, the program it stands for and what it makes of its inputs."""

    kernel: CudaKernel
    program: Program
    expected: Callable[[Arrays], NDArray[np.float64]]
    tolerance: float = 0.0


def collective(
    name: str,
    code: str,
    inputs: Mapping[str, tuple[tuple[int, ...], DType]],
    output: tuple[tuple[int, ...], DType],
    expected: Callable[[Arrays], NDArray[np.float64]] = lambda a: np.zeros(0),
    *,
    threads: int = 32,
    grid: int = 1,
    cluster: int = 1,
    smem_bytes: int = 1 << 15,
    maps: tuple[TensorMap, ...] = (),
    capability: int = 80,
    tolerance: float = 0.0,
) -> Collective:
    """``code`` is the inside of a kernel with pointers of the inputs' names and ``Y``."""
    tensors = [Tensor(n, shape, dtype) for n, (shape, dtype) in inputs.items()]
    y = Tensor("Y", *output)
    c_names = {"f32": "float", "f16": "unsigned short", "bf16": "unsigned short"}
    parameters = [f"const {c_names[t.dtype.name]}* {t.name}" for t in tensors]
    parameters.append(f"{c_names[y.dtype.name]}* Y")
    parameters += [f"const __grid_constant__ TensorMap {m.name}" for m in maps]
    dims = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    body = f"""\
extern "C" __global__ void {dims}__launch_bounds__({threads}) {name}({", ".join(parameters)}) {{
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
{code}
}}
"""
    used = prelude_text(names_used(body))
    kernel = CudaKernel(
        name, f"{used}\n\n{body}", body, (*tensors, y), maps, grid, cluster, threads, smem_bytes,
        capability, LaunchOptions(),
    )  # fmt: skip
    program = Program(name, (), tuple(tensors), (), (Output(y, 0, ()),))
    return Collective(kernel, program, expected, tolerance)


def inputs_of(case: Collective) -> dict[str, NDArray[np.float64]]:
    """Small whole numbers: sums of their products are exact."""
    rng = np.random.default_rng(1)
    return {t.name: rng.integers(-4, 5, t.shape).astype(float) for t in case.program.inputs}
