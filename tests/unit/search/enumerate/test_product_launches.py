"""Launch options of large matmuls: descriptors in Triton and warps in CUDA come first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.search import programs

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.model.launches import BackEnd, launch_options
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis


@pytest.mark.parametrize(("name", "on", "fetched"), [
    ("gated_mlp", "h200", True), ("gated_mlp", "a100", False), ("rmsnorm_matmul", "h200", False),
])  # fmt: skip
def test_in_triton_tiles_that_several_products_read_are_fetched_by_descriptors_too(
    name: str, on: str, fetched: bool
) -> None:
    options = options_of(name, on, "triton", rows=128)
    assert any(o.descriptors for o in options) == fetched
    assert all(o.num_warps >= 4 for o in options if o.descriptors)


@pytest.mark.parametrize(("rows", "first"), [(128, 8), (64, 4)])
def test_in_cuda_rows_for_two_warp_groups_are_shared_by_two_first(rows: int, first: int) -> None:
    assert options_of("gated_mlp", "h200", "cuda", rows)[0].num_warps == first


def options_of(name: str, on: str, backend: BackEnd, rows: int) -> list[LaunchConfig]:
    """Those of a kernel with a loop over the inner positions."""
    program = programs.PROGRAMS[name](b=256)
    found = search(program, limits=SearchLimits(rings=("factored",), max_kernels=1)).families
    family = next(f.ugraph for f in found if any(s.loop for s in f.ugraph.kernels[0].sections))
    (kernel,) = family.kernels
    assert isinstance(kernel, BlockGraph)
    tiles = {"b": rows, "n": 128}
    block = replace(
        kernel,
        grid=tuple(GridAxis(a.dim, tiles[a.dim]) for a in kernel.grid),
        sections=tuple(replace(s, tile=64) if s.loop else s for s in kernel.sections),
    )
    tiled = TiledKernel(Tiling(program, block))
    return list(launch_options(tiled, backend, target(on)))
