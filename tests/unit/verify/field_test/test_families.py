"""Many families of one program: the comparison with a split program is done once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import several_kernels

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.rewrite.split_dim import with_splits
from mirage_py.verify.field_test import families as families_module
from mirage_py.verify.field_test.families import FamilyTests

NAME = "split_matmul_added"


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The part sizes of the split programs that were compared."""
    sizes: list[int] = []
    real = families_module.compare_programs

    def counted(left, right, **options):
        sizes.append(right.sizes["d"])
        return real(left, right, **options)

    monkeypatch.setattr(families_module, "compare_programs", counted)
    return sizes


def renamed(ugraph: UGraph, name: str) -> UGraph:
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    return replace(ugraph, kernels=(replace(block, name=name),))


def test_programs_are_compared_once_for_each_split(compared: list[int]) -> None:
    tests = FamilyTests(several_kernels.program(NAME), trials=2, seed=0)
    graph = several_kernels.ugraph(NAME)
    assert tests.run(graph).equal
    assert tests.run(renamed(graph, "another")).equal
    assert tests.run(with_splits(graph, "d", 8)).equal
    assert compared == [240, 120]


def test_a_program_that_is_not_split_is_compared_with_nothing(compared: list[int]) -> None:
    name = "library_epilogue"
    tests = FamilyTests(several_kernels.program(name), trials=2, seed=0)
    assert tests.run(several_kernels.ugraph(name)).equal
    assert compared == []


def test_a_wrong_split_fails_for_every_family_of_it(compared: list[int]) -> None:
    program, graph = several_kernels.program(NAME), several_kernels.ugraph(NAME)
    wrong = ix.dim("d_part") * 239 + ix.dim("d")
    other = replace(
        graph.program,
        nodes=tuple(
            replace(n, attr=replace(n.access, index=(n.access.index[0], wrong)))
            if n.op == "load" and n.access.tensor == "X"
            else n
            for n in graph.program.nodes
        ),
    )
    tests = FamilyTests(program, trials=2, seed=0)
    for name in ("one", "two"):
        evidence = tests.run(replace(renamed(graph, name), program=other))
        assert not evidence.equal
        assert evidence.mismatch is not None
    assert compared == [240]
