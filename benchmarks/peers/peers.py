"""The peers: eager PyTorch, torch.compile, and the vendor's libraries."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from benchmarks.workloads.workload import Workload
from mirage_py.errors import InputError

Call = Callable[..., Any]

PEER_NAMES = (
    "eager",
    "compile",
    "compile_max_autotune",
    "cublas",
    "cublas_concat",
    "cublas_linear",
    "sdpa_flash",
    "sdpa_cudnn",
    "sdpa_efficient",
    "sdpa_flash_gqa",
    "sdpa_cudnn_gqa",
    "flash_window",
    "flex",
)


def peers(workload: Workload, names: Collection[str] | None = None) -> dict[str, Call]:
    """Named functions of the workload's inputs, those of ``names`` that there are for it.

    The first call of a peer compiles it, and its first call on a set of inputs makes the layouts it
    likes: neither is to be timed. One that cannot run here raises at its first call. Raises
    InputError for a name that no workload has.
    """
    if unknown := [name for name in names or () if name not in PEER_NAMES]:
        raise InputError(
            f"unknown peer {', '.join(unknown)}", repair=f"use {', '.join(PEER_NAMES)}"
        )
    from benchmarks.peers.compiled import compiled
    from benchmarks.peers.library_attention import attention_peers
    from benchmarks.peers.library_matmul import matmul_peers

    function = workload.torch_function()
    found: dict[str, Call] = {
        "eager": function,
        "compile": compiled(function),
        # Without CUDA graphs of its own: the timing puts every entry in one.
        "compile_max_autotune": compiled(function, mode="max-autotune-no-cudagraphs"),
        **matmul_peers(workload.program_name),
        **attention_peers(workload.program_name),
    }
    return {n: found[n] for n in PEER_NAMES if n in found and (names is None or n in names)}
