"""Ranking families of all kinds against one another."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import several_kernels
from families import instances, stabilize
from unit.search import programs
from unit.search.kernels import in_all_rings

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.frontend.spec import parse
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rank import kernel_models
from mirage_py.search.rank.forms import form_of
from mirage_py.search.rank.instantiate import rank
from mirage_py.search.rank.kernel_choices import KernelRanker
from mirage_py.search.rank.shortlist import HOPELESS, shortlist
from mirage_py.search.stabilize.normalised_partials import with_normalised_partials
from mirage_py.search.tilings.kinds import kind_of
from mirage_py.targets import H200
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.rewrite.split_dim import splits_of


@pytest.fixture(scope="module")
def lora() -> list[UGraph]:
    found = [stabilize(f.ugraph) for f in in_all_rings(programs.lora()).families]
    split = [f for f in found if len(f.kernels) > 1]
    assert any(isinstance(k, LibraryCall) for f in found for k in f.kernels)
    assert split
    return found


def is_legal(plan: Plan) -> bool:
    validate_ugraph(plan.ugraph)
    assert len(plan.options) == len(plan.ugraph.kernels)
    for kernel, options in zip(plan.ugraph.kernels, plan.options, strict=True):
        if isinstance(kernel, LibraryCall):
            continue
        assert kernel.is_instance
        loops = [s for s in kernel.sections if s.loop is not None]
        assert len(options.num_stages) == len(loops)
    return True


@pytest.mark.parametrize("name", several_kernels.NAMES)
def test_instances_of_hand_made_graphs(name: str) -> None:
    graph = several_kernels.ugraph(name)
    found = instances(graph, H200, 60)
    times = [i.estimate.time_us for i in found]
    assert times == sorted(times)
    for instance in found:
        assert is_legal(instance.plan)
        assert instance.family is graph
        kernels = instance.estimate.kernels
        assert len(kernels) == len(graph.kernels)
        assert instance.estimate.time_us == sum(k.time_us for k in kernels)


@pytest.mark.parametrize(
    ("name", "dim"), [("split_rms_norm_matmul", "d"), ("split_attention", "s")]
)
def test_every_number_of_parts_is_tried(name: str, dim: str) -> None:
    graph = several_kernels.ugraph(name)
    found = instances(graph, H200, 10**6)
    sizes = {splits_of(i.plan.ugraph.program, dim) for i in found}
    assert {2, 4, 8, 16} <= sizes
    assert {i.name for i in found} == {f"split {dim} x{n}: 2 kernels" for n in sizes}


def test_a_part_is_never_tiled() -> None:
    for instance in instances(several_kernels.ugraph("split_rms_norm_matmul"), H200, 300):
        partial, combine = instance.plan.ugraph.kernels
        assert isinstance(partial, BlockGraph)
        assert isinstance(combine, BlockGraph)
        assert partial.grid_tiles["d_part"] == 1
        assert "d_part" not in combine.grid_tiles


def test_a_combining_kernel_has_wide_tiles() -> None:
    graph = several_kernels.ugraph("split_rms_norm_matmul")
    best = instances(graph, H200, 1)[0].plan.ugraph
    combine = best.kernels[1]
    assert isinstance(combine, BlockGraph)
    tiling = Tiling(best.scope, combine)
    # Neighbours along n lie side by side; one block would leave the other SMs idle.
    assert tiling.padded("n", 0) >= 32
    assert tiling.grid_blocks > 1


def test_every_kind_is_among_the_plans(lora: list[UGraph]) -> None:
    ranked = rank(lora, H200, 40)
    kinds = Counter(i.kind for i in ranked)
    assert len(ranked) <= 40
    assert all(kinds[kind] >= 2 for kind in ("one kernel", "split", "library"))
    # Y is of halves: what would add to it in parts rounds too often.
    assert kinds["atomic"] == 0
    assert len({i.name for i in ranked if i.kind == "split"}) >= 3
    assert all(is_legal(i.plan) for i in ranked)
    times = [i.estimate.time_us for i in ranked]
    assert times == sorted(times)


def test_same_input_same_ranking(lora: list[UGraph]) -> None:
    families = lora[::4]
    assert rank(families, H200, 24) == rank(families, H200, 24)


def test_the_shortlist_loses_no_best_plan(lora: list[UGraph]) -> None:
    families = lora[::8]
    best: dict[str, float] = {}
    for family in families:
        for instance in instances(family, H200, 10**6):
            known = best.setdefault(instance.name, instance.estimate.time_us)
            best[instance.name] = min(known, instance.estimate.time_us)
    first: dict[str, float] = {}
    for instance in rank(families, H200, 200):
        first.setdefault(instance.name, instance.estimate.time_us)
    for name, time_us in first.items():
        assert time_us == pytest.approx(best[name], rel=0.05)
    assert min(first.values()) == min(best.values())


def test_equal_kernels_are_ranked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = several_kernels.ugraph("split_rms_norm_matmul")
    partial, combine = graph.kernels
    assert isinstance(combine, BlockGraph)
    tilings: list[str] = []
    real = kernel_models.tilings

    def counted(scope, block, parts, **options):
        tilings.append(block.name)
        return real(scope, block, parts, **options)

    monkeypatch.setattr(kernel_models, "tilings", counted)
    other = replace(graph, kernels=(partial, replace(combine, name="other")))
    ranker = KernelRanker(H200)
    forms = [form_of(g, H200, {}) for g in (graph, other)]
    ranked = [ranker.ranked(form, n) for form in forms for n in (0, 1)]
    assert tilings == ["partial", "combine"]
    assert [r[0].kernel.name for r in ranked] == ["partial", "combine", "partial", "other"]
    assert ranked[1][0].estimate == ranked[3][0].estimate


def test_hopeless_families_are_not_tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = several_kernels.ugraph("residual_gated")
    spec = several_kernels.RESIDUAL_GATED.replace("D = 256, F = 200", "D = 8192, F = 20000")
    large = several_kernels.over(parse(spec), several_kernels.RESIDUAL_GATED_KERNELS)
    probed: list[UGraph] = []
    real = KernelRanker.probe_us

    def counted(self, form):
        probed.append(form.ugraph)
        return real(self, form)

    monkeypatch.setattr(KernelRanker, "probe_us", counted)
    forms = shortlist([large, graph, graph], KernelRanker(H200))
    assert HOPELESS * form_of(graph, H200, {}).lower_bound_us(H200) < form_of(
        large, H200, {}
    ).lower_bound_us(H200)
    assert large not in probed
    assert [f.family for f in forms] == [graph, graph]


def test_blocks_add_to_halves_only_if_there_is_nothing_else(lora: list[UGraph]) -> None:
    adding = [
        f for f in lora if any(isinstance(k, BlockGraph) and k.added_tensors for k in f.kernels)
    ]
    assert adding
    assert {i.kind for i in rank(adding, H200, 4)} == {"atomic"}


def test_parts_in_halves_take_turns_with_parts_in_floats() -> None:
    """The model sees next to no difference between them; the GPU does."""
    family = several_kernels.ugraph("split_attention")
    normalised = with_normalised_partials(family)
    assert normalised is not None
    found = rank([family, normalised], H200, 24)
    types = {tuple(t.dtype.name for t in i.plan.ugraph.intermediates) for i in found}
    assert len(types) == 2


def test_back_ends_that_share_their_tilings_rank_as_each_does_alone(lora: list[UGraph]) -> None:
    families = lora[::8]
    ours = rank(families, H200, 12, "cuda")
    others = rank(families, H200, 12, "triton")
    together = sorted([*others, *ours], key=lambda i: i.estimate.time_us)
    assert rank(families, H200, 24, "auto") == together


def test_of_plans_at_the_rate_of_memory_one_with_long_rows_is_first():
    program = parse("M = 8192, D = 4096\nX[M, D] : f16\nY[m, d] = relu(X[m, d]) * 3\n")
    families = search(program).families
    best = rank([f.ugraph for f in families], H200, 8)[0].plan
    (kernel,) = best.ugraph.kernels
    assert kernel.grid_tiles["d"] >= 1024
    assert best.options[0].num_warps > 1


def test_rows_that_fit_in_the_largest_cluster_alone_are_ranked():
    """The nominal number of blocks would have tiles of twice the size that fits."""
    program = parse("M = 16384, D = 512\nX[M, D] : f16\nY[m, d] = X[m, d] - max[m](X[m, d])\n")
    limits = SearchLimits(rings=("factored",), max_kernels=1, max_cluster_blocks=16)
    families = [f.ugraph for f in search(program, limits=limits).families]
    best = rank([f for f in families if kind_of(f) == "cluster"], H200, 8, "cuda")
    assert best
    (kernel,) = best[0].plan.ugraph.kernels
    assert Tiling(best[0].plan.ugraph.program, kernel).cluster_blocks == 16
