"""Library matmuls: the layouts that operands and results may have."""

from __future__ import annotations

import pytest
from unit.search import programs
from unit.search.kernels import FACTORED, of_kind

from mirage_py.axioms.saturation.saturate import saturate
from mirage_py.search.closure.closure import given_access
from mirage_py.search.closure.hits import draw
from mirage_py.search.enumerate.libraries import input_operands, library_matmuls, lies_as
from mirage_py.search.enumerate.search import search
from mirage_py.search.extract.family import LIBRARY
from mirage_py.search.space.abstraction import abstract
from mirage_py.search.space.spaces import representative_space
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F16
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall


def products(program):
    """Library products of inputs, as (left, right, contracted, axes of the result)."""
    form = abstract(program)
    table = saturate(form.roots, form.leaf_axes, axes=form.axes)
    values, _ = draw(program, representative_space(program), FIELDS[0], 0)
    inputs = input_operands(program, form.leaves, table, values)
    return [
        (p.left.leaf.name, p.right.leaf.name, p.contracted, "".join(p.dims))
        for p in library_matmuls(inputs, inputs, table, values)
    ]


def product(left, right, over, out, sizes=None, strides=None):
    """The program that contracts two inputs and takes the relu."""
    sizes = sizes or dict.fromkeys(dict.fromkeys(left + right), 16)
    s = programs.Spec("product", **sizes)
    for name, dims in (("X", left), ("W", right)):
        step = strides.get(name) if strides else None
        s.b.input(name, [sizes[d] for d in dims], F16, step)
    total = s.contract(s.b.load("X", list(left)), s.b.load("W", list(right)), over)
    s.output("Y", s.b.apply("relu", total), out)
    return s.b.build()


@pytest.mark.parametrize(
    ("left", "right", "over", "out"),
    [
        ("bd", "dn", "d", "bn"),
        ("btd", "dn", "d", "btn"),  # rows of rows
        ("hbd", "hdn", "d", "hbn"),  # batches
        ("ghbd", "ghdn", "d", "ghbn"),
    ],
)
def test_products_that_a_library_makes(left, right, over, out):
    name, weight = f"X[{', '.join(left)}]", f"W[{', '.join(right)}]"
    assert (name, weight, over, out) in products(product(left, right, over, out))


@pytest.mark.parametrize(
    ("left", "right", "over", "out"),
    [
        ("bd", "nd", "d", "bn"),  # a transposed weight
        ("db", "dn", "d", "bn"),  # a transposed left operand
        ("bhd", "hdn", "d", "bhn"),  # the batch is not the first axis
        ("hd", "hdn", "d", "hn"),  # a batch without rows
        ("htbd", "hdn", "d", "htbn"),  # a batch with rows of rows
        ("bd", "d", "d", "b"),  # a vector
        ("bhe", "hen", "he", "bn"),  # two contracted dimensions
        ("bd", "bdn", "d", "bn"),  # a batch of vectors
    ],
)
def test_products_that_it_does_not_make(left, right, over, out):
    assert products(product(left, right, over, out)) == []


def test_strided_operands_are_refused():
    sizes = {"b": 16, "d": 16, "n": 16}
    assert products(product("bd", "dn", "d", "bn", sizes))
    for name in ("X", "W"):
        strided = product("bd", "dn", "d", "bn", sizes, {name: (32, 1)})
        assert products(strided) == []


def test_a_part_of_a_tensor_is_refused():
    s = programs.Spec("part", b=16, d=16, n=16)
    s.b.input("X", [32, 16], F16)
    x = s.b.load("X", [ix.dim("b") + 16, ix.dim("d")])
    s.output("Y", s.b.apply("relu", s.contract(x, s.load("W", "dn"), "d")), "bn")
    assert products(s.b.build()) == []


def test_a_product_that_is_no_part_of_the_program_is_not_made():
    # X @ X and W @ W fit as shapes; neither is asked for.
    found = products(product("bd", "dn", "d", "bn"))
    assert [f[:2] for f in found] == [("X[b, d]", "W[d, n]")]


def test_how_a_tensor_lies():
    tensor = Tensor("Y", (4, 8), F16)
    assert lies_as(tensor, given_access("Y", "bn"), ("b", "n"))
    assert not lies_as(tensor, given_access("Y", "nb"), ("b", "n"))
    assert not lies_as(Tensor("Y", (4, 8), F16, (16, 1)), given_access("Y", "bn"), ("b", "n"))


def test_a_library_gives_an_output_only_as_it_lies():
    def library(out):
        s = programs.Spec("plain", b=16, d=64, n=32)
        s.output("Y", s.contract(s.load("X", "bd"), s.load("W", "dn"), "d"), out)
        return of_kind(search(s.b.build(), limits=FACTORED), LIBRARY)

    (family,) = library("bn")
    assert family.ugraph.kernels == (LibraryCall("matmul0", "matmul", ("X", "W"), "Y"),)
    assert family.origins == ()
    assert library("nb") == []
