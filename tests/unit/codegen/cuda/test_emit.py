"""Emitted CUDA kernels in the CPU stand-in: sizes that no tile divides, other orders of axes."""

from __future__ import annotations

import plans
import pytest
from cuda_plans import error_of, for_cuda, kernel_of
from plans import attention_plan, attention_reference, rms_plan, rms_reference

from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.plan import Plan

HALF, SINGLE = 1e-3, 1e-6


@pytest.mark.parametrize("sizes", [(1, 96, 50), (17, 50, 33)], ids=str)
def test_norm_and_product(sizes):
    assert error_of(for_cuda(rms_plan(*sizes)), rms_reference) < HALF


def test_rows_on_the_other_side():
    assert error_of(for_cuda(rms_plan(5, 33, 17), axes="reversed"), rms_reference) < HALF


def test_attention_with_tails():
    assert error_of(for_cuda(attention_plan(1, 33, 7, 32)), attention_reference) < HALF


def test_padding_whose_exponential_is_infinite():
    """Scores below -11 beside padding: exp(0 + 12) is no half."""
    assert error_of(for_cuda(attention_plan(1, 70, 1, 64)), attention_reference) < HALF


def test_float32_without_tensor_cores():
    plan = for_cuda(plans.two_kernel_plan(33, 70, F32))
    assert error_of(plan, plans.scale_reference) < SINGLE


def test_strides():
    plan = for_cuda(plans.two_kernel_plan(33, 70, strides=(1, 40)))
    assert error_of(plan, plans.scale_reference) < HALF


def test_fewer_stages_where_memory_is_short():
    plan = for_cuda(attention_plan(2, 64, 2048, 64, tiles=(64, 128)), num_stages=6)
    assert 100 * 1024 < kernel_of(plan).smem_bytes <= 163 * 1024


@pytest.mark.parametrize(("precision", "bound"), [("ieee", SINGLE), ("tf32", HALF)])
def test_products_of_float32(precision, bound):
    plan = for_cuda(rms_plan(17, 50, 33, dtype=F32), precision=precision)
    assert error_of(plan, rms_reference) < bound


def loop_of(plan: Plan) -> str:
    """The text of the only loop over tiles."""
    return kernel_of(plan).body.partition("int s_start")[2].partition("\n    }\n")[0]


def test_warps_keep_their_own_running_maxima():
    text = loop_of(for_cuda(attention_plan(2, 64, 512, 64, tiles=(16, 128))))
    assert text.count("__syncthreads()") == 1
    assert "_parts" not in text


def test_without_thread_graphs_every_result_changes_hands():
    plan = attention_plan(1, 20, 64, 16)
    text = loop_of(for_cuda(plan, threads="off"))
    assert text.count("changes hands") > loop_of(for_cuda(plan)).count("changes hands")
    assert error_of(for_cuda(plan, threads="off"), attention_reference) < HALF


def test_warps_as_asked():
    plan = rms_plan(16, 128, 64, tiles=(16, 64, 64))
    along_n, along_k = (kernel_of(for_cuda(plan, warps=w)).body for w in ("1x4x1", "1x1x4"))
    assert "Each warp has a part of acc" not in along_n
    assert "Each warp has a part of acc" in along_k


def test_tiles_that_no_thread_can_hold():
    plan = for_cuda(attention_plan(1, 256, 1024, 16, tiles=(256, 512)), num_warps=1)
    with pytest.raises(ScheduleError, match="elements of a tile in each thread"):
        kernel_of(plan)
