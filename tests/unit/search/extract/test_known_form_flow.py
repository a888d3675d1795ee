"""The nodes of all kernels as one graph."""

from __future__ import annotations

import pytest
from oracles.known_forms.flow import Flow
from unit.search.kernels import example, of_kind

from mirage_py.search.extract.family import LIBRARY, ONE_KERNEL, SPLIT, TWO_KERNELS


def flows(name, kind):
    return [Flow(f.ugraph) for f in of_kind(example(f"{name}.math"), kind)]


def the(flow, *ops):
    (number,) = flow.all_of(*ops)
    return number


@pytest.fixture
def split():
    """Two kernels: partial sums and matmuls of splits, then their sums and the division."""
    return flows("rmsnorm_matmul", SPLIT)[0]


def test_what_one_kernel_stores_feeds_the_kernel_that_loads_it(split):
    product, division = the(split, "matmul"), list(split.all_of("div"))[-1]
    assert split.values[product].kernel == 0
    assert split.values[division].kernel == 1
    assert split.feeds(product, division)
    assert not split.feeds(division, product)


def test_a_sum_that_ends_a_split_reduction_counts_as_elementwise(split):
    assert split.parts == ("d_part",)
    product, division = the(split, "matmul"), list(split.all_of("div"))[-1]
    numerator, divisor = split.values[division].args
    assert split.origins(numerator, "matmul", "sum") == [product]
    # The sum of squares within a part is a reduction of its own.
    (squares,) = split.origins(divisor, "matmul", "sum")
    assert split.values[squares].kernel == 0
    assert split.is_elementwise_in(product, numerator)
    assert not split.is_elementwise_in(split.values[product].args[0], numerator)


def test_tensors_are_the_inputs_behind_a_value(split):
    product = the(split, "matmul")
    division = list(split.all_of("div"))[-1]
    assert split.tensors(product) == {"X", "G", "W"}
    assert split.tensors(split.values[division].args[1]) == {"X"}
    (load,) = [n for n in split.all_of("load") if split.values[n].tensor == "W"]
    assert split.tensors(load) == {"W"}


def test_a_library_call_is_a_product():
    for flow in flows("gated_mlp", LIBRARY):
        for call in [p for p in flow.all_of("matmul") if flow.values[p].is_library]:
            assert flow.values[call].dims == ("b", "n")
            assert flow.values[call].reduced == ("d",)
            operands = [flow.values[a].tensor for a in flow.values[call].args]
            assert operands in (["X", "W1"], ["X", "W2"])
            (gate,) = flow.all_of("mul")
            assert flow.feeds(call, gate)


def test_a_library_call_reads_what_a_kernel_stored():
    ends = [f for f in flows("rmsnorm_matmul", LIBRARY) if f.values[-1].is_library]
    assert ends
    for flow in ends:
        assert flow.values[-1].dims == ("b", "n")
        assert flow.tensors(len(flow.values) - 1) == {"X", "G", "W"}
        assert flow.sources(len(flow.values) - 1, "sum")


def test_loops():
    one_loop = [f for f in flows("gated_mlp", ONE_KERNEL) if f.loops_over(0, "d") == 1]
    for flow in one_loop:
        one, other = flow.all_of("matmul")
        (gate,) = flow.all_of("mul")
        assert flow.is_in_one_loop(one, other)
        assert not flow.is_in_one_loop(one, gate)
        assert not flow.is_in_one_loop(gate, gate)
    assert one_loop


def test_what_is_stored():
    for flow in flows("attention", TWO_KERNELS):
        shapes = [t.shape for t in flow.ugraph.intermediates]
        assert flow.stores_over("h", "t", "s") == ((2, 256, 4096) in shapes)
        assert flow.stores_over("h", "t", "e")


def test_users():
    flow = next(f for f in flows("lora", ONE_KERNEL) if not f.loops_over(0, "d"))
    (x,) = [n for n in flow.all_of("load") if flow.values[n].tensor == "X"]
    assert {flow.values[n].op for n in flow.users(x)} == {"matmul"}
