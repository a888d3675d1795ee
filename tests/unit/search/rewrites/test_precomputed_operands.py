"""Operands of matmuls computed by kernels of their own, before those of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from families import stable_families
from unit.search import programs

from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rewrites.pieces import Timed
from mirage_py.search.rewrites.precomputed_operands import with_precomputed_operands
from mirage_py.search.rewrites.rewrites import with_rewrites
from mirage_py.search.stabilize.epilogue_hoisting import with_hoisted_epilogues
from mirage_py.search.tilings.kinds import CLUSTER, ONE_KERNEL, SPLIT, kind_of
from mirage_py.targets import H200
from mirage_py.ugraph.building.composites import rms_norm, softmax
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests

LIMITS = SearchLimits(rings=("factored",), max_cluster_blocks=8)


def qknorm(h: int = 2, t: int = 64, s: int = 1024, d: int = 64, e: int = 64) -> Program:
    """Attention whose queries and keys are normalised."""
    p = programs.Spec("qknorm", h=h, t=t, d=d, s=s, e=e)
    q = rms_norm(p.b, p.load("Q", "htd"), "d", 1e-6)
    k = rms_norm(p.b, p.load("K", "hsd"), "d", 1e-6)
    weights = softmax(p.b, p.contract(q, k, "d"), "s")
    p.output("O", p.contract(weights, p.load("V", "hse"), "s"), "hte")
    return p.b.build()


@cache
def found() -> tuple[Program, tuple[UGraph, ...]]:
    program = normalise(qknorm())
    return program, tuple(with_precomputed_operands(program, families))


def families(program: Program) -> tuple[UGraph, ...]:
    return stable_families(search(program, limits=LIMITS).families)


def stored(ugraph: UGraph) -> list[tuple[tuple[int, ...], str]]:
    return [(t.shape, t.dtype.name) for t in ugraph.intermediates if t.name.startswith("mid")]


def test_keys_are_stored_as_they_lie_and_in_half_precision() -> None:
    _, ugraphs = found()
    assert {tuple(stored(u)) for u in ugraphs} == {(((2, 1024, 64), "f16"),)}


def test_queries_are_made_too_where_they_are_as_many() -> None:
    long = with_precomputed_operands(normalise(qknorm(t=512)), families)
    assert {tuple(stored(u)) for u in long} == {(((2, 512, 64), "f16"), ((2, 1024, 64), "f16"))}
    alone = [u for u in long if len(u.kernels) == 3]
    blocks = [k for u in alone for k in u.kernels[2:] if isinstance(k, BlockGraph)]
    assert any([s.loop for s in b.sections] == [None, "s", None] for b in blocks)
    assert all("sqrt" not in [n.op for n in b.nodes] for b in blocks)


@pytest.mark.parametrize("kind", [SPLIT, CLUSTER])
def test_the_rest_may_share_out_a_reduction(kind: str) -> None:
    program, ugraphs = found()
    able = [u for u in ugraphs if kind_of(u) == kind and "s_part" in u.program.sizes]
    few = able[:2]
    assert few
    tests = FamilyTests(program, trials=1, seed=0)
    for u in few:
        validate_ugraph(u)
        assert tests.run(u).equal
        assert with_hoisted_epilogues(u) == u


@pytest.mark.parametrize("name", ["attention", "lora", "gated_mlp"])
def test_inputs_alone_are_no_operands_to_make(name: str) -> None:
    def never(program: Program) -> tuple[UGraph, ...]:
        raise AssertionError(f"searched {program.name}")

    assert with_precomputed_operands(programs.PROGRAMS[name](), never) == []


def test_a_row_that_no_block_holds_is_made_in_loops() -> None:
    wide = programs.rmsnorm_matmul(b=16, d=16384, n=64)
    made = with_precomputed_operands(wide, families)
    fronts = [u.kernels[0] for u in made if stored(u) == [((16, 16384), "f16")]]
    assert fronts
    assert all(any(s.loop == "d" for s in k.sections) for k in fronts if isinstance(k, BlockGraph))
    assert all(kind_of(u) in (ONE_KERNEL, SPLIT, CLUSTER) or len(u.kernels) == 2 for u in made)


def test_a_rest_that_hands_values_on_is_not_searched() -> None:
    """Of attention with normalised keys that was most of what a search took."""
    _, ugraphs = found()

    def never(_: Program) -> tuple[UGraph, ...]:
        raise AssertionError

    def of_splits(program: Program) -> tuple[UGraph, ...]:
        limits = replace(LIMITS, max_unsplit_kernels=1)
        return stable_families(search(program, limits=limits).families)

    def best(_: Sequence[UGraph]) -> Timed:
        return ()

    program = normalise(qknorm())
    rewritten = with_rewrites(program, never, of_splits, never, best, lambda _: True, H200)
    assert [u.digest for u in rewritten] == [u.digest for u in ugraphs]
