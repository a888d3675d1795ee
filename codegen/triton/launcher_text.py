"""The part of an emitted launcher that reads sizes off tensors and computes the grid."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.triton.kernel import KernelText
from mirage_py.codegen.triton.tile_text import size_name
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph


def run_time_size_lines(ugraph: UGraph, pointers: Sequence[Tensor], text: KernelText) -> list[str]:
    """``s_size = Q.shape[2]`` for every size that the kernel takes, or that its grid needs."""
    names = [t.name for t in pointers]
    dims = [s.dim for s in text.scalars if s.dim]
    return [f"{size_name(dim)} = {_extent(ugraph, names, dim)}" for dim in dims]


def grid_text(ugraph: UGraph, text: KernelText) -> str:
    """The number of blocks, as a product of what each grid axis needs."""
    run_time = [s.dim for s in text.scalars if s.dim]
    fixed = 1
    factors = []
    for dim, tile in text.axes:
        if dim in run_time:
            size = size_name(dim)
            factors.append(size if tile == 1 else f"triton.cdiv({size}, {tile})")
        else:
            fixed *= -(-ugraph.program.sizes[dim] // tile)
    return " * ".join([*([str(fixed)] if fixed != 1 or not factors else []), *factors])


def _extent(ugraph: UGraph, names: Sequence[str], dim: str) -> str:
    """Where the launcher finds a size: an axis of a tensor that the kernel takes.

    Raises ScheduleError where no tensor of the kernel has the dimension as an axis of its own.
    """
    nodes = [n for k in ugraph.kernels if isinstance(k, BlockGraph) for n in k.nodes]
    for node in (*nodes, *ugraph.program.nodes):
        if not isinstance(node.attr, Access) or node.attr.tensor not in names:
            continue
        shape = ugraph.tensors[node.attr.tensor].shape
        for axis, expr in enumerate(node.attr.index):
            if expr.is_dim and expr.name == dim and shape[axis] == ugraph.program.sizes[dim]:
                return f"{node.attr.tensor}.shape[{axis}]"
    raise ScheduleError(
        f"no tensor of the kernel has '{dim}' as an axis",
        where=ugraph.program.name,
        why="its size is an argument, which the launcher reads off a tensor",
        repair="keep the size fixed",
    )
