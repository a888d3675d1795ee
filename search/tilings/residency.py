"""L2 residency of the tensors that a kernel reads from or leaves to its neighbours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod

from mirage_py.targets import Target
from mirage_py.ugraph.ir.node import ACCESSES, Access
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, UGraph
from mirage_py.ugraph.operators import EFFECT, operator

# Of the L2, what one tensor may take that is to survive there, and what may pass through it since.
_TENSOR_SHARE = 0.25
_TRAFFIC_SHARE = 0.75
# What crosses the bus for one element out of line.
SECTOR_BYTES = 32


def survives_bytes(target: Target) -> float:
    """How large a tensor may be that stays in the L2 from one use to the next."""
    return target.l2_bytes * _TENSOR_SHARE


def in_cache(ugraph: UGraph, target: Target) -> tuple[frozenset[str], ...]:
    """For each kernel the tensors whose traffic does not reach the device memory.

    An intermediate that is small never does: it is written and read before it is pushed out. A
    small tensor that an earlier kernel touched is still there if little went through since.
    """
    small = survives_bytes(target)
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
    touched: Mapping[str, int],
    passes: Mapping[str, int],
    cached: Collection[str],
    target: Target,
    at_once: float = 1.0,
) -> int:
    """What a kernel moves to and from the device memory, that goes over what it has ``touched`` of
    each of its tensors so often. What it reads in several loops it reads as often, unless it stays
    in the L2 from one to the next: it is small, or what passes through the L2 meanwhile is little,
    as this share of the blocks runs ``at_once``.
    """
    most = max(passes.values(), default=1)
    meanwhile = at_once * sum(n * passes.get(t, 1) for t, n in touched.items()) / most
    stays = meanwhile <= target.l2_bytes * _TRAFFIC_SHARE
    small = survives_bytes(target)
    total = 0
    for name, size in touched.items():
        if name not in cached:
            total += size if size <= small or stays else size * passes.get(name, 1)
    return total


def touched_bytes(
    scope: Program, accesses: Iterable[Access], sector_bytes: int = SECTOR_BYTES
) -> dict[str, int]:
    """Bytes of each tensor that accesses read or write, at most all of it: a look-up of one element
    in each row moves a sector of the row.
    """
    found: dict[str, int] = {}
    for access in set(accesses):
        tensor = scope.tensors[access.tensor]
        points = prod(scope.sizes[d] for d in access.dims())
        each = tensor.dtype.bytes
        if not _is_run(access, tensor):
            each = max(each, sector_bytes)
        found[access.tensor] = min(tensor.bytes, found.get(access.tensor, 0) + points * each)
    return found


def _is_run(access: Access, tensor: Tensor) -> bool:
    """Whether elements lie side by side."""
    axes = zip(access.index, tensor.element_strides, tensor.shape, strict=True)
    return any(
        stride == 1 and extent > 1 and e.dims() and not e.tensors() for e, stride, extent in axes
    )


def accesses_of(block: BlockGraph) -> Iterable[Access]:
    """Those of its loads and stores."""
    return (n.access for n in block.nodes if n.op in ACCESSES and n.op != "read")


def passes_of(block: BlockGraph) -> dict[str, int]:
    """The tensors that a kernel reads with the number of its sections that read each."""
    readers: dict[str, set[int]] = {}
    for number, node in block.loads():
        readers.setdefault(node.access.tensor, set()).add(block.section_of[number])
    return {name: len(sections) for name, sections in readers.items()}


def tensors_of(kernel: Kernel) -> tuple[str, ...]:
    """Names of the tensors that a kernel reads or writes, each once."""
    if isinstance(kernel, LibraryCall):
        return tuple(dict.fromkeys((*kernel.args, *kernel.written_tensors)))
    named = (
        n.access.tensor for n in kernel.nodes if n.op == "load" or operator(n.op).kind == EFFECT
    )
    return tuple(dict.fromkeys(named))
