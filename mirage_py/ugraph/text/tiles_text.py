"""The tiles and launch options of a plan in one line, for reports."""

from __future__ import annotations

from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import Kernel, LibraryCall
from mirage_py.ugraph.text.printing import format_grid


def tiles_of(plan: Plan) -> str:
    """``grid b by 16; loop d by 128; 4 warps; stages 3``, the kernels parted by ``|``."""
    pairs = zip(plan.ugraph.kernels, plan.options, strict=True)
    return " | ".join(_kernel_tiles(kernel, options) for kernel, options in pairs)


def _kernel_tiles(kernel: Kernel, options: LaunchConfig) -> str:
    if isinstance(kernel, LibraryCall):
        return f"{kernel.op} {kernel.name}" if kernel.body else f"library {kernel.op}"
    axes = format_grid(kernel)
    loops = [f"loop {s.loop} by {s.tile}" for s in kernel.sections if s.loop is not None]
    parts = [f"grid {axes}" if axes else "one block", *loops]
    parts.append(f"{options.num_warps} warps" if options.num_warps > 1 else "1 warp")
    if options.num_stages:
        alike = len(dict.fromkeys(options.num_stages)) == 1
        shown = options.num_stages[:1] if alike else options.num_stages
        parts.append(f"stages {', '.join(map(str, shown))}")
    # How neighbouring loads use the cache tells two plans apart only where nothing else does.
    parts += [f"{name} {value}" for name, value in options.flags if ":" not in name]
    return "; ".join(parts)
