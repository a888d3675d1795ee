"""L2 residency of a kernel's inputs."""

from __future__ import annotations

from dataclasses import replace

import several_kernels
from plans import rms_plan, two_kernel_plan

from mirage_py.search.tilings.residency import (
    accesses_of,
    in_cache,
    moved_bytes,
    passes_of,
    tensors_of,
    touched_bytes,
)
from mirage_py.targets import H200
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, F32, I64
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph


def of(ugraph: UGraph, mebibytes: float) -> list[list[str]]:
    target = replace(H200, l2_bytes=int(mebibytes * (1 << 20)))
    return [sorted(names) for names in in_cache(ugraph, target)]


def test_partial_sums_stay_in_the_cache_while_they_are_small() -> None:
    graph = several_kernels.ugraph("split_rms_norm_matmul")
    # P0 has 64 000 bytes, P1 has 320: a quarter of the cache has to hold each.
    assert of(graph, 1.0) == [["P0", "P1"], ["P0", "P1"]]
    assert of(graph, 0.2) == [["P1"], ["P1"]]
    assert of(graph, 0.001) == [[], []]


def test_an_input_that_is_read_again() -> None:
    # X has 4620 bytes and is all that goes through the cache, besides the 132 of S.
    graph = two_kernel_plan().ugraph
    assert of(graph, 1.0) == [["S"], ["S", "X"]]
    # A quarter of the cache is too small for X.
    assert of(graph, 0.017) == [["S"], ["S"]]


def test_traffic_in_between_pushes_a_tensor_out() -> None:
    graph = several_kernels.ugraph("library_prologue")
    norm, product = graph.kernels
    again = replace(norm, name="again")
    three = replace(graph, kernels=(norm, product, again))
    # W, 384 000 bytes, goes through between the two that read X.
    assert "X" in of(three, 1.0)[2]
    assert "X" not in of(three, 0.4)[2]


def test_tensors_are_named_once() -> None:
    graph = several_kernels.ugraph("library_prologue")
    norm, product = graph.kernels
    assert tensors_of(norm) == ("X", "G", "S")
    assert tensors_of(product) == ("S", "W", "Y")


def test_what_does_not_stay_in_the_cache_is_read_again() -> None:
    # A norm in two loops over X of 16 x 4096 halves, then a product with W.
    plan = rms_plan(b=16, d=4096, n=6144, tiles=(16, 64, 128))
    (block,) = plan.ugraph.kernels
    assert isinstance(block, BlockGraph)
    scope = plan.ugraph.scope
    once = sum(scope.tensors[t].bytes for t in tensors_of(block))
    touched, passes = touched_bytes(scope, accesses_of(block)), passes_of(block)
    assert moved_bytes(touched, passes, (), H200) == once
    # Where X is too large for the L2 each loop reads it; W has one loop only.
    small = replace(H200, l2_bytes=4 * 16 * 4096)
    assert moved_bytes(touched, passes, (), small) == once + scope.tensors["X"].bytes
    assert moved_bytes(touched, passes, ("X",), small) == once - scope.tensors["X"].bytes
    # Or what the blocks that run side by side read in the meantime is little.
    assert moved_bytes(touched, passes, (), small, 1e-3) == once


def test_a_look_up_moves_a_sector_of_each_row() -> None:
    builder = ProgramBuilder("labels")
    row, column = (ix.dim(builder.dim(d, size)) for d, size in (("n", 64), ("v", 5000)))
    builder.input("X", (64, 5000), BF16)
    builder.input("I", (64,), I64)
    picked = builder.load("X", [row, ix.data("I", [row]) % 5000])
    first = builder.load("X", [row, ix.const(0)])
    total = builder.sum(builder.load("X", [row, column]), ("v",))
    for name, node in (("P", picked), ("F", first), ("T", total)):
        builder.output(name, node, (row,), F32)
    program = builder.build()
    look_up, constant, everything = (n.access for n in program.nodes if n.op == "load")
    assert touched_bytes(program, [look_up]) == {"X": 64 * 32}
    assert touched_bytes(program, [look_up, constant]) == {"X": 2 * 64 * 32}
    assert touched_bytes(program, [look_up], sector_bytes=1) == {"X": 64 * 2}
    assert touched_bytes(program, [everything, look_up]) == {"X": 64 * 5000 * 2}
