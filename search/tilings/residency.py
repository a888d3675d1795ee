"""L2 residency of the tensors that a kernel reads from or leaves to its neighbours."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mirage_py.targets import Target
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, UGraph
from mirage_py.ugraph.operators import EFFECT, operator

# Of the L2, what one tensor may take that is to survive there, and what may pass through it since.
_TENSOR_SHARE = 0.25
_TRAFFIC_SHARE = 0.75


def in_cache(ugraph: UGraph, target: Target) -> tuple[frozenset[str], ...]:
    """For each kernel the tensors whose traffic does not reach the device memory.

    An intermediate that is small never does: it is written and read before it is pushed out. A
    small tensor that an earlier kernel touched is still there if little went through since.
    """
    small = target.l2_bytes * _TENSOR_SHARE
    between = frozenset(t.name for t in ugraph.intermediates if t.bytes <= small)
    found: list[frozenset[str]] = []
    # Bytes that went through the cache since a tensor was last used.
    since: dict[str, float] = {}
    for kernel in ugraph.kernels:
        used = tensors_of(kernel)
        kept = (
            t
            for t in used
            if t in since
            and ugraph.tensors[t].bytes <= small
            and since[t] <= target.l2_bytes * _TRAFFIC_SHARE
        )
        found.append(between.intersection(used).union(kept))
        traffic = sum(ugraph.tensors[t].bytes for t in used)
        since = {t: size + traffic for t, size in since.items()}
        since.update(dict.fromkeys(used, 0.0))
    return tuple(found)


def moved_bytes(
    scope: Program, passes: Mapping[str, int], cached: Collection[str], target: Target
) -> int:
    """What a kernel moves to and from the device memory, that goes over each of its tensors so
    often. What it reads in several loops it reads as often if it is too large to stay in the L2
    from one to the next.
    """
    small = target.l2_bytes * _TENSOR_SHARE
    total = 0
    for name, times in passes.items():
        size = scope.tensors[name].bytes
        if name not in cached:
            total += size if size <= small else size * times
    return total


def passes_of(block: BlockGraph) -> dict[str, int]:
    """The tensors that a kernel reads or writes with the number of its sections that read each, or
    1 where none does.
    """
    readers: dict[str, set[int]] = {name: set() for name in tensors_of(block)}
    for number, node in block.loads():
        readers[node.access.tensor].add(block.section_of[number])
    return {name: max(1, len(sections)) for name, sections in readers.items()}


def tensors_of(kernel: Kernel) -> tuple[str, ...]:
    """Names of the tensors that a kernel reads or writes, each once."""
    if isinstance(kernel, LibraryCall):
        return tuple(dict.fromkeys((*kernel.args, kernel.result)))
    named = (
        n.access.tensor for n in kernel.nodes if n.op == "load" or operator(n.op).kind == EFFECT
    )
    return tuple(dict.fromkeys(named))
