"""Matmuls of different widths in one kernel, and families of independent outputs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from families import instances, stable_families
from unit.search import programs

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rewrites.horizontal_fusion import horizontal_fusions, with_unsplit_columns
from mirage_py.search.rewrites.independent_outputs import with_independent_outputs
from mirage_py.search.rewrites.rewrites import with_rewrites
from mirage_py.search.tilings.kinds import describe
from mirage_py.search.tilings.roles import grid_tiles, roles_of
from mirage_py.targets import H200
from mirage_py.ugraph.building.composites import rms_norm
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.field_test.families import FamilyTests

LIMITS = SearchLimits(rings=("factored",))
ALONE = SearchLimits(rings=("factored",), max_kernels=1)


def projections(
    widths: tuple[int, ...], b: int = 64, d: int = 256, *, norm: str = "after"
) -> Program:
    """Matmuls of the same rows, scaled by their norms before, after or not at all."""
    p = programs.Spec("projections", b=b, d=d)
    x = p.load("X", "bd")
    rows = rms_norm(p.b, x, "d", 1e-6) if norm == "before" else x
    root = p.b.apply("sqrt", p.b.sum(p.b.apply("square", x), ["d"])) if norm == "after" else None
    for number, width in enumerate(widths):
        column = p.b.dim("nkvw"[number], width)
        product = p.contract(rows, p.load(f"W{number}", "d" + column), "d")
        scaled = product if root is None else p.b.apply("div", product, root)
        p.output(f"Y{number}", scaled, "b" + column)
    return p.b.build()


def families(program: Program, limits: SearchLimits = LIMITS) -> tuple[UGraph, ...]:
    return stable_families(search(program, limits=limits).families)


def of_one_kernel(program: Program) -> tuple[UGraph, ...]:
    return families(program, ALONE)


@cache
def found(norm: str) -> tuple[Program, tuple[UGraph, ...]]:
    program = normalise(projections((1024, 256, 256), norm=norm))
    return program, tuple(
        with_rewrites(
            program, families, families, of_one_kernel, lambda _: (), lambda _: True, H200
        )
    )


def shares(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    program = projections(widths)
    return [
        tuple(v.program.sizes[d] for d in v.unsplit)
        for v in horizontal_fusions(program)
        if v.unsplit
    ]


def test_blocks_in_common_give_every_product_a_full_tile() -> None:
    assert shares((1024, 256, 256)) == [(64, 16, 16), (128, 32, 32), (256, 64, 64)]
    assert shares((4096, 256)) == [(256, 16)]
    assert shares((768, 256)) == []
    assert shares((512, 512)) == []


@pytest.mark.parametrize("widths", [(1024, 256, 256), (512, 512)])
def test_columns_of_equal_number_are_one_dimension(widths: tuple[int, ...]) -> None:
    program = projections(widths)
    (first, *_) = horizontal_fusions(program)
    assert not first.unsplit
    assert sorted(first.program.sizes.values()) == sorted([64, 256, *{*widths}])


def test_other_programs_have_no_such_columns() -> None:
    for name in ("attention", "gated_mlp", "lora", "rmsnorm_matmul"):
        assert list(horizontal_fusions(programs.PROGRAMS[name]())) == []


@pytest.mark.parametrize("norm", ["after", "before"])
def test_every_structure_is_found_and_computes_the_program(norm: str) -> None:
    program, ugraphs = found(norm)
    tests = FamilyTests(program, trials=1, seed=0)
    seen: dict[tuple[str, bool], UGraph] = {}
    for u in ugraphs:
        validate_ugraph(u)
        seen.setdefault((describe(u), "m" in u.program.sizes), u)
    assert ("library x3: 4 kernels", False) in seen
    assert ("library: 3 kernels", False) in seen
    assert ("2 kernels", True) in seen
    assert ("one kernel", True) in seen
    for u in seen.values():
        assert tests.run(u).equal, describe(u)


def test_a_block_has_one_tile_of_each_product_and_reads_its_rows_once() -> None:
    _, ugraphs = found("after")
    joint = [u for u in ugraphs if "m" in u.program.sizes and len(u.kernels) == 2]
    for u in joint:
        block = u.kernels[1]
        assert isinstance(block, BlockGraph)
        assert [a.dim for a in block.grid] == ["b", "m"]
        assert sum(n.op == "matmul" for n in block.nodes) == 3
        assert [n.access.tensor for _, n in block.loads()].count("mid0") == 1
        assert grid_tiles(u.scope, roles_of(u.scope, block), "m") == (1,)
        if all(s.loop is None for s in block.sections):
            continue
        (best, *_) = instances(u, H200, 1)
        kernel = best.plan.ugraph.kernels[1]
        assert isinstance(kernel, BlockGraph)
        tiling = Tiling(u.scope, kernel)
        dots = [n for n, node in enumerate(kernel.nodes) if node.op == "matmul"]
        assert all(tiling.is_dot(n) for n in dots)
        made = sum(tiling.elements(kernel.nodes[n].dims, 0) for n in dots)
        assert made * tiling.grid_blocks == 64 * 1536


def test_outputs_with_a_value_in_common_stay_together() -> None:
    assert with_independent_outputs(projections((256, 64)), families) == []
    apart = with_independent_outputs(projections((256, 64), norm="none"), families)
    assert {len(u.kernels) for u in apart} == {2}
    assert len(apart) == 4
    for u in apart:
        validate_ugraph(u)
        assert all(isinstance(k, BlockGraph) == (k.name[:6] != "matmul") for k in u.kernels)


def test_outputs_of_equal_extents_choose_alike() -> None:
    apart = with_independent_outputs(projections((256, 64, 64), norm="none"), families)
    assert len(apart) == 4
    assert all(isinstance(u.kernels[1], type(u.kernels[2])) for u in apart)


def test_one_kernel_for_all_products_agrees_with_float64() -> None:
    program = projections((128, 32), b=16, d=32, norm="none")
    (fusion, *_) = [v for v in horizontal_fusions(program) if v.unsplit]
    (family, *_) = [with_unsplit_columns(u, fusion) for u in of_one_kernel(fusion.program)]
    (best, *_) = instances(family, H200, 1)
    plan = replace(best.plan, backend="cuda")
    assert check_emulated(program, plan, seed=0).passed
