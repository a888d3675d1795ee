"""Kernels over windows: each thread computes several neighbouring results, without shared memory
or barriers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mirage_py.codegen.cuda.epilogue.stores import NEXT_MAY_START
from mirage_py.codegen.cuda.text.c_text import C_TYPES
from mirage_py.codegen.cuda.windows.order import Schedule, schedule
from mirage_py.codegen.cuda.windows.shares import Shares, window_shares
from mirage_py.codegen.cuda.windows.unrolled import share_counts, unrolled
from mirage_py.codegen.cuda.windows.window_text import WindowText
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.block_order import block_numbers
from mirage_py.codegen.tiling.dependent_launch import LaunchOrder
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph

_MAX_INT32 = (1 << 31) - 1


@dataclass(frozen=True)
class WindowKernel:
    """A typed block graph over windows with its tiles shared out among threads."""

    program: Program
    typed: TypedBlock
    tensors: Mapping[str, Tensor]
    options: LaunchConfig
    order: LaunchOrder
    shares: Shares

    @property
    def block(self) -> BlockGraph:
        """What each block does."""
        return self.typed.block

    @cached_property
    def pointers(self) -> tuple[str, ...]:
        """The tensors it reads and writes."""
        return tuple(dict.fromkeys((*self.block.read_tensors, *self.block.written_tensors)))

    @cached_property
    def grid(self) -> int:
        """The number of blocks."""
        return Tiling(self.program, self.block).grid_blocks

    @cached_property
    def steps(self) -> Schedule:
        """What each thread does, in order."""
        return thread_steps(
            self.block, self.typed.dtypes, self.program.sizes, self.tensors, self.shares
        )

    def parameters(self) -> list[str]:
        """The kernel's parameters."""
        found = []
        for name in self.pointers:
            const = "" if name in self.block.written_tensors else "const "
            found.append(f"{const}{C_TYPES[self.tensors[name].dtype.name]}* __restrict__ {name}")
        return found

    def lines(self) -> list[str]:
        """The kernel's body."""
        found = []
        if self.order.triggers_next and not self.order.is_chained:
            found.append(NEXT_MAY_START)
        if self.order.uses_pdl:
            read = ", ".join(self.block.read_tensors)
            found.append(f"wait_for_kernel_before({read});")
        if self.order.triggers_next and self.order.is_chained:
            found.append(NEXT_MAY_START)
        taken = [*self.program.dim_names, *self.tensors, self.block.name, "lane", "warp"]
        is_wide = any(self.tensors[t].last_offset > _MAX_INT32 for t in self.pointers)
        dims = {d: d for d in self.shares.dims}
        text = WindowText(self.steps, self.tensors, dims, taken, is_wide=is_wide)
        found += self._places(text)
        return found + text.run()

    def _places(self, text: WindowText) -> list[str]:
        """The place of a thread along each dimension, in shares; those behind the last one end."""
        axes = Tiling(self.program, self.block).axes
        blocks = block_numbers(axes, self.options.block_order)
        counts = share_counts(self.program.sizes, self.shares)
        found, step, past = [], 1, []
        for dim, threads in self.shares.threads.items():
            number = blocks.get(dim, "0").replace("//", "/").replace("pid", "(int)blockIdx.x")
            inner = "(int)threadIdx.x" if step == 1 else f"(int)threadIdx.x / {step}"
            inner = f"({inner}) % {threads}" if threads > 1 else "0"
            at = f"({number}) * {threads} + {inner}" if threads > 1 else number
            found.append(f"const int {dim} = {at};")
            step *= threads
            if counts[dim] % threads:
                past.append(f"{dim} >= {counts[dim]}")
        del text
        return [*found, *([f"if ({' || '.join(past)}) return;"] if past else [])]


def thread_steps(
    block: BlockGraph,
    dtypes: Sequence[DType],
    sizes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    shares: Shares,
) -> Schedule:
    """What one thread of a kernel over windows reads and computes, in order."""
    graph = unrolled(block, dtypes, sizes, tensors, shares)
    windowed = [
        n.access.tensor
        for _, n in block.loads()
        if any(d in shares.window for d in n.dims)
        and any(d in shares.threads for d in n.dims)
        and any(
            any(d in shares.window for d in e.dims()) and any(d in shares.threads for d in e.dims())
            for e in n.access.index
        )
    ]
    return schedule(graph, tensors, windowed)


def window_kernel(
    program: Program,
    typed: TypedBlock,
    tensors: Mapping[str, Tensor],
    options: LaunchConfig,
    order: LaunchOrder,
) -> WindowKernel | None:
    """The kernel over windows that a block graph is; None for any other."""
    block = replace(typed.block)
    shares = window_shares(block, program.sizes, tensors, options.num_warps)
    if shares is None:
        return None
    return WindowKernel(program, typed, tensors, options, order, shares)
