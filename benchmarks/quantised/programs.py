"""Quantised products at 4096 x 14336, and their plans with given tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import search
from mirage_py.search.model.launches import BackEnd
from mirage_py.ugraph.ir.launch_choices import Arch, NextStart
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan, chained
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

COLUMNS, OUTPUTS, GROUP, MX_GROUP = 4096, 14336, 128, 32
# The count of rows that families are searched for.
_ROWS = 16
_SIZES = "B = 16, K = 4096, N = 14336, J = 2048\n"
_GROUPS = "B = 16, G = 32, R = 128, J = 64, N = 14336\n"
_CODE = "(where(c < 1, bit_and(W[n, {0}], 15), shift_right(W[n, {0}], 4)) - 8)"
_SPECS = {
    "bf16": f"{_SIZES}X[B, K], W[N, K] : bf16\nY[b, n] : bf16 = sum[k](X[b, k] * W[n, k])",
    "int8": f"{_SIZES}X[B, K], S[N] : bf16, W[N, K] : i8\n"
    "Y[b, n] : bf16 = sum[k](X[b, k] * W[n, k]) * S[n]",
    "fp8": f"{_SIZES}X[B, K], S[N] : bf16, W[N, K] : f8e4m3\n"
    "Y[b, n] : bf16 = sum[k](X[b, k] * W[n, k]) * S[n]",
    "int4": f"{_SIZES}X[B, 2 * J], S[N] : bf16, W[N, J] : u8\nindex c < 2\n"
    f"Y[b, n] : bf16 = sum[j, c](X[b, 2 * j + c] * {_CODE.format('j')}) * S[n]",
    "int8_groups": f"{_GROUPS}X[B, G * R], S[N, G] : bf16, W[N, G * R] : i8\nindex r < R\n"
    "Y[b, n] : bf16 = sum[g, r](X[b, g * 128 + r] * W[n, g * 128 + r] * S[n, g])",
    "int4_groups": f"{_GROUPS}X[B, 2 * G * J], S[N, G] : bf16, W[N, G * J] : u8\n"
    "index j < J, c < 2\nY[b, n] : bf16 = "
    f"sum[g, j, c](X[b, 128 * g + 2 * j + c] * {_CODE.format('64 * g + j')} * S[n, g])",
    "mxfp4": "B = 16, G = 128, J = 16, N = 14336\n"
    "X[B, 2 * G * J] : bf16, W[N, G * J], S[N, G] : u8\nindex j < J, c < 2\n"
    "let value[n, g, j, c] = "
    "e2m1(where(c < 1, bit_and(W[n, 16 * g + j], 15), shift_right(W[n, 16 * g + j], 4)))\n"
    "Y[b, n] : bf16 = sum[g, j, c]"
    "(X[b, 32 * g + 2 * j + c] * value[n, g, j, c] * exp2(S[n, g] - 127))",
}
NAMES = tuple(_SPECS)
# What each loops over, and what its product sums over in an iteration.
_LOOPS = {
    "bf16": ("k", ("k",)),
    "int8": ("k", ("k",)),
    "int4": ("j", ("j", "c")),
    "int8_groups": ("g", ("g", "r")),
    "int4_groups": ("g", ("g", "j", "c")),
    "mxfp4": ("g", ("g", "j", "c")),
    "fp8": ("k", ("k",)),
}


@dataclass(frozen=True, slots=True)
class Tiles:
    """``outputs`` in a block, positions in an iteration, warps, and stages of the inputs; whether
    codes have an excess. A plan in a ``chain`` starts while the call before it ends, and copies its
    first weights before it waits.
    """

    outputs: int
    positions: int
    warps: int
    stages: int
    has_excess: bool = False
    chain: bool = False
    backend: BackEnd = "cuda"


_WORDS = (
    Tiles(64, 256, 4, 4), Tiles(64, 128, 4, 3), Tiles(64, 64, 4, 6), Tiles(128, 128, 8, 5),
    Tiles(128, 64, 4, 6),
)  # fmt: skip
# A chain overlaps best where the shared memory of two calls' blocks fits: 48 KB each.
# Two or three stages are faster than more of the same size; four warps share out 256 positions and
# two 128, and wait for no other.
_BYTES = (
    Tiles(64, 256, 4, 3), Tiles(64, 256, 4, 2), Tiles(64, 128, 4, 4), Tiles(64, 128, 4, 3),
    Tiles(64, 128, 2, 4), Tiles(64, 128, 2, 3), Tiles(128, 256, 4, 3), Tiles(64, 512, 8, 2),
    Tiles(64, 256, 8, 3), Tiles(64, 256, 4, 4),
)  # fmt: skip
_NIBBLES = (
    Tiles(64, 128, 2, 4),
    Tiles(64, 256, 4, 3),
    Tiles(64, 256, 4, 2),
    Tiles(64, 128, 2, 3),
)
_BYTES_OF_GROUPS = (
    Tiles(64, 2, 4, 3), Tiles(64, 1, 2, 4), Tiles(128, 2, 4, 3), Tiles(64, 4, 8, 2),
    Tiles(64, 2, 4, 4),
)  # fmt: skip
_OF_GROUPS = (Tiles(64, 4, 4, 3), Tiles(64, 4, 4, 2), Tiles(64, 2, 2, 4))
_FLOATS = (Tiles(64, 128, 4, 4), Tiles(64, 128, 4, 5), Tiles(32, 256, 4, 4))


def _in_forms(
    tiles: tuple[Tiles, ...], *, or_excess: bool = False, chained: int = 2
) -> tuple[Tiles, ...]:
    """Tiles as they are, with an excess of codes, and the first of each form in a chain."""
    alike = [[replace(t, has_excess=e) for t in tiles] for e in (False, True)[: 1 + or_excess]]
    in_chain = [replace(t, chain=True) for of_form in alike for t in of_form[:chained]]
    return (*(t for of_form in alike for t in of_form), *in_chain)


TILES = {
    "bf16": _in_forms(_WORDS, chained=5),
    "int8": _in_forms(_BYTES, chained=6),
    "int4": _in_forms(_NIBBLES, or_excess=True),
    "int8_groups": _in_forms(_BYTES_OF_GROUPS, or_excess=True),
    "int4_groups": _in_forms(_OF_GROUPS, or_excess=True),
    "mxfp4": _in_forms(tuple(replace(t, positions=4 * t.positions) for t in _OF_GROUPS)),
    # Of float8 that is no operand of wgmma the CUDA back end has no kernels.
    "fp8": tuple(replace(t, backend="triton") for t in _FLOATS),
}


def program(name: str, rows: int) -> Program:
    """A program at a count of rows."""
    return parse(_SPECS[name], name=name, sizes={"B": rows})


def family(name: str, rows: int) -> UGraph:
    """The family with one loop in which codes are less their zero point in the loop, and times the
    scale of their group.
    """
    return replace(_family(name), program=normalise(program(name, rows)))


@cache
def _family(name: str) -> UGraph:
    found = search(normalise(program(name, _ROWS))).families
    return next(f.ugraph for f in found if _is_meant(name, f.ugraph))


def _is_meant(name: str, ugraph: UGraph) -> bool:
    (block, *others) = ugraph.kernels
    if others or not isinstance(block, BlockGraph) or any("part" in a.dim for a in block.grid):
        return False
    loop, reduced = _LOOPS[name]
    loops = [s for s in block.sections if s.loop is not None]
    if [s.loop for s in loops] != [loop]:
        return False
    inside = [block.nodes[n] for n in loops[0].nodes]
    products = [n for n in inside if n.op == "matmul"]
    if [set(n.reduced) for n in products] != [set(reduced)]:
        return False
    less = not name.startswith("int4") or any(n.op == "sub" for n in inside)
    return less and not any(n.op in ("sum", "store_add") for n in block.nodes)


def plan(ugraph: UGraph, tiles: Tiles) -> Plan:
    """A plan whose rows on tensor cores are the outputs."""
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    by = {"n": tiles.outputs, "b": 16}
    tiled = replace(
        block,
        grid=tuple(replace(a, tile=by[a.dim]) for a in block.grid),
        sections=tuple(
            s if s.loop is None else replace(s, tile=tiles.positions) for s in block.sections
        ),
    )
    options = LaunchConfig(
        num_warps=tiles.warps,
        num_stages=(tiles.stages,),
        reversed_axes=True,
        evict_first=("W",),
        excess_codes=tiles.has_excess,
    )
    if tiles.backend == "cuda":
        options = replace(options, arch=Arch.SM_90A)
    found = Plan(replace(ugraph, kernels=(tiled,)), (options,), tiles.backend)
    return chained(found, NextStart.WAITED, ("W",)) if tiles.chain else found
