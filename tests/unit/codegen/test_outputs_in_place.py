"""Outputs in place, in both languages: one position of a cache is written, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.errors import CompileError, ScheduleError
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, F32, I64
from mirage_py.ugraph.ir.plan import Plan, chained
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.rewrite.placements import PLACE, Placement, placed

needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
HEADS, WIDE, PLACES = 4, 16, 6
CACHE = Tensor("K", (1, HEADS, PLACES, WIDE), BF16)
COUNT = Tensor("count", (), I64)


def plan() -> Plan:
    """K[0, h, 0, d] = 2 x[h, d]; Y[h] = sum of x over d."""
    b = ProgramBuilder("keys")
    b.dim("h", HEADS), b.dim("d", WIDE)
    b.input("x", (HEADS, WIDE), F32)
    x, zero = b.load("x", "hd"), ix.const(0)
    whole = one_kernel(_output(b, x), {"h": 2})
    assert whole.ugraph.program.outputs[0].index == (zero, ix.dim("h"), zero, ix.dim("d"))
    return whole


def _output(b: ProgramBuilder, x: int) -> object:
    from mirage_py.ugraph.building import views
    from mirage_py.ugraph.building.views import NamedArray

    doubled = b.apply("mul", x, b.const(2.0))
    views.output(b, "K", NamedArray(doubled, ((), ("h",), (), ("d",))), BF16)
    b.output("Y", b.sum(x, "d"), "h", F32)
    return b.build()


def in_place(tensor: Tensor = CACHE, axis: int = 2) -> Plan:
    position = ix.data("count", ()) + 1
    return placed(plan(), [Placement(0, tensor, axis, position, (COUNT,))])


def check(backend: str, count: int) -> None:
    run = run_emulated if backend == "cuda" else run_interpreted
    x = np.random.default_rng(0).integers(-8, 8, (HEADS, WIDE)).astype(float)
    found = run(replace(in_place(), backend=backend), {"x": x, "count": np.array(float(count))})
    np.testing.assert_array_equal(found["K"][0, :, count + 1], 2 * x)
    # Elsewhere there is what was there.
    assert np.isnan(np.delete(found["K"], count + 1, axis=2)).all()
    np.testing.assert_allclose(found["Y"], x.sum(-1))


BACKENDS = ["triton", pytest.param("cuda", marks=needs_compiler)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_position_is_written(backend: str):
    check(backend, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [PLACES - 1, -2])
def test_a_position_outside_ends_the_kernel(backend: str, count: int):
    with pytest.raises(CompileError):
        check(backend, count)


# From the back, and up to the end, where the places of a tile that are outside would be outside.
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("count", "rows"), [(-2, [4, 5, 0]), (3, [3, 4, 5])])
def test_consecutive_positions_are_written(backend: str, count: int, rows: list[int]):
    b = ProgramBuilder("keys")
    b.dim("s", 3), b.dim("d", WIDE)
    b.input("x", (3, WIDE), F32)
    _output_of_rows(b, b.load("x", "sd"))
    whole = replace(one_kernel(b.build(), {"s": 2}), backend=backend)
    position = ix.data("count", ()) + ix.dim(PLACE)
    if count < 0:
        position = position % PLACES
    cache = Tensor("K", (1, PLACES, WIDE), BF16)
    found = Placement(0, cache, 1, position, (COUNT,), 3)
    run = run_emulated if backend == "cuda" else run_interpreted
    x = np.random.default_rng(0).integers(-8, 8, (3, WIDE)).astype(float)
    made = run(placed(whole, [found]), {"x": x, "count": np.array(float(count))})["K"][0]
    np.testing.assert_array_equal(made[rows], 2 * x)
    assert np.isnan(np.delete(made, rows, axis=0)).all()


def test_positions_that_may_be_the_same_are_refused():
    b = ProgramBuilder("keys")
    b.dim("s", 3), b.dim("d", WIDE)
    b.input("x", (3, WIDE), F32)
    _output_of_rows(b, b.load("x", "sd"))
    whole = one_kernel(b.build(), {"s": 2})
    rows = Tensor("at", (3,), I64)
    for position, extent in ((ix.data("at", (ix.dim(PLACE),)), 6), (ix.dim(PLACE) % 2, 2)):
        cache = Tensor("K", (1, extent, WIDE), BF16)
        with pytest.raises(ScheduleError):
            placed(whole, [Placement(0, cache, 1, position, (rows,), 3)])


def _output_of_rows(b: ProgramBuilder, x: int) -> None:
    from mirage_py.ugraph.building import views
    from mirage_py.ugraph.building.views import NamedArray

    doubled = b.apply("mul", x, b.const(2.0))
    views.output(b, "K", NamedArray(doubled, ((), ("s",), ("d",))), BF16)


def test_a_link_waits_before_it_reads_the_position():
    from mirage_py.runtime.base.emission import emit_kernels

    for backend, wait, read in (
        ("triton", "gdc_wait()", "tl.load(count_ptr)"),
        ("cuda", "wait_for_kernel_before(x, count)", "= count[0]"),
    ):
        (kernel,) = emit_kernels(chained(replace(in_place(), backend=backend)))
        assert kernel.source.index(wait) < kernel.source.index(read)


@pytest.mark.parametrize(
    "tensor",
    [Tensor("K", (1, HEADS, PLACES, 2 * WIDE), BF16), Tensor("K", (HEADS, PLACES, WIDE), BF16)],
)
def test_the_other_axes_are_those_of_the_output(tensor: Tensor):
    with pytest.raises(ScheduleError):
        in_place(tensor)
