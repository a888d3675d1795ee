"""Short names of µGraphs and plans for reports: what kind of kernels, with which tiles."""

from __future__ import annotations

from mirage_py.ugraph.plan import LaunchOptions, Plan
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.rewrite.split_dim import part_dim
from mirage_py.ugraph.ugraph import BlockGraph, Kernel, LibraryCall, UGraph

# In the order in which a report lists them; what is not here comes between.
ONE_KERNEL, SPLIT, LIBRARY = "one kernel", "split", "library"


def kind_of(ugraph: UGraph, program: Program) -> str:
    """``library`` if a vendor's kernel takes part, ``split`` if blocks share out a reduction of
    ``program``, else how many kernels there are.
    """
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    if len(blocks) < len(ugraph.kernels):
        return LIBRARY
    new = [d for d in ugraph.program.dim_names if d not in program.sizes]
    is_split = any(part_dim(d) in new for d in program.dim_names)
    if is_split or any(n.op == "store_add" for block in blocks for n in block.nodes):
        return SPLIT
    count = len(blocks)
    return {1: ONE_KERNEL, 2: "two kernels", 3: "three kernels"}.get(count, f"{count} kernels")


def tiles_of(plan: Plan) -> str:
    """The tiles and launch options of a plan in one line, its kernels parted by ``|``."""
    pairs = zip(plan.ugraph.kernels, plan.options, strict=True)
    return " | ".join(_kernel_tiles(kernel, options) for kernel, options in pairs)


def _kernel_tiles(kernel: Kernel, options: LaunchOptions) -> str:
    if isinstance(kernel, LibraryCall):
        return f"library {kernel.op}"
    axes = ", ".join(f"{axis.dim} by {axis.tile}" for axis in kernel.grid)
    loops = [f"loop {s.loop} by {s.tile}" for s in kernel.sections if s.loop is not None]
    parts = [f"grid {axes}" if axes else "one block", *loops]
    parts.append(f"{options.num_warps} warps" if options.num_warps > 1 else "1 warp")
    if options.num_stages:
        parts.append(f"stages {', '.join(map(str, options.num_stages))}")
    # How neighbouring loads use the cache tells two plans apart only where nothing else does.
    parts += [f"{name} {value}" for name, value in options.flags if ":" not in name]
    return "; ".join(parts)
