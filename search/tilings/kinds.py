"""Kinds of µGraphs, between which the model's predictions alone do not decide."""

from __future__ import annotations

from mirage_py.search.extract.family import ATOMIC, CLUSTER, LIBRARY, ONE_KERNEL, SPLIT
from mirage_py.search.space.splits import split_dims
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.rewrite.split_dim import splits_of

__all__ = [
    "ATOMIC",
    "CHAIN",
    "CLUSTER",
    "LIBRARY",
    "ONE_KERNEL",
    "SPLIT",
    "describe",
    "has_loops",
    "kind_of",
]

# Two kernels of a family, and three where an operand is precomputed.
CHAIN = "several kernels"


def kind_of(ugraph: UGraph) -> str:
    """The kind: one block graph; kernels with a split reduction, or blocks that add into one
    tensor, or that combine splits in clusters; library calls among the kernels; or other kernels
    one after the other.
    """
    if any(isinstance(k, LibraryCall) for k in ugraph.kernels):
        return LIBRARY
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    if any(n.op == "store_add" for block in blocks for n in block.nodes):
        return ATOMIC
    if any(block.cluster_dims for block in blocks):
        return CLUSTER
    if len(blocks) == 1:
        return ONE_KERNEL
    return SPLIT if split_dims(ugraph.program) else CHAIN


def describe(ugraph: UGraph) -> str:
    """The kind in words, with splits, library calls and kernels: ``split s x8: 2 kernels``,
    ``library x3: 4 kernels``.
    """
    words = [f"split {d} x{splits_of(ugraph.program, d)}" for d in split_dims(ugraph.program)]
    kind = kind_of(ugraph)
    if kind in (ATOMIC, LIBRARY, CLUSTER):
        calls = sum(isinstance(k, LibraryCall) for k in ugraph.kernels)
        words.append(f"{kind} x{calls}" if calls > 1 else kind)
    kernels = f"{len(ugraph.kernels)} kernels" if len(ugraph.kernels) != 1 else ONE_KERNEL
    return f"{', '.join(words)}: {kernels}" if words else kernels


def has_loops(ugraph: UGraph) -> bool:
    """Whether a kernel of ours has a loop."""
    return any(isinstance(k, BlockGraph) and k.has_loops for k in ugraph.kernels)
