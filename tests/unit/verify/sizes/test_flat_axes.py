"""Axes that only go together: their halves of a position are one index."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import mirage_py
from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rank.forms import form_of
from mirage_py.search.space.splits import split_choices, split_dims
from mirage_py.targets import H200
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.merged_dims import with_merged_reductions
from mirage_py.ugraph.rewrite.split_dim import split_dim, with_splits
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.sizes.flat_axes import with_flat_axes
from mirage_py.verify.sizes.small_sizes import small_extents

SUM = """M = 8192, D = 4096
X[M, D], Y[M, D] : bf16
L[1] : f32
L[0] = sum[m, d]((X[m, d] - Y[m, d]) * (X[m, d] - Y[m, d]))"""
NORM = """B = 64, S = 512, D = 512
X[B, S, D] : bf16
let M[b] = sum[s, d](X[b, s, d]) / 262144
Z[b, s, d] = X[b, s, d] - M[b]"""

VOLUME = """B = 16, C = 64, S = 256, D = 256
X[B, C, S, D] : bf16
Z[b] = sum[c, s, d](X[b, c, s, d])"""


def merged(text):
    program = with_merged_reductions(parse(text))
    assert any(
        "//" in str(e) for n in program.nodes if isinstance(n.attr, Access) for e in n.attr.index
    )
    return program


IMAGES = """B = 4, C = 3, H = 64, W = 96
X[B, C, H, W], Y[B, C, H, W] : bf16
L[1] : f32
L[0] = sum[b, c, h, w]((X[b, c, h, w] - Y[b, c, h, w]) * X[b, c, h, w])"""


def families(program, kind, kernels=2):
    limits = SearchLimits(max_kernels=kernels, max_cluster_blocks=16)
    return [f.ugraph for f in search(program, seed=0, limits=limits).families if f.kind == kind]


def test_two_axes_are_one_where_all_indices_go_through_both():
    program = merged(NORM)
    flat, graph = with_flat_axes(program, UGraph(program, ()))
    assert flat == graph.program
    assert [t.shape for t in flat.inputs] == [(64, 512 * 512)]
    assert flat.outputs[0].tensor.shape == (64, 512 * 512)
    assert with_flat_axes(flat, graph) == (flat, graph)
    plain = parse(NORM)
    assert with_flat_axes(plain, UGraph(plain, ())) == (plain, UGraph(plain, ()))
    # One other index is enough to leave the tensor as it is.
    load = next(n for n in program.nodes if isinstance(n.attr, Access))
    other = replace(load, attr=Access("X", (*load.attr.index[:2], load.attr.index[2] // 2)))
    crooked = replace(program, nodes=(other, *program.nodes[1:]))
    assert [t.shape for t in with_flat_axes(program, UGraph(crooked, ()))[0].inputs] == [
        (64, 512, 512)
    ]


def test_parts_of_a_row_have_a_digit_among_other_terms():
    """Four parts are a row of 256 x 256: x[p // 4, p % 4 * 64 + s // 256, s % 256]."""
    whole = split_dim(merged(VOLUME), "c_s_d", 256)
    flat, _ = with_flat_axes(whole, UGraph(whole, ()))
    (load,) = (n.access for n in flat.nodes if n.op == "load")
    assert str(load) == "X[b, c_s_d_part * 16384 + c_s_d]"


def test_three_axes_are_one():
    """A program that blocks share could not be made small: comparing it took 18 CPU seconds."""
    program = merged(VOLUME)
    split = split_dim(program, "c_s_d", 8)
    assert split_dims(split) == ("c_s_d",)
    flat, graph = with_flat_axes(program, UGraph(split, ()))
    assert [t.shape for t in (*flat.inputs, *graph.program.inputs)] == [(16, 1 << 22)] * 2
    load = next(n for n in graph.program.nodes if n.op == "load")
    assert load.access.index == (ix.dim("b"), ix.dim("c_s_d_part") * (1 << 19) + ix.dim("c_s_d"))
    FamilyTests(program, trials=1, seed=0).require_program(split)


@pytest.mark.parametrize("kind", ["split", "cluster"])
def test_a_sum_over_two_axes_is_split_over_blocks(kind):
    program = merged(SUM)
    found = families(program, kind)
    assert found
    tests = FamilyTests(program, trials=2, seed=0, real_sizes=False)
    assert all(tests.run(f).equal for f in found)
    for family in found:
        assert split_dims(family.program) == ("m_d",)
        for splits in split_choices(family.program, 16):
            other = form_of(family, H200, splits).ugraph
            assert other.program.sizes["m_d"] * splits["m_d"] == 8192 * 4096
            assert tests.run(other).equal


@pytest.mark.parametrize("nominal", [2, 4, 8])
def test_splits_end_within_rows_of_images(nominal: int):
    """Eight parts are one image and a half each: the program could neither be made small, so that
    comparing it took minutes, nor have more parts.
    """
    program = merged(IMAGES)
    (dim,) = program.dim_names
    split = split_dim(program, dim, nominal)
    flat, graph = with_flat_axes(program, UGraph(split, ()))
    assert [t.shape for t in (*flat.inputs, *graph.program.inputs)] == [(4 * 3 * 64 * 96,)] * 4
    assert split_dims(split) == (dim,)
    counts = [c[dim] for c in split_choices(split, 64)]
    assert {2, 4, 12, 24, 48} <= set(counts)
    # Others end in the middle of something: 72 points are no share of a row of 96.
    assert 1024 not in [c[dim] for c in split_choices(split)]
    tests = FamilyTests(program, trials=1, seed=0, real_sizes=False)
    for count in counts:
        other = with_splits(UGraph(split, ()), dim, count).program
        assert other.digest == split_dim(program, dim, count).digest
        tests.require_program(other)


def test_a_row_that_is_two_axes_is_shared_by_a_cluster():
    program = merged(NORM)
    (family, *_) = families(program, "cluster", kernels=1)
    tests = FamilyTests(program, trials=2, seed=0, real_sizes=False)
    wide = form_of(family, H200, {"s_d": 16}).ugraph
    assert tests.run(wide).equal
    # Blocks that reduce their own slices only are another kernel.
    (block,) = wide.kernels
    own = tuple(replace(n, attr=("s_d",)) if n.op == "sum" else n for n in block.nodes)
    dims = ("b", "s_d_part")
    own = tuple(
        replace(n, dims=dims) if n.dims == ("b",) and n.op in ("sum", "div", "mul") else n
        for n in own
    )
    assert not tests.run(replace(wide, kernels=(replace(block, nodes=own),))).equal


def test_what_is_read_round_the_end_of_an_axis_is_read_from_a_longer_one():
    """Padding reads x[(s + k + 511) % 512]; at its real size a trial took minutes."""
    pool = torch.nn.MaxPool2d(4, 1, padding=1)
    program = normalise(mirage_py.trace(pool, torch.empty(2, 3, 512, 512)))
    flat, _ = with_flat_axes(program, UGraph(program, ()))
    assert [t.shape for t in flat.inputs] == [(2, 3, 514, 514)]
    # What is read as it is besides is read from the longer one, too.
    load = next(n for n in program.nodes if n.op == "load")
    plain = replace(load, attr=Access(load.attr.tensor, (*load.attr.index[:3], ix.dim("d"))))
    as_it_is = replace(program, nodes=tuple(plain if n is load else n for n in program.nodes))
    found = with_flat_axes(program, UGraph(as_it_is, ()))[0]
    assert [t.shape for t in found.inputs] == [(2, 3, 514, 514)]
    moved = replace(load, attr=Access(load.attr.tensor, (*load.attr.index[:3], ix.dim("d") // 2)))
    halved = replace(program, nodes=tuple(moved if n is load else n for n in program.nodes))
    found = with_flat_axes(program, UGraph(halved, ()))[0]
    assert [t.shape for t in found.inputs] == [(2, 3, 514, 512)]

    program = normalise(mirage_py.trace(torch.nn.MaxPool1d(4, 1, 1), torch.empty(2, 3, 512)))
    family = families(program, "one kernel", kernels=1)[0]
    tests = FamilyTests(program, trials=2, seed=0, real_sizes=False)
    assert tests.run(family).equal
    (block,) = family.kernels
    load = next(n for n in block.nodes if n.op == "load")
    *rest, column = load.attr.index
    moved = replace(load, attr=Access(load.attr.tensor, (*rest, (column.args[0] + 1) % 512)))
    nodes = tuple(moved if n is load else n for n in block.nodes)
    wrong = replace(family, kernels=(replace(block, nodes=nodes),))
    assert not tests.run(wrong).equal


def test_neighbours_round_the_ends_are_compared_at_small_sizes():
    """A stencil with periodic borders: comparing it at its own sizes took minutes."""

    def laplace(u):
        return u.roll(1, 0) + u.roll(-1, 0) + u.roll((1, -1), (0, 1)) - 3 * u

    program = normalise(mirage_py.trace(lambda u: laplace(u) * u, torch.empty(512, 384)))
    flat, _ = with_flat_axes(program, UGraph(program, ()))
    # Two rows more, and a column: each place is the nearest of those that are the same.
    assert [t.shape for t in flat.inputs] == [(514, 385)]
    assert max(small_extents(flat, 0).values()) < 20
    tests = FamilyTests(program, trials=2, seed=0, real_sizes=False)
    family = families(program, "one kernel", kernels=1)[0]
    assert tests.run(family).equal
    (block,) = family.kernels
    for load in [n for n in block.nodes if n.op == "load"]:
        row, column = load.attr.index
        other = replace(load, attr=Access(load.attr.tensor, ((row + 1) % 512, column)))
        nodes = tuple(other if n is load else n for n in block.nodes)
        wrong = replace(family, kernels=(replace(block, nodes=nodes),))
        assert not tests.run(wrong).equal
    twice = normalise(mirage_py.trace(lambda u: u.roll(1, 0).roll(1, 0) + u, torch.empty(64, 8)))
    assert [t.shape for t in with_flat_axes(twice, UGraph(twice, ()))[0].inputs] == [(66, 8)]


def test_an_index_beyond_its_axis_is_wrong_though_it_lies_within_the_joint_one():
    position = ix.dim("p")
    b = ProgramBuilder("squares")
    b.dim("p", 64)
    b.input("X", (4, 16), F32)
    element = b.load("X", (position // 16, position % 16))
    b.output("Z", b.apply("square", element), (position,), F32)
    program = b.build()
    tests = FamilyTests(program, trials=2, seed=0)
    family = search(program, seed=0, limits=SearchLimits(max_kernels=1)).families[0].ugraph
    assert tests.run(family).equal
    (block,) = family.kernels
    row = Access("X", (ix.const(0), position))
    nodes = tuple(replace(n, attr=row) if n.op == "load" else n for n in block.nodes)
    assert not tests.run(replace(family, kernels=(replace(block, nodes=nodes),))).equal
