"""The program of a fused convolution of single channels, or of a pool: a sum or maximum over its
window, with what stands around it.

Tensors are as kernels of networks have them: image, residual and result with channels last, of
slices the whole tensor, and the weight as [*window, channels]; or planar, and the weight as
[channels, *window].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.errors import ScheduleError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.building.named_array import NamedArray
from mirage_py.ugraph.building.windows import Window, windows
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.convolution import FusedConvolution, WindowTiles
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, UGraph

NAME = "convolution_over_windows"
_TYPES = {"bf16": BF16, "f16": F16}
_SPACE = "dij"


def window_plan(spec: FusedConvolution, tiles: WindowTiles) -> Plan:
    """The kernel with these tiles. Raises ScheduleError where it is none over windows."""
    program = window_program(spec)
    grid = tuple(GridAxis(d, tile) for d, tile in tiles.grid)
    block = replace(window_block(program), grid=grid)
    return Plan(UGraph(program, (block,)), (LaunchConfig(num_warps=tiles.num_warps),), "cuda")


def window_block(program: Program) -> BlockGraph:
    """The program as one kernel, all dimensions of its result in the grid."""
    block = BlockGraph.whole(program.name, program.nodes, program.outputs, program.dim_names)
    dims = [d for e in program.outputs[0].index for d in e.dims()]
    return replace(block, grid=tuple(GridAxis(d) for d in reversed(dims)))


def window_program(spec: FusedConvolution) -> Program:
    """The program, its inputs ``x``, ``w``, ``bias``, ``residual`` as far as there are any; of its
    dimensions those of one element are left out.
    """
    if not spec.is_depthwise or spec.gelu_after or spec.dtype not in _TYPES:
        why = "channels of the result are sums over several of the image, or no halves"
        raise ScheduleError(f"no kernel over windows: {why}")
    b, kind = ProgramBuilder(NAME), _TYPES[spec.dtype]
    counts = dict(zip(_SPACE[-len(spec.space) :], spec.out_space, strict=True))
    sample, channel = _dims(b, {"n": spec.batch}), _dims(b, {"c": spec.results})
    places = _dims(b, counts)

    def stored(
        name: str, along: Sequence[IndexExpr], space: Sequence[int], wide: int, first: int
    ) -> int:
        """A tensor of samples, places and ``wide`` channels, of which ours begin at ``first``."""
        inner = [c + first for c in channel]
        shape = (spec.batch, wide, *space) if spec.is_planar else (spec.batch, *space, wide)
        index = [*sample, *inner, *along] if spec.is_planar else [*sample, *along, *inner]
        b.input(name, shape, kind)
        return b.load(name, index)

    rows = _dims(b, {f"{d}_in": n for d, n in zip(counts, spec.space, strict=True)})
    image = stored("x", rows, spec.space, spec.apart, spec.offset)
    axes = tuple(e.dims() for e in (*sample, *channel, *rows))
    sliding = zip(spec.window, spec.out_space, *spec.sliding, strict=True)
    along = {
        2 + axis: Window(extent, count, stride, padding, dilation)
        for axis, (extent, count, stride, padding, dilation) in enumerate(sliding)
    }
    fill = F32.lowest if spec.pool == "max" else 0.0
    read, _ = windows(b, NamedArray(image, axes), along, fill)
    # ``windows`` names the places anew: they are those of the result.
    renamed = {
        d: place
        for axis, place in zip(read.axes[2 : 2 + len(places)], places, strict=True)
        for d in axis
    }
    value = b.substitute(read.node, renamed)
    inside = [d for axis in read.axes[2 + len(places) :] for d in axis]
    if spec.relu_before:
        value = b.apply("relu", value)
    if not spec.pool:
        taps = [ix.dim(a[0]) if a else ix.const(0) for a in read.axes[2 + len(places) :]]
        b.input("w", weight_shape(spec), kind)
        at = [*channel, *taps] if spec.is_planar else [*taps, *channel]
        value = b.apply("mul", value, b.load("w", at))
    value = b.max(value, inside) if spec.pool == "max" else b.sum(value, inside)
    if spec.pool == "mean":
        value = b.apply("div", value, b.const(float(spec.taps)))
    if spec.has_bias:
        b.input("bias", (spec.results,), kind)
        value = b.apply("add", value, b.load("bias", channel))
    if spec.has_residual:
        whole = (spec.out_space, spec.residual_apart, spec.residual_offset)
        value = b.apply("add", value, stored("residual", places, *whole))
    if spec.relu_after:
        value = b.apply("relu", value)
    result = [*sample, *channel, *places] if spec.is_planar else [*sample, *places, *channel]
    b.output("y", value, result, kind)
    return b.build()


def weight_shape(spec: FusedConvolution) -> tuple[int, ...]:
    """The shape of the weight that the kernel reads."""
    return (spec.results, *spec.window) if spec.is_planar else (*spec.window, spec.results)


def _dims(b: ProgramBuilder, sizes: dict[str, int]) -> list[IndexExpr]:
    return [ix.dim(b.dim(d, n)) if n > 1 else ix.const(0) for d, n in sizes.items()]
