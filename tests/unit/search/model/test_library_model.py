"""Predicted costs of library calls."""

from __future__ import annotations

import pytest

from mirage_py.search.model.library_model import clearing_us, library_estimate
from mirage_py.search.model.model_constants import constants_of
from mirage_py.targets import H200
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.dtypes import F16, F32, DType
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph


def product(m: int, k: int, n: int, dtype: DType = F16) -> UGraph:
    builder = ProgramBuilder("product")
    for name, size in (("m", m), ("k", k), ("n", n)):
        builder.dim(name, size)
    builder.input("A", (m, k), dtype)
    builder.input("B", (k, n), dtype)
    both = builder.matmul(builder.load("A", ("m", "k")), builder.load("B", ("k", "n")), ("k",))
    builder.output("C", both, ("m", "n"), dtype)
    return UGraph(builder.build(), (LibraryCall("call", "matmul", ("A", "B"), "C"),))


def time_us(graph: UGraph, cached: tuple[str, ...] = ()) -> float:
    (call,) = graph.kernels
    assert isinstance(call, LibraryCall)
    start_us = H200.launch_us + constants_of(H200).library_us
    return library_estimate(call, graph, H200, cached).time_us - start_us


def test_few_rows_wait_for_memory() -> None:
    graph = product(16, 4096, 6144)
    moved = 2 * (16 * 4096 + 4096 * 6144 + 16 * 6144)
    share = constants_of(H200).library_memory
    assert time_us(graph) == pytest.approx(moved / (share * H200.dram_bytes_per_us))
    # What the L2 holds already is read at the cache's rate.
    cached = time_us(graph, ("A", "B", "C"))
    assert cached == pytest.approx(moved / H200.l2_bytes_per_us)


def test_many_rows_wait_for_the_tensor_cores() -> None:
    flops = 2 * 8192**3
    assert time_us(product(8192, 8192, 8192)) == pytest.approx(
        flops / (constants_of(H200).library_tensor * H200.tensor_flops_per_us)
    )


def test_products_of_float32_are_slow() -> None:
    assert time_us(product(2048, 2048, 2048, F32)) > 8 * time_us(product(2048, 2048, 2048))


def test_few_tiles_leave_sms_idle() -> None:
    # One tile of the result: at most a few SMs share its sum.
    small = time_us(product(128, 65536, 128))
    assert small > 2 * (2 * 128 * 65536 * 128) / H200.tensor_flops_per_us


def test_clearing_is_a_launch_and_a_write() -> None:
    tensor = Tensor("Y", (1024, 1024), F32)
    assert clearing_us(tensor, H200) == pytest.approx(
        H200.launch_us + 4 * 1024 * 1024 / H200.dram_bytes_per_us
    )
    assert clearing_us(tensor, H200, ("Y",)) < clearing_us(tensor, H200)


@pytest.mark.parametrize("last", [True, False])
def test_depthwise_convolutions_are_far_from_the_rate_of_memory(last: bool) -> None:
    image = ("n", "0", "1", "g") if last else ("n", "g", "0", "1")
    spec = Convolution((image, ("g", "0", "1"), image), 128, (112, 112), (1, 1), (1, 1), (1, 1))
    shape = (32, 112, 112, 128) if last else (32, 128, 112, 112)
    inputs = Tensor("x", shape, F16), Tensor("w", (128, 3, 3), F16)
    call = LibraryCall("call", "convolution", ("x", "w"), "y", spec)
    output = Output(Tensor("y", shape, F16), 0, ())
    graph = UGraph(Program("depthwise", (), inputs, (), (output,)), (call,))
    # 91 and 497 us were measured on an H200, where its bytes take 49.
    assert time_us(graph) == pytest.approx(91 if last else 497, rel=0.15)
