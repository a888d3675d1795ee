"""Plans that compute each row alike: what is refused, and bit by bit what the others compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plans import attention_plan, rms_plan

import mirage_py
from mirage_py.errors import InputError, UnsupportedError
from mirage_py.pipeline.pipeline import Request, run
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.checks.row_invariance import (
    why_no_rows,
    why_rows_meet,
    with_invariant_rows,
)
from mirage_py.ugraph.ir.launch_choices import RescalingMode
from mirage_py.ugraph.ir.ugraph import LibraryCall

PLAN = rms_plan()
(KERNEL,) = PLAN.ugraph.kernels
MLP = """
B = 16, D = 40, F = 24
X[B, D], U[D, F], W[D, F] : f16
Y[b, f] = silu(sum[d](X[b, d] * U[d, f])) * sum[d](X[b, d] * W[d, f])
"""
CAUSAL = """
T = 8, S = 8, D = 4
Q[T, D], K[S, D], V[S, D] : f16
let scores[t, s] = where(s <= t, sum[d](Q[t, d] * K[s, d]), -inf)
O[t, e] = sum[s]( softmax[s](scores[t, s]) * V[s, e] )
"""


def with_kernel(*kernels):
    return replace(PLAN, ugraph=replace(PLAN.ugraph, kernels=kernels))


def adding():
    stores = (replace(n, op="store_add") if n.op == "store" else n for n in KERNEL.nodes)
    return with_kernel(replace(KERNEL, nodes=tuple(stores)))


def test_rows_of_a_plan():
    assert why_rows_meet(PLAN, ["b"]) == ""
    assert why_rows_meet(PLAN, ["b", "n"]) == ""
    assert why_rows_meet(PLAN, []) == ""


@pytest.mark.parametrize(
    ("plan", "row", "why"),
    [
        (PLAN, "d", "reduces over 'd'"),
        (with_kernel(LibraryCall("mm", "matmul", ("X", "W"), "Y")), "b", "a library computes mm"),
        (adding(), "b", "blocks add to Y in the order of their arrival"),
        (
            with_kernel(replace(KERNEL, grid=tuple(a for a in KERNEL.grid if a.dim != "b"))),
            "b",
            "holds all of 'b'",
        ),
        (
            with_kernel(
                replace(KERNEL, grid=tuple(replace(a, cluster=a.dim == "b") for a in KERNEL.grid))
            ),
            "b",
            "blocks of a cluster share 'b'",
        ),
        (replace(PLAN, backend="cuda"), "b", "sizes written in"),
        (
            replace(PLAN, options=(replace(PLAN.options[0], rescaling=RescalingMode.OPTIMISTIC),)),
            "b",
            "a warp votes",
        ),
    ],
)
def test_plans_in_which_rows_meet(plan, row, why):
    assert why in why_rows_meet(plan, [row])


def test_dimensions_that_are_no_rows():
    program = mirage_py.parse(CAUSAL)
    assert why_no_rows(program, ["e"]) == ""
    assert "a mask compares positions of 't'" in why_no_rows(program, ["t"])
    assert "reduces over 'd'" in why_no_rows(program, ["d"])
    assert "no dimension 'z'" in why_no_rows(program, ["z"])
    with pytest.raises(UnsupportedError, match="t cannot be rows"):
        mirage_py.optimize(program, target="h200", invariant=["t"])
    with pytest.raises(InputError, match="no dimension 'z'") as caught:
        mirage_py.optimize(program, target="h200", invariant=["e", "z"])
    assert caught.value.why == f"its dimensions are {', '.join(program.dim_names)}"
    # A name alone was taken for the list of its letters.
    with pytest.raises(InputError, match="no dimension 'es'"):
        mirage_py.optimize(program, target="h200", invariant="es")


def found_plan():
    program = mirage_py.parse(MLP)
    result = run(program, Request("h200", "auto", "none", rows=("b",)))
    return result.plan


@pytest.mark.parametrize(
    ("plan", "row", "shared"),
    [
        (lambda: with_invariant_rows(rms_plan(), ["b"]), "b", ("G", "W")),
        (lambda: with_invariant_rows(attention_plan(), ["q"]), "q", ("K", "V")),
        (lambda: with_invariant_rows(attention_plan(), ["h"]), "h", ()),
        (found_plan, "b", ("U", "W")),
    ],
    ids=["norm", "prefill", "decode", "mlp"],
)
def test_each_row_is_the_same_among_any_number(plan, row, shared):
    plan = plan()
    most = 40
    program = plan.ugraph.program
    assert all(o.one_variant and o.run_time_sizes == (row,) for o in plan.options)
    draw = np.random.default_rng(3)
    axes, arrays = {}, {}
    for tensor in program.inputs:
        shape = list(tensor.shape)
        if tensor.name not in shared:
            axes[tensor.name] = shape.index(program.sizes[row])
            shape[axes[tensor.name]] = most
        # Of all magnitudes, so that another order of a sum is another result.
        arrays[tensor.name] = draw.normal(size=shape) * 10.0 ** draw.uniform(-2, 1, size=shape)

    def rows(wanted):
        taken = {
            name: np.take(a, wanted, axes[name]) if name in axes else a
            for name, a in arrays.items()
        }
        (found,) = run_interpreted(plan, taken, {row: len(wanted)}).values()
        return found

    (output,) = program.outputs
    axis = output.tensor.shape.index(program.sizes[row])
    everything = rows(range(most))
    assert np.isfinite(everything).all()
    for count in (1, 2, 15, 17, 31, 39):
        for first in (0, most - count):  # among the first, and at other places in their blocks
            some = rows(range(first, first + count))
            same = np.take(everything, range(first, first + count), axis)
            assert np.array_equal(some, same), (count, first)
