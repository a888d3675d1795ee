"""Chains of matmuls cut into pieces, each with kernels, splits and library calls of its own."""

from __future__ import annotations

import pytest
from families import accurate, stable_families
from unit.search import programs

from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.shortlist import best_families
from mirage_py.search.rewrites.product_chains import (
    chain_cuts,
    chained_products,
    with_cut_chains,
)
from mirage_py.search.tilings.kinds import SPLIT, kind_of
from mirage_py.targets import H200
from mirage_py.ugraph.building.composites import softmax
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests

LIMITS = SearchLimits(rings=("factored",))


def latent(
    b: int = 16, h: int = 128, e: int = 128, k: int = 512, r: int = 64, s: int = 4096
) -> Program:
    """Attention over latent keys that all heads share, with each head's matrices around it."""
    p = programs.Spec("latent", b=b, h=h, s=s, e=e, k=k, r=r)
    rows = p.contract(p.load("Q", "bhe"), p.load("WK", "hek"), "e")
    scores = p.b.apply(
        "add",
        p.contract(rows, p.load("C", "bsk"), "k"),
        p.contract(p.load("QR", "bhr"), p.load("KR", "bsr"), "r"),
    )
    mixed = p.contract(softmax(p.b, scores, "s"), p.load("C", "bsk"), "s")
    p.output("O", p.contract(mixed, p.load("WV", "hke"), "k"), "bhe")
    return p.b.build()


def best(program: Program) -> list[tuple[float, UGraph]]:
    found = stable_families(search(program, limits=LIMITS).families)
    return best_families(found, KernelRanker(H200))


def test_a_chain_is_cut_where_least_is_stored() -> None:
    program = normalise(latent())
    assert chained_products(program) == 4
    (values,) = chain_cuts(program)
    assert [program.nodes[v].dims for v in values] == [("b", "h", "k"), ("b", "h", "k")]
    assert chained_products(program, values) == 2


@pytest.mark.parametrize("name", ["attention", "lora", "gated_mlp"])
def test_short_chains_are_not_cut(name: str) -> None:
    def never(program: Program) -> list[tuple[float, UGraph]]:
        raise AssertionError(f"searched {program.name}")

    assert with_cut_chains(programs.PROGRAMS[name](), never) == []


def test_no_scale_of_an_exponential_is_stored_between_pieces() -> None:
    p = programs.Spec("unnormalised", t=16, d=16, s=64, e=16, n=16)
    scores = p.b.apply("exp", p.contract(p.load("Q", "td"), p.load("K", "sd"), "d"))
    mixed = p.contract(p.contract(scores, p.load("V", "se"), "s"), p.load("W", "en"), "e")
    p.output("O", p.b.apply("div", mixed, p.b.sum(scores, ["s"])), "tn")
    assert chain_cuts(normalise(p.b.build())) == []


def layers(m: int, *, n: int = 4096) -> Program:
    """Two layers, and the sum of each row of the result."""
    p = programs.Spec("layers", m=m, d=1024, n=n, o=1024)
    hidden = p.b.apply("relu", p.contract(p.load("X", "md"), p.load("A", "dn"), "d"))
    result = p.contract(hidden, p.load("B", "no"), "n")
    p.output("O", p.b.apply("div", result, p.b.sum(result, ["o"])), "mo")
    return p.b.build()


def test_large_matmuls_before_a_norm_are_cut_from_one_another() -> None:
    program = normalise(layers(8192))
    (values,) = chain_cuts(program)
    assert [program.nodes[v].op for v in values] == ["relu"]
    # A launch costs as much as small ones take.
    assert chain_cuts(normalise(layers(16))) == []


def test_small_pieces_come_before_a_large_one_takes_all_the_time() -> None:
    sizes: list[int] = []

    def none(program: Program) -> list[tuple[float, UGraph]]:
        sizes.append(len(program.nodes))
        return []

    assert with_cut_chains(normalise(latent()), none) == []
    assert len(sizes) == 3
    assert sizes == sorted(sizes)


def test_latent_attention_is_a_small_matmul_split_attention_and_a_matmul() -> None:
    families = with_cut_chains(normalise(latent()), best)
    split = [u for u in families if kind_of(u) == SPLIT and len(u.kernels) == 4]
    wanted = [["e"], ["k", "r", "s"], [], ["k"]]
    attention = [u.kernels[1] for u in split if [_contracted(k) for k in u.kernels] == wanted]
    assert attention
    # Its keys are shared out, and of its share a block takes tile after tile.
    looped = [k for k in attention if isinstance(k, BlockGraph) and _loops(k) == ["s"]]
    assert any({"b", "h", "s_part"} == {a.dim for a in k.grid} for k in looped)
    assert any(sum(n.op.startswith("accum_resc") for n in k.nodes) == 2 for k in looped)


def test_families_of_pieces_compute_the_program() -> None:
    program = normalise(latent(b=2, h=32, e=16, k=64, r=16, s=512))
    families = with_cut_chains(program, best)
    tests = FamilyTests(program, trials=1, seed=0)
    # Of each kind and number of kernels one.
    some = {(kind_of(u), len(u.kernels)): u for u in families}
    chosen = accurate(some.values())
    assert len(chosen) > 2
    for family in chosen:
        validate_ugraph(family)
        assert tests.run(family).equal


def _contracted(kernel: object) -> list[str]:
    """What the matmuls of a kernel of ours sum over."""
    if not isinstance(kernel, BlockGraph):
        return []
    return sorted({d for n in kernel.nodes if n.op == "matmul" for d in n.reduced})


def _loops(block: BlockGraph) -> list[str]:
    return [s.loop for s in block.sections if s.loop is not None]
