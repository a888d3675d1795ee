"""Shifts of exponentials: where they are applied, where they must not be, and their freedom."""

from __future__ import annotations

import pytest
from families import stabilize
from naive import naive_plan

from mirage_py.search.enumerate.search import search
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph


def block_of(ugraph: UGraph) -> BlockGraph:
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    return block


def operators(ugraph: UGraph) -> list[str]:
    return [n.op for n in block_of(ugraph).nodes]


def attention(*, causal: bool = False) -> Program:
    b = ProgramBuilder("attention")
    for d, size in {"q": 32, "s": 64, "d": 16, "e": 16}.items():
        b.dim(d, size)
    b.input("Q", (32, 16), F16)
    b.input("K", (64, 16), F16)
    b.input("V", (64, 16), F16)
    p = b.apply("exp", b.matmul(b.load("Q", "qd"), b.load("K", "sd"), "d"))
    if causal:
        p = b.apply("mul", b.mask(ix.compare("le", ix.dim("s"), ix.dim("q") + 32)), p)
    weights = b.apply("div", p, b.sum(p, "s"))
    b.output("O", b.matmul(weights, b.load("V", "se"), "s"), "qe", F16)
    return b.build()


def looped_families(program: Program) -> list[UGraph]:
    found = [f.ugraph for f in search(program).families if len(f.ugraph.kernels) == 1]
    return [u for u in found if any(s.loop == "s" for s in block_of(u).sections)]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_gets_a_running_maximum_and_rescaled_sums(causal: bool) -> None:
    for family in looped_families(attention(causal=causal)):
        safe = stabilize(family)
        validate_ugraph(safe)
        names = operators(safe)
        assert "accum_max" in names
        first_loop = next(s for s in block_of(safe).sections if s.loop == "s")
        carried = [block_of(safe).nodes[n].op for n in first_loop.nodes]
        assert "accum_rescaled" in carried
        assert "accum_sum" not in carried


def test_a_masked_exp_takes_the_maximum_of_what_it_keeps() -> None:
    family = looped_families(attention(causal=True))[0]
    nodes = block_of(stabilize(family)).nodes
    top = next(n for n in nodes if n.op == "max")
    assert nodes[top.args[0]].op == "where"


def test_a_whole_row_is_shifted_by_its_maximum() -> None:
    b = ProgramBuilder("softmax")
    b.dim("m", 8)
    b.dim("n", 32)
    b.input("X", (8, 32), F16)
    p = b.apply("exp", b.load("X", "mn"))
    b.output("Y", b.apply("div", p, b.sum(p, "n")), "mn", F16)
    safe = stabilize(naive_plan(b.build(), {"m": 1}).ugraph)
    assert operators(safe).count("shift") == 1
    assert "accum_max" not in operators(safe)


def test_an_exp_whose_scale_matters_is_left_alone() -> None:
    b = ProgramBuilder("plain")
    b.dim("m", 8)
    b.dim("n", 32)
    b.input("X", (8, 32), F16)
    b.output("Y", b.sum(b.apply("exp", b.load("X", "mn")), "n"), "m", F16)
    ugraph = naive_plan(b.build(), {"m": 1}).ugraph
    assert stabilize(ugraph) == ugraph


def test_a_sum_with_a_constant_is_not_homogeneous() -> None:
    b = ProgramBuilder("plus_one")
    b.dim("m", 8)
    b.dim("n", 32)
    b.input("X", (8, 32), F16)
    p = b.apply("exp", b.load("X", "mn"))
    total = b.apply("add", b.sum(p, "n"), b.const(1.0))
    b.output("Y", b.apply("div", p, total), "mn", F16)
    ugraph = naive_plan(b.build(), {"m": 1}).ugraph
    assert stabilize(ugraph) == ugraph


def test_only_the_group_in_conflict_is_given_up() -> None:
    b = ProgramBuilder("two")
    b.dim("m", 8)
    b.dim("n", 32)
    b.input("X", (8, 32), F16)
    b.input("Z", (8, 32), F16)
    safe_exp = b.apply("exp", b.load("X", "mn"))
    raw_exp = b.apply("exp", b.load("Z", "mn"))
    softmax = b.apply("div", safe_exp, b.sum(safe_exp, "n"))
    y = b.apply("mul", softmax, b.sum(raw_exp, "n"))
    b.output("Y", y, "mn", F16)
    safe = stabilize(naive_plan(b.build(), {"m": 1}).ugraph)
    assert operators(safe).count("shift") == 1
