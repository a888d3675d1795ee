from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import several_kernels
from plans import (
    attention_plan,
    attention_reference,
    random_inputs,
    relative_error,
    rms_plan,
    rms_reference,
    scale_reference,
    two_kernel_plan,
)

from mirage_py.errors import CompileError, InputError
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import LibraryCall, UGraph
from mirage_py.verify.evaluate.element_types import round_to


def test_two_loops_with_tails():
    plan = rms_plan()
    arrays = random_inputs(plan.ugraph.program)
    got = run_interpreted(plan, arrays)
    assert relative_error(got["Y"], rms_reference(arrays)) < 2e-3


def test_a_running_maximum_does_not_overflow():
    plan = attention_plan()
    arrays = random_inputs(plan.ugraph.program)
    arrays["Q"] *= 30
    arrays["K"] *= 10
    rounded = {n: a.astype(np.float16).astype(np.float64) for n, a in arrays.items()}
    got = run_interpreted(plan, arrays)
    assert relative_error(got["O"], attention_reference(rounded)) < 2e-3


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_values_pass_through_memory_between_kernels(dtype):
    plan = two_kernel_plan(dtype=dtype)
    arrays = random_inputs(plan.ugraph.program)
    got = run_interpreted(plan, arrays)
    bound = 1e-6 if dtype == F32 else 4 * dtype.unit_roundoff
    assert relative_error(got["Y"], scale_reference(arrays)) < bound


def test_bfloat16_is_rounded_to_the_nearest():
    """Triton's interpreter cuts float32 off: all results were too small, by a quarter of a percent
    on average.
    """
    plan = two_kernel_plan(dtype=BF16)
    arrays = {n: np.asarray(a) for n, a in random_inputs(plan.ugraph.program).items()}
    rounded = {n: round_to(a, BF16) for n, a in arrays.items()}
    right = scale_reference(rounded)
    off = np.abs(run_interpreted(plan, rounded)["Y"]) / np.abs(right) - 1
    assert abs(off.mean()) < BF16.unit_roundoff / 8


def test_strided_inputs():
    plan = two_kernel_plan(strides=(1, 40))
    arrays = random_inputs(plan.ugraph.program)
    got = run_interpreted(plan, arrays)
    assert relative_error(got["Y"], scale_reference(arrays)) < 2e-3


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_blocks_add_to_one_tensor(dtype):
    """Each addition rounds, so the error is a few of the output's roundings."""
    plan = several_kernels.plan("split_matmul_added")
    program = plan.ugraph.program
    (output,) = program.outputs
    typed = replace(output, tensor=replace(output.tensor, dtype=dtype))
    graph = replace(plan.ugraph, program=replace(program, outputs=(typed,)))
    arrays = random_inputs(program)
    want = arrays["X"] @ arrays["W"]
    for _ in range(2):  # what the first run left there is not added to
        got = run_interpreted(replace(plan, ugraph=graph), arrays)
        assert relative_error(got["Y"], want) < max(4 * dtype.unit_roundoff, 1e-3)


def test_a_product_of_halves_in_float32():
    plan = several_kernels.plan("library_epilogue")
    arrays = random_inputs(plan.ugraph.program)
    rounded = {n: a.astype(np.float16).astype(np.float64) for n, a in arrays.items()}
    want = rounded["X"] @ rounded["W"]
    call = LibraryCall("product", "matmul", ("X", "W"), "Y")
    program = plan.ugraph.program
    wide = replace(program.outputs[0], tensor=replace(program.outputs[0].tensor, dtype=F32))
    graph = UGraph(replace(program, outputs=(wide,)), (call,))
    got = run_interpreted(Plan(graph, (LaunchConfig(),)), arrays)
    # Rounding the results to half would make 3e-4 of it.
    assert relative_error(got["Y"], want) < 5e-5


def test_library_calls_run_between_kernels():
    # Y = X @ W by the library, through an intermediate with two calls.
    plan = rms_plan()
    program = plan.ugraph.program
    calls = (
        LibraryCall("first", "matmul", ("X", "W"), "Y"),
        LibraryCall("second", "add", ("Y", "Y"), "Y"),
    )
    library = Plan(UGraph(program, calls), (LaunchConfig(), LaunchConfig()))
    arrays = random_inputs(program)
    got = run_interpreted(library, arrays)
    assert relative_error(got["Y"], 2 * arrays["X"] @ arrays["W"]) < 2e-3


def test_what_nobody_writes_is_nan():
    plan = rms_plan()
    (block,) = plan.ugraph.kernels
    # A grid that misses the last rows: b is taken for an axis of 3 rows only.
    last = block.nodes[-1]
    elsewhere = replace(
        last, attr=replace(last.access, index=(last.access.index[0] * 2, last.access.index[1]))
    )
    with pytest.raises(CompileError, match="writes outside of Y"):
        run_interpreted(
            _with_nodes(plan, (*block.nodes[:-1], elsewhere)), random_inputs(plan.ugraph.program)
        )
    folded = replace(
        last, attr=replace(last.access, index=(last.access.index[0] // 2, last.access.index[1]))
    )
    got = run_interpreted(
        _with_nodes(plan, (*block.nodes[:-1], folded)), random_inputs(plan.ugraph.program)
    )
    assert np.isnan(got["Y"][4:]).all()
    assert not np.isnan(got["Y"][:4]).any()


def test_a_read_past_the_end_spoils_the_result():
    plan = rms_plan()
    (block,) = plan.ugraph.kernels
    w = block.nodes[12]
    beyond = replace(w, attr=replace(w.access, index=(w.access.index[0] + 1, w.access.index[1])))
    nodes = (*block.nodes[:12], beyond, *block.nodes[13:])
    got = run_interpreted(_with_nodes(plan, nodes), random_inputs(plan.ugraph.program))
    assert np.isnan(got["Y"]).any()


def test_wrong_inputs_are_named():
    plan = rms_plan()
    arrays = random_inputs(plan.ugraph.program)
    with pytest.raises(InputError, match="'G' is missing"):
        run_interpreted(plan, {"X": arrays["X"], "W": arrays["W"]})
    with pytest.raises(InputError, match=r"'X' has shape \[96, 7\]"):
        run_interpreted(plan, {**arrays, "X": arrays["X"].T})


def _with_nodes(plan: Plan, nodes) -> Plan:
    (block,) = plan.ugraph.kernels
    return replace(plan, ugraph=replace(plan.ugraph, kernels=(replace(block, nodes=nodes),)))
