"""The proof tier: what the axioms join, and that they do not join what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from unit.search import programs

from mirage_py.search.proof import proves
from mirage_py.search.search import SearchLimits, search
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import BlockGraph, UGraph

# What reduces parts in one kernel and adds them in another is over another program's dimensions:
# the field test answers for it.
ONE_KERNEL = SearchLimits(rings=("factored",), max_kernels=1)


@pytest.mark.parametrize(
    "make",
    [
        programs.rmsnorm_matmul,
        programs.gated_mlp,
        programs.lora,
        programs.attention,
        programs.ntrans,
        programs.row_softmax,
        programs.layernorm_linear,
    ],
)
def test_families_are_proved(make: Callable[[], Program]) -> None:
    program = make()
    for family in search(program, limits=ONE_KERNEL).families[:6]:
        assert proves(program, family.ugraph)


def changed(family: UGraph, op: str, into: str) -> UGraph:
    (block,) = family.kernels
    assert isinstance(block, BlockGraph)
    nodes = tuple(replace(n, op=into) if n.op == op else n for n in block.nodes)
    return replace(family, kernels=(replace(block, nodes=nodes),))


@pytest.mark.parametrize(("op", "into"), [("div", "mul"), ("sqrt", "exp"), ("square", "neg")])
def test_a_wrong_family_is_not(op: str, into: str) -> None:
    program = programs.rmsnorm_matmul()
    family = search(program).families[0].ugraph
    wrong = changed(family, op, into)
    assert wrong != family
    assert not proves(program, wrong)
