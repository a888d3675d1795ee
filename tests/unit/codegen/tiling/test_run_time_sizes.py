"""One kernel for many sizes: what it takes as arguments, and that it is right at all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import samples
from plans import (
    attention_plan,
    attention_reference,
    random_inputs,
    rms_plan,
    rms_reference,
    scale_reference,
    two_kernel_plan,
)

from mirage_py.codegen.tiling.valid_sizes import largest_sizes
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.errors import InputError
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.checks.run_time_sizes import (
    at_sizes,
    program_at_sizes,
    run_time_dims,
    run_time_sizes,
    why_fixed,
    with_run_time_sizes,
)
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.ugraph import evaluate_ugraph
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import GridAxis
from mirage_py.ugraph.text.text_form import parse_ugraph

PREFIX_SUMS = """
ugraph prefix_sums
dim t = 50
dim s = 70
input X[70, 50] : f32
output Y[50] : f32
program {
  %0 = load X[s, t]
  %1 = mask (s <= t)
  %2 = mul %1, %0
  %3 = sum[s] %2
  return Y[t] = %3
}
kernel sums {
  grid t by 16
  loop s by 16 {
    %0 = load X[s, t]
    %1 = mask (s <= t)
    %2 = mul %1, %0
    %3 = sum[s] %2
    %4 = accum_sum %3
  }
  store Y[t] = %4
}
"""


def tiled(name: str, tile: int, warps: int = 4) -> Plan:
    """A sample with tiles of one size."""
    graph = samples.ugraph(name)
    kernels = tuple(
        replace(
            k,
            grid=tuple(GridAxis(a.dim, tile) for a in k.grid),
            sections=tuple(replace(s, tile=tile if s.loop else None) for s in k.sections),
        )
        for k in graph.kernels
    )
    options = tuple(LaunchConfig(warps, (2,)) for _ in kernels)
    return Plan(replace(graph, kernels=kernels), options)


@pytest.mark.parametrize(
    ("plan", "dims", "reference", "sizes"),
    [
        (rms_plan(), "b", rms_reference, [{"b": 1}, {"b": 16}, {"b": 37}]),
        (rms_plan(), "bdn", rms_reference, [{"b": 3, "d": 33, "n": 65}]),
        (attention_plan(), "qs", attention_reference, [{"q": 1, "s": 2}, {"q": 33, "s": 129}]),
        (two_kernel_plan(), "b", scale_reference, [{"b": 1}, {"b": 50}]),
        (two_kernel_plan(), "bd", scale_reference, [{"b": 17, "d": 31}]),
    ],
)
def test_one_kernel_is_right_at_every_size(plan, dims, reference, sizes):
    names = [d for d in plan.ugraph.program.dim_names if d[0] in dims]
    sized = with_run_time_sizes(plan, names)
    assert run_time_dims(sized) == tuple(names)
    for size in sizes:
        arrays = random_inputs(at_sizes(sized, size).ugraph.program)
        (got,) = run_interpreted(sized, arrays, size).values()
        np.testing.assert_allclose(got, reference(arrays), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("sizes", [{"t": 3, "s": 5}, {"t": 30, "s": 70}])
def test_loops_under_a_mask_end_where_the_size_does(sizes):
    options = (LaunchConfig(4, (2,)),)
    sized = with_run_time_sizes(Plan(parse_ugraph(PREFIX_SUMS), options), ("t", "s"))
    (kernel,) = emit_triton(sized)
    assert "tl.minimum(t_low + 16, s_size)" in kernel.source
    small = at_sizes(sized, sizes).ugraph
    arrays = samples.float_inputs(small.program)
    (got,) = run_interpreted(sized, arrays, sizes).values()
    (want,) = evaluate_ugraph(small, arrays, FloatMeaning()).values()
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def test_what_a_kernel_takes():
    plan = with_run_time_sizes(attention_plan(), ("q", "s"))
    (kernel,) = emit_triton(plan)
    names = [scalar.name for scalar in kernel.text.scalars]
    # K is [h, d, s]: two of its strides count keys.
    assert names == ["q_size", "s_size", "Q_stride0", "K_stride0", "K_stride1", "V_stride0",
                     "O_stride0"]  # fmt: skip
    assert run_time_sizes(plan).strides["K"] == (0, 1)
    assert "q_size = Q.shape[1]" in kernel.source
    assert "triton.cdiv(q_size, " in kernel.source
    # The text is one for all sizes, apart from what its docstring says of the tuned ones.
    body = kernel.source.split('"""')[2]
    other = emit_triton(at_sizes(plan, {"q": 70, "s": 300}))[0]
    assert other.source.split('"""')[2] == body
    assert kernel.text.blocks({"h": 2, "q": 33, "s": 1, "d": 16, "e": 16}) == 2 * -(-33 // 16)


def test_a_plan_without_run_time_sizes_is_as_it_was():
    (kernel,) = emit_triton(attention_plan())
    assert "_size" not in kernel.source
    assert kernel.text.scalars == ()
    assert kernel.text.blocks(attention_plan().ugraph.program.sizes) == kernel.text.grid


def test_what_has_its_size_written_in():
    split = tiled("split_attention", 2)
    assert "addressed by p * 5 + s" in why_fixed(split, "s")
    with pytest.raises(InputError, match="the size of 's' cannot be an argument"):
        with_run_time_sizes(split, ("s",))
    # t is a row of O, and h its most significant digit: nothing counts in them. e is the lower one.
    assert why_fixed(split, "t") == ""
    assert why_fixed(split, "h") == ""
    assert why_fixed(split, "e") == "O is addressed by h * 6 + e"
    assert "no input" in why_fixed(rms_plan(), "x")


def test_how_far_a_plan_reaches():
    cut = with_run_time_sizes(attention_plan(), ("q", "s"))
    assert largest_sizes(cut, 1 << 20) == {"q": 1 << 20, "s": 1 << 20}
    # Behind 31 bits of an offset nothing is right: h * d rows of s.
    assert largest_sizes(cut, 1 << 28)["s"] <= 2**31 / (2 * 16)
    # A row that is whole in a tile is padded to a power of two.
    whole = with_run_time_sizes(tiled("softmax_whole_row", 2), ("s",))
    size = whole.ugraph.program.sizes["s"]
    assert largest_sizes(whole, 1 << 20)["s"] == 1 << (size - 1).bit_length()


def test_programs_at_other_sizes():
    program = rms_plan().ugraph.program
    assert program_at_sizes(program, {"b": 9, "d": 8}) == rms_plan(9, 8).ugraph.program


def test_descriptors_know_their_strides():
    plan = attention_plan(d=16)
    options = (plan.options[0].with_flag("copies", "descriptors"),)
    sized = with_run_time_sizes(replace(plan, options=options), ("q", "s"))
    (kernel,) = emit_triton(sized)
    # Rows of V are 16 numbers; those of K are keys, whose number may be odd.
    assert set(kernel.text.tiles) == {"V"}
    assert "V_stride0" not in kernel.source
    for size in ({"q": 20, "s": 100}, {"q": 5, "s": 33}):
        arrays = random_inputs(at_sizes(sized, size).ugraph.program)
        (got,) = run_interpreted(sized, arrays, size).values()
        np.testing.assert_allclose(got, attention_reference(arrays), rtol=2e-2, atol=2e-2)
