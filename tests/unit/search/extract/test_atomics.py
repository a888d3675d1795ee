"""Sums over splits by atomic additions: only if nothing follows them, and no exponential."""

from __future__ import annotations

import pytest
from unit.search import programs
from unit.search.kernels import ALL, found, of_kind

from mirage_py.search.extract.family import ATOMIC, SPLIT
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.verify.field_test.field_test import field_test


def atomics(program):
    return of_kind(found(program), ATOMIC)


def product(finish=lambda s, total: total, b=16, d=512, n=64):
    s = programs.Spec("product", b=b, d=d, n=n)
    total = s.contract(s.load("X", "bd"), s.load("W", "dn"), "d")
    s.output("Y", finish(s, total), "bn")
    return s.b.build()


def test_a_product_is_split_without_a_second_kernel():
    program = product()
    families = atomics(program)
    assert families
    for family in families:
        (block,) = family.ugraph.kernels
        validate_ugraph(family.ugraph)
        (store,) = [n for _, n in block.stores()]
        assert store.op == "store_add"
        assert block.summed_axes(store) == ("d_part",)
        assert family.ugraph.intermediates == ()
        assert len(family.origins) == 1
        assert field_test(program, family.ugraph, trials=1, seed=0).equal


@pytest.mark.parametrize(
    "finish",
    [
        lambda s, total: s.b.apply("relu", total),
        lambda s, total: s.b.apply("add", total, s.load("C", "n")),
        lambda s, total: s.b.apply("div", total, s.load("C", "n")),
        lambda s, total: s.b.apply("mul", total, total),
    ],
)
def test_not_where_something_follows_the_sum(finish):
    result = found(product(finish))
    assert of_kind(result, SPLIT)
    for family in of_kind(result, ATOMIC):
        # A linear operator may be moved before the sum; then nothing follows it.
        assert field_test(product(finish), family.ugraph, trials=1, seed=0).equal
        ops = [n.op for n in family.ugraph.kernels[0].nodes]
        assert not {"relu", "maximum", "square", "add"} & {*ops}


def test_never_with_an_exponential():
    s = programs.Spec("weights", b=16, d=512, n=64)
    weights = s.b.apply("exp", s.load("X", "bd"))
    s.output("Y", s.contract(weights, s.load("W", "dn"), "d"), "bn")
    result = found(s.b.build())
    assert of_kind(result, SPLIT)
    assert of_kind(result, ATOMIC) == []


def test_never_for_a_maximum():
    s = programs.Spec("peak", b=16, d=512)
    s.output("Y", s.b.max(s.load("X", "bd"), "d"), "b")
    result = found(s.b.build())
    assert of_kind(result, SPLIT)
    assert of_kind(result, ATOMIC) == []


@pytest.mark.parametrize("name", ["rmsnorm_matmul", "attention", "gated_mlp"])
def test_programs_that_end_in_something_else(name):
    assert atomics(ALL[name]()) == []


def test_every_output_must_be_such_a_sum():
    def both(second):
        s = programs.Spec("both", b=16, d=512, n=64)
        x = s.load("X", "bd")
        s.output("Y", s.contract(x, s.load("W", "dn"), "d"), "bn")
        s.output("Z", second(s, s.b.sum(x, "d")), "b")
        return s.b.build()

    families = atomics(both(lambda s, total: total))
    assert families
    for family in families:
        (block,) = family.ugraph.kernels
        assert block.added_tensors == tuple(
            dict.fromkeys(n.access.tensor for _, n in block.stores())
        )
        assert {*block.added_tensors} == {"Y", "Z"}
    assert atomics(both(lambda s, total: s.b.apply("sqrt", total))) == []


def test_two_outputs_of_one_sum_are_no_atomic_sums():
    s = programs.Spec("twice", b=16, d=512)
    total = s.b.sum(s.load("X", "bd"), "d")
    s.output("Y", total, "b")
    s.output("Z", total, "b")
    for family in found(s.b.build()).families:
        validate_ugraph(family.ugraph)
