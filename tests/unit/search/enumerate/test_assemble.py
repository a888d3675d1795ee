"""Assembled µGraphs: names, types and layouts of intermediates, and every output."""

from __future__ import annotations

import pytest
from unit.search import programs
from unit.search.kernels import ALL, found, of_kind

from mirage_py.search.extract.family import LIBRARY, SPLIT, TWO_KERNELS
from mirage_py.targets import H200
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.dtypes import F16, F32, I32
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall


def normalised(names=("X", "W", "Y"), finish=lambda s, x, total: None, **sizes):
    """x / sum(x^2) @ W; ``finish`` may add outputs before."""
    s = programs.Spec("normalised", **(sizes or {"b": 16, "d": 64, "n": 64}))
    x = s.load(names[0], "bd")
    total = s.b.sum(s.b.apply("square", x), "d")
    finish(s, x, total)
    product = s.contract(s.b.apply("div", x, total), s.load(names[1], "dn"), "d")
    s.output(names[2], product, "bn")
    return s.b.build()


def all_valid(program):
    families = found(program).families
    assert {f.kind for f in families} >= {TWO_KERNELS}
    for family in families:
        validate_ugraph(family.ugraph)
    return families


def test_intermediates_take_names_that_are_free():
    families = all_valid(normalised(("mid0", "product0", "part0")))
    names = {t.name for f in families for t in f.ugraph.intermediates}
    assert {"mid0_", "product0_", "part0_"} <= names
    assert not {"mid0", "product0", "part0"} & names


def test_a_dimension_may_have_such_a_name():
    s = programs.Spec("dims", mid0=16, d=64)
    s.b.input("X", [16, 64], F16)
    x = s.b.load("X", ["mid0", "d"])
    scaled = s.b.apply("div", x, s.b.sum(s.b.apply("square", x), "d"))
    s.b.output("Y", s.b.sum(s.b.apply("exp", scaled), ["d"]), ["mid0"], F16)
    families = all_valid(s.b.build())
    assert all(t.name != "mid0" for f in families for t in f.ugraph.intermediates)


def test_kernels_have_names_of_their_own():
    for family in all_valid(normalised()):
        names = [k.name for k in family.ugraph.kernels]
        assert len(names) == len(dict.fromkeys(names))


@pytest.mark.parametrize("name", ["2layers", "lambda", "a.b c", "matmul0"])
def test_a_program_may_be_named_after_any_file(name):
    families = all_valid(normalised().renamed(name))
    for family in families:
        names = [k.name for k in family.ugraph.kernels]
        assert len(names) == len(dict.fromkeys(names))


def test_sums_stay_in_float32_and_partial_results_lie_part_by_part():
    for family in of_kind(found(programs.rmsnorm_matmul()), SPLIT):
        first, _ = family.ugraph.kernels
        assert all(t.dtype == F32 for t in family.ugraph.intermediates)
        assert all(t.shape[0] == 8 for t in family.ugraph.intermediates)
        for _, store in first.stores():
            assert str(store.access.index[0]) == "d_part"


def test_a_library_operand_has_the_type_of_the_weight():
    families = of_kind(found(programs.rmsnorm_matmul()), LIBRARY)
    calls = [(f, k) for f in families for k in f.ugraph.kernels if isinstance(k, LibraryCall)]
    assert calls
    for family, call in calls:
        types = [family.ugraph.tensors[t].dtype for t in call.args]
        assert types == [F16, F16]


def test_labels_do_not_change_the_type_of_what_products_read():
    s = programs.Spec("labelled", b=16, d=64, k=64, n=64)
    s.b.input("L", [16], I32)
    x = s.load("X", "bd")
    hidden = s.contract(
        s.b.apply("div", x, s.b.sum(s.b.apply("square", x), "d")), s.load("A", "dk"), "d"
    )
    shifted = s.b.apply("add", s.contract(hidden, s.load("B", "kn"), "k"), s.b.load("L", ["b"]))
    s.output("Y", shifted, "bn")
    stored = [t for f in found(s.b.build()).families for t in f.ugraph.intermediates]
    assert F16 in {t.dtype for t in stored if t.name.startswith("mid")}


def test_what_blocks_read_otherwise_is_float32():
    families = of_kind(found(programs.rmsnorm_matmul()), TWO_KERNELS)
    sums = [t for f in families for t in f.ugraph.intermediates if t.shape == (16,)]
    assert sums
    assert all(t.dtype == F32 for t in sums)


def test_two_outputs_of_one_value_are_both_stored():
    def finish(s, x, total):
        s.output("T", total, "b")
        s.output("U", total, "b")

    families = all_valid(normalised(finish=finish))
    # The first kernel stores one of them, and the second copies it to the other.
    first = [{n.access.tensor for _, n in f.ugraph.kernels[0].stores()} for f in families
             if isinstance(f.ugraph.kernels[0], BlockGraph)]  # fmt: skip
    assert {"T"} in first


def test_an_output_that_is_an_input_is_stored():
    families = all_valid(normalised(finish=lambda s, x, total: s.output("R", x, "bd")))
    for family in families:
        stored = [n.access.tensor for k in family.ugraph.kernels if isinstance(k, BlockGraph)
                  for _, n in k.stores()]  # fmt: skip
        assert stored.count("R") == 1


def test_an_output_that_is_a_constant_is_stored():
    all_valid(normalised(finish=lambda s, x, total: s.output("C", s.b.const(2.0), "")))


def test_an_output_that_repeats_its_value_is_stored():
    all_valid(normalised(finish=lambda s, x, total: s.output("R", total, "bn")))


def test_an_output_may_lie_in_another_order_than_its_value():
    s = programs.Spec("turned", b=16, d=64, k=32, n=32)
    hidden = s.contract(s.load("X", "bd"), s.load("W", "dk"), "d")
    s.output("H", hidden, "kb")
    s.output("Y", s.b.apply("relu", s.contract(hidden, s.load("V", "kn"), "k")), "bn")
    families = all_valid(s.b.build())
    assert of_kind(found(s.b.build()), LIBRARY)
    read = [str(n.access) for f in families for n in f.ugraph.kernels[-1].nodes if n.op == "load"]
    assert "H[k, b]" in read


@pytest.mark.parametrize("name", ["rmsnorm_matmul", "lora"])
def test_the_cost_has_every_kernel_and_every_launch(name):
    for family in found(ALL[name]()).families:
        launches_us = (len(family.ugraph.kernels) - 1) * H200.launch_us
        assert family.cost_us > launches_us
