"""Which back ends an optimisation tries, and their plans side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.errors import CompileError, InputError
from mirage_py.search.instance import Instance
from mirage_py.search.instantiate import rank
from mirage_py.targets import Target
from mirage_py.ugraph.ugraph import UGraph

AUTO = "auto"
BACKENDS = ("triton", "cuda")


def backends_of(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The back ends that ``--backend`` means here, and notes on what is left out and why.

    ``auto`` is both, or Triton alone where nothing compiles CUDA kernels. Raises InputError for
    another name.
    """
    if name in BACKENDS:
        return (name,), ()
    if name != AUTO:
        raise InputError(f"unknown back end '{name}'", repair="use auto, triton or cuda")
    from mirage_py.runtime.cuda_compiler import cuda_compiler

    try:
        cuda_compiler()
    except CompileError as error:
        note = f"no CUDA kernels are among the candidates: {error.what}"
        return ("triton",), (f"{note}; {error.repair}" if error.repair else note,)
    return BACKENDS, ()


def rank_for(
    backends: Sequence[str], families: Sequence[UGraph], target: Target, limit: int
) -> list[Instance]:
    """The best instances for each back end, best first by the cost model; of ``limit`` plans each
    has the same share.
    """
    share = limit // len(backends)
    found = [i for backend in backends for i in _ranked(backend, families, target, share)]
    return sorted(found, key=lambda i: i.estimate.time_us)


def _ranked(backend: str, families: Sequence[UGraph], target: Target, limit: int) -> list[Instance]:
    ranked = rank(families, target, limit)
    if backend == "triton":
        return ranked
    return [replace(i, plan=replace(i.plan, backend=backend)) for i in ranked]
