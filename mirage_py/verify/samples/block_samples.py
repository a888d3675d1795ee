"""Selection of the blocks of a µGraph to compare with its program, and the points they complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.evaluate.work import peak_elements, program_work
from mirage_py.verify.samples.sampled_blocks import Need, blocks_needed, sampled_work
from mirage_py.verify.samples.sampled_library import Interval, Part

# Elements of one array of 64-bit integers: 512 MiB.
_MAX_ELEMENTS = 1 << 26
# Elements of one tensor that numpy can still lay out; few pages of it are touched.
_MAX_LAID_OUT = 1 << 46
LAID_OUT = "a sample lays out what kernels write as a whole, which is larger than the memory"
# Of what a library call writes, along each axis.
_WINDOW = 16

# Of a dimension, its size and the tile: the number of the tile to take.
Choice = Callable[[str, int, int], int]


def numbered(number: int, draw: np.random.Generator) -> Choice:
    """The first tile, the last, then any."""

    def choose(dim: str, size: int, tile: int) -> int:
        del dim
        tiles = -(-size // tile)
        return {0: 0, 1: tiles - 1}.get(number, int(draw.integers(tiles)))

    return choose


def holding(point: Mapping[str, int], draw: np.random.Generator) -> Choice:
    """The tile that holds a point; any along dimensions that it does not name."""

    def choose(dim: str, size: int, tile: int) -> int:
        return point[dim] // tile if dim in point else int(draw.integers(-(-size // tile)))

    return choose


@dataclass(frozen=True, slots=True)
class Sample:
    """Blocks to run, the outputs that they complete, and where."""

    needs: Mapping[int, Need]
    program: Program
    points: Mapping[str, tuple[int, int]]


def sample_of(program: Program, ugraph: UGraph, target: int, choose: Choice) -> Sample | None:
    """Blocks of one kernel; None if it writes no output."""
    kernel = ugraph.kernels[target]
    if not isinstance(kernel, BlockGraph):
        found = _library_part(program, kernel.result, choose)
        if found is None:
            return None
        output, part, window = found
        return Sample(blocks_needed(ugraph, target, part), _only(program, [output]), window)
    stores = {n.access.tensor: n for _, n in kernel.stores()}
    outputs = [o for o in program.outputs if o.tensor.name in stores]
    if not outputs:
        return None
    starts: dict[str, list[int]] = {}
    points: dict[str, tuple[int, int]] = {}
    for axis in kernel.split_axes:
        size, tile = program.sizes[axis.dim], axis.tile or 1
        written = [stores[o.tensor.name] for o in outputs]
        first_only = [axis.dim in kernel.predicated_axes(n) for n in written]
        # Blocks along an axis that does not place the results have to run together.
        if not all(
            first or _places(o, n.access.index, axis.dim)
            for o, n, first in zip(outputs, written, first_only, strict=True)
        ):
            continue
        chosen = choose(axis.dim, size, tile)
        starts[axis.dim] = sorted({chosen * tile, 0} if any(first_only) else {chosen * tile})
        points[axis.dim] = (chosen * tile, min((chosen + 1) * tile, size))
    return Sample(blocks_needed(ugraph, target, starts), _only(program, outputs), points)


def _library_part(
    program: Program, result: str, choose: Choice
) -> tuple[Output, Part, dict[str, tuple[int, int]]] | None:
    """A window of what a library call writes, and its points; None if that is no output."""
    for output in program.outputs:
        if output.tensor.name != result:
            continue
        part: list[Interval] = []
        points: dict[str, tuple[int, int]] = {}
        for expr in output.index:
            window: Interval = None
            if expr.is_dim:
                size = program.sizes[expr.name]
                start = choose(expr.name, size, _WINDOW) * _WINDOW
                window = points[expr.name] = (start, min(start + _WINDOW, size))
            part.append(window)
        return output, tuple(part), points
    return None


def _places(output: Output, stored: tuple[object, ...], dim: str) -> bool:
    """Whether program and kernel write the output by the same indices, and these name ``dim``."""
    return output.index == stored and any(dim in e.dims() for e in output.index)


def _only(program: Program, outputs: list[Output]) -> Program:
    return replace(program, outputs=tuple(outputs))


def work_of(ugraph: UGraph, sample: Sample) -> float:
    """Of running the blocks and evaluating the program there, in element operations."""
    return sampled_work(ugraph, sample.needs) + program_work(sample.program, _extents(sample))


def too_large(ugraph: UGraph, sample: Sample, max_work: float) -> str:
    """Why a sample would take too much; empty if it does not."""
    if any(prod(tensor.shape) > _MAX_LAID_OUT for tensor in ugraph.tensors.values()):
        return LAID_OUT
    work, peak = work_of(ugraph, sample), peak_elements(sample.program, _extents(sample))
    if work <= max_work and peak <= _MAX_ELEMENTS:
        return ""
    return (
        f"a sample at the real sizes takes {work:.1e} operations (at most {max_work:.1e}) and "
        f"arrays of {peak:.1e} elements (at most {_MAX_ELEMENTS:.1e})"
    )


def _extents(sample: Sample) -> dict[str, int]:
    return {d: stop - start for d, (start, stop) in sample.points.items()}
