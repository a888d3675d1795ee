"""Hand-written forms are found, recognised by structure; and each can be missing.

For the six programs of the Mirage paper the claim is tested twice: by the name of the form, and by
the operators of the kernels written out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from families import stabilize
from oracles.known_forms.registry import KNOWN_FORMS, forms_of, forms_of_ugraph
from unit.search import programs
from unit.search.kernels import block_of, example, found, loops_of, named, of_kind, ops_after_loops

from mirage_py.search.extract.family import ATOMIC, LIBRARY, ONE_KERNEL, SPLIT, TWO_KERNELS
from mirage_py.ugraph.ir.ugraph import LibraryCall

ONE_LOOP = "matmul before division, both sums in one loop"
TWO_LOOPS = "sum loop, then matmul loop"
NORMALISED = "normalise, then matmul"
NORMALISING_KERNEL = "normalising kernel, then matmul"
FOLDED = "normalisation folded behind the product"
NTRANS = "one-kernel nTrans"
BOTH_PRODUCTS = "both products in one loop"
LORA = "one-kernel LoRA"
CONCATENATED = "concatenated LoRA"
MERGED = "merged low-rank weights"
ACTIVATION = "fused activation"
PROJECTION = "gated product, then projection"
FUSED = "fused attention"
QK_NORM = "QK-norm folded into attention"
SPLIT_KV = "split-KV attention with combining kernel"
ATTENTION_PROJECTION = "attention, then projection"
STREAMED = "streamed log-sum-exp"
SPLIT_SUM = "split log-sum-exp with combining kernel"
SPLIT_K = "split-K with combining kernel"
SPLIT_K_ATOMIC = "split-K with atomic sum"
EPILOGUE = "library matmul, fused epilogue"
PROLOGUE = "fused prologue, library matmul"
FIRST_BLOCK = "output stored by the first block"


def with_form(name, form, kind=None):
    return [f for f, forms in named(name) if form in forms and kind in (None, f.kind)]


def without_form(name, form, kind=None):
    return [f for f, forms in named(name) if form not in forms and kind in (None, f.kind)]


# -- what is found for the programs of the paper ---------------------------------------------------


def test_rmsnorm_multiplies_before_it_divides_and_sums_in_one_loop():
    families = with_form("rmsnorm_matmul", ONE_LOOP, ONE_KERNEL)
    body = ["accum_sum", "accum_sum", "load", "load", "load", "matmul", "mul", "square", "sum"]
    alike = [f for f in families if loops_of(block_of(f)) == [("d", body)]]
    assert alike
    assert all("div" in ops_after_loops(block_of(f)) for f in alike)


def test_gated_mlp_makes_both_products_in_one_loop():
    (family,) = with_form("gated_mlp", BOTH_PRODUCTS, ONE_KERNEL)
    body = ["accum_sum", "accum_sum", "load", "load", "load", "matmul", "matmul"]
    assert loops_of(block_of(family)) == [("d", body)]
    assert ops_after_loops(block_of(family)) == ["silu", "mul", "store"]


def test_lora_is_one_kernel():
    bodies = [loops_of(block_of(f)) for f in with_form("lora", LORA, ONE_KERNEL)]
    assert [("d", ["accum_sum", "accum_sum", "load", "load", "load", "matmul", "matmul"])] in bodies
    assert all(len(f.ugraph.kernels) == 1 for f in with_form("lora", LORA))


def test_lora_in_its_concatenated_form_has_one_accumulator():
    (family,) = with_form("lora", CONCATENATED, ONE_KERNEL)
    body = ["accum_sum", "add", "load", "load", "load", "matmul", "matmul", "matmul"]
    assert loops_of(block_of(family)) == [("d", body)]
    assert ops_after_loops(block_of(family)) == ["store"]


def test_attention_is_fused():
    (family,) = with_form("attention", FUSED, ONE_KERNEL)
    body = ["accum_sum", "accum_sum", "exp", "load", "load", "matmul", "matmul", "sum"]
    assert loops_of(block_of(family)) == [("s", body)]
    assert ops_after_loops(block_of(family)) == ["div", "store"]


def test_attention_is_split_over_the_keys():
    for family in with_form("attention", SPLIT_KV):
        first, last = family.ugraph.kernels
        assert {a.dim for a in first.grid} >= {"s_part"}
        assert [n.op for n in first.nodes].count("matmul") == 2
        assert [n.op for n in last.nodes if n.op in ("sum", "matmul", "exp")] == ["sum", "sum"]
        assert "div" in [n.op for n in last.nodes]
    looped = [loops_of(f.ugraph.kernels[0]) for f in with_form("attention", SPLIT_KV)]
    body = ["accum_sum", "accum_sum", "exp", "load", "load", "matmul", "matmul", "sum"]
    assert [("s", body)] in looped


def test_qk_norm_is_folded_into_the_loop_of_attention():
    families = with_form("qknorm_attention", QK_NORM, ONE_KERNEL)
    assert families
    for family in families:
        assert FUSED in forms_of(family)
        ((loop, body),) = loops_of(block_of(family))
        assert loop == "s"
        # The keys' own norm is a sum within the tile of the loop.
        assert body.count("square") == 1
        assert body.count("sum") == 2
        assert body.count("matmul") == 2


def test_ntrans_is_one_kernel():
    families = with_form("ntrans", NTRANS)
    assert families
    assert any(len(loops_of(block_of(f))) == 3 for f in families)
    assert any(loops_of(block_of(f)) == [] for f in families)
    for family in families:
        assert [n.op for n in block_of(family).nodes].count("store") == 1


@pytest.mark.parametrize(
    ("name", "form", "kind"),
    [
        ("rmsnorm_matmul", TWO_LOOPS, ONE_KERNEL),
        ("rmsnorm_matmul", NORMALISED, ONE_KERNEL),
        ("rmsnorm_matmul", NORMALISING_KERNEL, TWO_KERNELS),
        ("rmsnorm_matmul", FOLDED, SPLIT),
        ("rmsnorm_matmul", SPLIT_K, SPLIT),
        ("rmsnorm_matmul", EPILOGUE, LIBRARY),
        ("rmsnorm_matmul", PROLOGUE, LIBRARY),
        ("rmsnorm_matmul", FIRST_BLOCK, SPLIT),
        ("gated_mlp", SPLIT_K, SPLIT),
        ("gated_mlp", EPILOGUE, LIBRARY),
        ("gated_mlp", ACTIVATION, ONE_KERNEL),
        ("lora", MERGED, ONE_KERNEL),
        ("lora", SPLIT_K_ATOMIC, ATOMIC),
        ("lora", CONCATENATED, ATOMIC),
        ("attention", PROLOGUE, LIBRARY),
        ("qknorm_attention", SPLIT_KV, SPLIT),
        ("cross_entropy", STREAMED, ONE_KERNEL),
        ("cross_entropy", SPLIT_SUM, SPLIT),
    ],
)
def test_other_forms_of_these_programs(name, form, kind):
    assert with_form(name, form, kind)


# -- each form can be missing ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "has", "lacks"),
    [
        (ONE_LOOP, "rmsnorm_matmul", ("gated_mlp", "lora", "ntrans", "softmax", "cross_entropy")),
        (TWO_LOOPS, "rmsnorm_matmul", ("gated_mlp", "lora", "ntrans", "softmax")),
        (NORMALISED, "rmsnorm_matmul", ("gated_mlp", "lora", "ntrans", "softmax")),
        (NORMALISING_KERNEL, "rmsnorm_matmul", ("gated_mlp", "lora", "ntrans", "softmax")),
        (FOLDED, "rmsnorm_matmul", ("gated_mlp", "lora", "ntrans", "softmax")),
        (NTRANS, "ntrans", ("rmsnorm_matmul", "layernorm_linear", "softmax", "qknorm_attention")),
        (BOTH_PRODUCTS, "gated_mlp", ("rmsnorm_matmul", "lora", "attention", "qknorm_attention")),
        (LORA, "lora", ("gated_mlp", "attention", "layernorm_linear")),
        (CONCATENATED, "lora", ("gated_mlp", "attention", "layernorm_linear")),
        (MERGED, "lora", ("gated_mlp", "attention", "rmsnorm_matmul")),
        (ACTIVATION, "gated_mlp", ("lora", "attention", "rmsnorm_matmul")),
        (PROJECTION, "residual_norm_mlp_down", ("gated_mlp", "lora", "attention")),
        (FUSED, "attention", ("lora", "gated_mlp", "softmax", "cross_entropy", "ntrans")),
        (QK_NORM, "qknorm_attention", ("attention", "rmsnorm_matmul", "ntrans")),
        (SPLIT_KV, "attention", ("lora", "gated_mlp", "rmsnorm_matmul", "cross_entropy")),
        (STREAMED, "cross_entropy", ("attention", "softmax", "gated_mlp")),
        (SPLIT_SUM, "cross_entropy", ("attention", "softmax", "gated_mlp")),
        (SPLIT_K, "gated_mlp", ("softmax", "ntrans")),
        (SPLIT_K_ATOMIC, "lora", ("gated_mlp", "rmsnorm_matmul", "attention", "softmax")),
        (EPILOGUE, "gated_mlp", ("softmax", "ntrans")),
        (PROLOGUE, "rmsnorm_matmul", ("gated_mlp", "softmax", "ntrans")),
        (FIRST_BLOCK, "rmsnorm_matmul", ("gated_mlp", "softmax", "ntrans")),
    ],
)
def test_a_form_is_had_by_some_families_and_not_by_others(form, has, lacks):
    assert with_form(has, form)
    assert without_form(has, form)
    for name in lacks:
        assert with_form(name, form) == [], name


def test_two_kernels_are_no_one_kernel_form():
    for name, form in (("lora", LORA), ("lora", CONCATENATED), ("ntrans", NTRANS)):
        assert without_form(name, form, TWO_KERNELS)
        assert not with_form(name, form, TWO_KERNELS)


def test_a_loop_of_sums_and_a_loop_of_products_are_not_one():
    for family in with_form("rmsnorm_matmul", TWO_LOOPS, ONE_KERNEL):
        assert ONE_LOOP not in forms_of(family)
        assert len(loops_of(block_of(family))) == 2


def test_two_accumulators_are_no_concatenation():
    body = ["accum_sum", "accum_sum", "load", "load", "load", "matmul", "matmul", "matmul"]
    (family,) = [
        f for f in of_kind(example("lora.math"), ONE_KERNEL)
        if loops_of(block_of(f)) == [("d", body)] and LORA in forms_of(f)
    ]  # fmt: skip
    assert CONCATENATED not in forms_of(family)


def test_merged_weights_are_no_low_rank_path():
    for family in with_form("lora", MERGED, ONE_KERNEL):
        assert LORA not in forms_of(family)


def test_attention_whose_scores_are_stored_is_not_fused():
    families = of_kind(example("attention.math"), TWO_KERNELS)
    storing = [f for f in families if (2, 256, 4096) in [t.shape for t in f.ugraph.intermediates]]
    assert storing
    assert all(FUSED not in forms_of(f) for f in storing)


def test_attention_in_two_passes_over_the_keys_is_not_fused():
    for family in of_kind(example("attention.math"), ONE_KERNEL):
        over_keys = [loop for loop, _ in loops_of(block_of(family)) if loop == "s"]
        assert (FUSED in forms_of(family)) == (over_keys == ["s"])


def test_attention_split_over_features_is_no_split_kv():
    families = of_kind(example("attention.math"), SPLIT)
    over_features = [f for f in families if "d_part" in f.ugraph.program.sizes]
    assert over_features
    assert all(SPLIT_KV not in forms_of(f) for f in over_features)


def test_attention_without_an_exponential_is_not_attention():
    names = {x for f in found(programs.linear_attention()).families for x in forms_of(f)}
    assert not {FUSED, SPLIT_KV, QK_NORM} & names


def test_norms_that_another_kernel_takes_are_not_folded_in():
    fused = with_form("qknorm_attention", FUSED, TWO_KERNELS)
    elsewhere = [
        f for f in fused if "square" not in [n.op for n in f.ugraph.kernels[1].nodes]
        and "div" in [n.op for n in f.ugraph.kernels[0].nodes]
    ]  # fmt: skip
    assert elsewhere
    assert all(QK_NORM not in forms_of(f) for f in elsewhere)


def test_products_that_are_added_are_not_gated():
    names = {x for f in found(programs.two_contractions()).families for x in forms_of(f)}
    assert BOTH_PRODUCTS not in names


def test_a_library_alone_has_neither_prologue_nor_epilogue():
    s = programs.Spec("plain", b=16, d=64, n=32)
    s.output("Y", s.contract(s.load("X", "bd"), s.load("W", "dn"), "d"), "bn")
    (family,) = of_kind(found(s.b.build()), LIBRARY)
    assert isinstance(family.ugraph.kernels[0], LibraryCall)
    assert forms_of(family) == ()


# -- the registry ----------------------------------------------------------------------------------


def test_names_are_distinct_and_each_has_a_sentence():
    names = [form.name for form in KNOWN_FORMS]
    assert len(names) == len(dict.fromkeys(names))
    for form in KNOWN_FORMS:
        assert form.sentence.endswith(".")
        assert form.sentence == " ".join(form.sentence.split())


def test_no_name_of_a_program_a_tensor_or_a_dimension_matters():
    s = programs.Spec("other", x=16, k=4096, y=6144)
    a, w = s.load("Left", "xk"), s.load("Right", "ky")
    mean = s.b.mean(s.b.apply("square", a), "k")
    root = s.b.apply("sqrt", s.b.apply("add", mean, s.b.const(1e-6)))
    s.output("Out", s.contract(s.b.apply("div", a, root), w, "k"), "xy")
    names = {x for f in found(s.b.build()).families for x in forms_of(f)}
    assert {ONE_LOOP, TWO_LOOPS, NORMALISED, NORMALISING_KERNEL, SPLIT_K, EPILOGUE} <= names


def test_a_stabilised_family_keeps_its_form():
    for name, form in (("attention", FUSED), ("attention", SPLIT_KV)):
        for family in with_form(name, form):
            assert form in forms_of_ugraph(stabilize(family.ugraph))


def test_forms_do_not_depend_on_tiles():
    (family,) = with_form("attention", FUSED, ONE_KERNEL)
    block = block_of(family)
    grid = tuple(replace(axis, tile=16) for axis in block.grid)
    sections = tuple(replace(s, tile=64 if s.loop else None) for s in block.sections)
    tiled = replace(family.ugraph, kernels=(replace(block, grid=grid, sections=sections),))
    assert forms_of_ugraph(tiled) == forms_of(family)
