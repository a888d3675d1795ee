"""Many families of one program: the comparison with a split program is done once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import several_kernels

from mirage_py.errors import VerificationError
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.rewrite.split_dim import with_splits
from mirage_py.verify.field_test import families as families_module
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.field_test.programs import compare_programs

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


def wrong_split(program: Program) -> Program:
    """The split program with one part read one place too early."""
    wrong = ix.dim("d_part") * 239 + ix.dim("d")
    return replace(
        program,
        nodes=tuple(
            replace(n, attr=replace(n.access, index=(n.access.index[0], wrong)))
            if n.op == "load" and n.access.tensor == "X"
            else n
            for n in program.nodes
        ),
    )


def test_a_wrong_split_fails_for_every_family_of_it(compared: list[int]) -> None:
    program, graph = several_kernels.program(NAME), several_kernels.ugraph(NAME)
    other = wrong_split(graph.program)
    tests = FamilyTests(program, trials=2, seed=0)
    for name in ("one", "two"):
        evidence = tests.run(replace(renamed(graph, name), program=other))
        assert not evidence.equal
        assert evidence.mismatch is not None
    assert compared == [240]


def test_real_sizes_are_compared_for_the_program_that_is_asked_about() -> None:
    program, graph = several_kernels.program(NAME), several_kernels.ugraph(NAME)
    early = compare_programs(program, graph.program, trials=2, samples=2, real_sizes=False)
    assert (early.equal, early.samples, early.trials) == (True, 0, 2)
    late = compare_programs(program, graph.program, trials=2, samples=2)
    assert (late.equal, late.samples, late.trials) == (True, 2, 2)
    FamilyTests(program, trials=2, seed=0).require_program(graph.program)
    with pytest.raises(VerificationError, match="is not the program"):
        FamilyTests(program, trials=2, seed=0).require_program(wrong_split(graph.program))


def test_real_sizes_decide_where_small_ones_differ() -> None:
    # 956 is the size of d: at small sizes it stands for none.
    mean, scaled = (
        parse(f"B = 4, D = 956\nX[B, D] : f16\nY[b] = {text}")
        for text in ("mean[d](X[b, d])", "sum[d](X[b, d]) / 956")
    )
    found = compare_programs(mean, scaled, trials=2, samples=2, real_sizes=False)
    assert found.equal
    assert found.samples == 16
