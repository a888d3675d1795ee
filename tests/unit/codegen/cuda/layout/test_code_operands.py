"""Codes of four and eight bits: 16 bytes at a time to the registers of a matmul, and exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_plans import cuda_plan, kernel_of, planned
from naive import naive_plan

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.launch_choices import Arch
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

SIZES = "B = 16, J = 64, N = 64\nindex c < 2\n"
BYTES = "B = 16, J = 64, N = 64\nX[B, J] : HALF, W[N, J] : i8\n"
PACKED = f"{SIZES}X[B, 2 * J] : HALF, W[N, J] : u8\n"
LOW, HIGH = "bit_and(W[n, j], 15)", "shift_right(W[n, j], 4)"
PROGRAMS = {
    "signed bytes": (
        "codes_i8",
        f"{BYTES}Y[b, n] : f32 = sum[j](X[b, j] * W[n, j])",
    ),
    "nibbles less a zero point": (
        "codes_u4",
        f"{PACKED}Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * (where(c < 1, {LOW}, {HIGH}) - 8))",
    ),
    "each less a zero point": (
        "codes_u4",
        f"{PACKED}Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * where(c < 1, {LOW} - 8, {HIGH} - 8))",
    ),
    "the high nibble first": (
        "codes_u4",
        f"{PACKED}Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * (where(c < 1, {HIGH}, {LOW}) - 8))",
    ),
}


LOOPS = {
    "signed bytes": (
        """
        B = 5, J = 448, N = 64
        X[B, J] : bf16, W[N, J] : i8
        Y[b, n] : f32 = sum[j](X[b, j] * W[n, j])
        """,
        """
        kernel codes {
          grid n by 32, b by 16
          loop j by 128 {
            %0 = load X[b, j]
            %1 = load W[n, j]
            %2 = matmul[j] %0, %1 : [b, n]
            %3 = accum_sum %2 : [b, n]
          }
          store Y[b, n] = %3
        }
        """,
    ),
    "nibbles": (
        f"""
        B = 16, J = 384, N = 64
        X[B, 2 * J] : bf16, W[N, J] : u8
        index c < 2
        Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * (where(c < 1, {LOW}, {HIGH}) - 8))
        """,
        """
        kernel codes {
          grid n by 32, b by 16
          %0 = mask (c < 1)
          %1 = const 15.0
          %2 = const 4.0
          %3 = const 8.0
          loop j by 128 {
            %4 = load X[b, j * 2 + c]
            %5 = load W[n, j]
            %6 = bit_and %5, %1 : [n, j]
            %7 = shift_right %5, %2 : [n, j]
            %8 = where %0, %6, %7 : [n, j, c]
            %9 = sub %8, %3 : [n, j, c]
            %10 = matmul[j, c] %4, %9 : [b, n]
            %11 = accum_sum %10 : [b, n]
          }
          store Y[b, n] = %11
        }
        """,
    ),
    "nibbles and scales of groups": (
        f"""
        B = 16, G = 6, J = 64, N = 64
        X[B, 2 * G * J], S[N, G] : bf16, W[N, G * J] : u8
        index j < J, c < 2
        let code[n, g, j, c] = where(c < 1, {LOW}, {HIGH}) - 8
        Y[b, n] : f32 = sum[g, j, c](X[b, 128 * g + 2 * j + c] * code[n, g, j, c] * S[n, g])
        """.replace("W[n, j]", "W[n, 64 * g + j]"),
        """
        kernel codes {
          grid n by 32, b by 16
          %0 = mask (c < 1)
          %1 = const 15.0
          %2 = const 4.0
          %3 = const 8.0
          loop g by 2 {
            %4 = load X[b, g * 128 + j * 2 + c]
            %5 = load S[n, g]
            %6 = load W[n, g * 64 + j]
            %7 = bit_and %6, %1 : [n, g, j]
            %8 = shift_right %6, %2 : [n, g, j]
            %9 = where %0, %7, %8 : [n, g, j, c]
            %10 = sub %9, %3 : [n, g, j, c]
            %11 = mul %5, %10 : [n, g, j, c]
            %12 = matmul[g, j, c] %4, %11 : [b, n]
            %13 = accum_sum %12 : [b, n]
          }
          store Y[b, n] = %13
        }
        """,
    ),
    "e2m1 and powers of two": (
        f"""
        B = 16, G = 12, J = 16, N = 64
        X[B, 2 * G * J] : bf16, W[N, G * J], S[N, G] : u8
        index j < J, c < 2
        let value[@] = e2m1(where(c < 1, {LOW}, {HIGH}))
        Y[b, n] : f32 = sum[g, j, c](X[b, 32 * g + 2 * j + c] * value[@] * exp2(S[n, g] - 127))
        """.replace("W[n, j]", "W[n, 16 * g + j]").replace("@", "n, g, j, c"),
        """
        kernel codes {
          grid n by 32, b by 16
          %0 = const 127.0
          %1 = const 8.0
          %2 = mask (c < 1)
          %3 = const 15.0
          %4 = const 4.0
          %5 = const 2.0
          %6 = const 7.0
          %7 = const 0.5
          loop g by 4 {
            %8 = load X[b, g * 32 + j * 2 + c]
            %9 = load S[n, g]
            %10 = sub %9, %0 : [n, g]
            %11 = exp2 %10 : [n, g]
            %12 = load W[n, g * 16 + j]
            %13 = bit_and %12, %3 : [n, g, j]
            %14 = shift_right %12, %4 : [n, g, j]
            %15 = where %2, %13, %14 : [n, g, j, c]
            %16 = lt %15, %1 : [n, g, j, c]
            %17 = bit_and %15, %6 : [n, g, j, c]
            %18 = mul %17, %5 : [n, g, j, c]
            %19 = sub %18, %1 : [n, g, j, c]
            %20 = mul %17, %7 : [n, g, j, c]
            %21 = sub %17, %5 : [n, g, j, c]
            %22 = maximum %20, %21 : [n, g, j, c]
            %23 = maximum %22, %19 : [n, g, j, c]
            %24 = neg %23 : [n, g, j, c]
            %25 = where %16, %23, %24 : [n, g, j, c]
            %26 = mul %25, %11 : [n, g, j, c]
            %27 = matmul[g, j, c] %8, %26 : [b, n]
            %28 = accum_sum %27 : [b, n]
          }
          store Y[b, n] = %28
        }
        """,
    ),
}


def _longer(kind: str) -> tuple[str, str]:
    program, kernel = LOOPS[kind]
    return program.replace("G = 6", "G = 16"), kernel.replace("g by 2", "g by 8")


OF_SEVERAL_GROUPS = {
    "nibbles and scales of groups": _longer("nibbles and scales of groups"),
    "bytes and scales of groups": (
        """
        B = 16, G = 8, R = 128, N = 64
        X[B, G * R], S[N, G] : bf16, W[N, G * R] : i8
        index r < R
        Y[b, n] : f32 = sum[g, r](X[b, g * 128 + r] * W[n, g * 128 + r] * S[n, g])
        """,
        """
        kernel codes {
          grid n by 32, b by 16
          loop g by 4 {
            %0 = load X[b, g * 128 + r]
            %1 = load W[n, g * 128 + r]
            %2 = load S[n, g]
            %3 = mul %1, %2 : [n, g, r]
            %4 = matmul[g, r] %0, %3 : [b, n]
            %5 = accum_sum %4 : [b, n]
          }
          store Y[b, n] = %5
        }
        """,
    ),
}
# What is called for four bytes of codes of a loop.
MADE_BY = {
    "signed bytes": ("codes_i8_bf16(",),
    "nibbles": ("codes_u4_bf16(",),
    "nibbles and scales of groups": ("codes_u4_bf16(", "scale_bf16<4>("),
    "e2m1 and powers of two": ("codes_e2m1_bf16(", "scale_bf16<4>(", "s_tiles + stage"),
}
# Smallest and largest whole numbers of an input, where it has fewer than its type.
RANGES = {("X", "bf16"): (-8, 8), ("S", "bf16"): (1, 4), ("S", "u8"): (124, 130)}


def plan_of(text: str, half: str) -> Plan:
    options = LaunchConfig(num_warps=2, reversed_axes=True, arch=Arch.SM_90A)
    plan = naive_plan(parse(text.replace("HALF", half)), {"n": 32}, options)
    return replace(plan, backend="cuda")


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_are_taken_apart_in_registers(name: str):
    function, text = PROGRAMS[name]
    for half in ("bf16", "f16"):
        (kernel,) = emit_cuda(plan_of(text, half))
        assert "*reinterpret_cast<const uint4*>(W" in kernel.source
        assert not function or f"{function}_{half}(&" in kernel.source
        assert function or "codes_" not in kernel.source


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["each less a zero point"])
def test_whole_numbers_are_exact(name: str):
    plan = plan_of(PROGRAMS[name][1], "bf16")
    assert_exact(plan)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("kind", LOOPS)
def test_codes_of_a_loop_are_copied_ahead_by_the_thread_that_reads_them(kind: str):
    program, kernel = LOOPS[kind]
    plan = cuda_plan(program, kernel, 3, **{"evict:W": "evict_first", "axes": "reversed"})
    source = " ".join(kernel_of(plan).source.split())
    # A cp.async with a cache policy is an illegal instruction of sm_90.
    assert "cp_async_16_of_128(w_tiles + stage * " in source
    assert "cp_async_16(x_tiles + stage * " in source
    assert all(text in source for text in MADE_BY[kind])
    # Of 5 rows of X one half of 16 is multiplied.
    assert ("for (int n = 0; n < 2; ++n)" in source) == kind.startswith("nibbles")
    # The distance of a thread's copies is a constant, and no part of an address.
    assert "W + ((n_start + n_at) * " in source
    assert_exact(plan)


# Sizes and loops above, and those of which four warps share out an iteration.
SHARED_OUT = {
    "nibbles": ("J = 384", "J = 1024", "j by 128", "j by 256"),
    "nibbles and scales of groups": ("G = 6", "G = 8", "g by 2", "g by 4"),
    "e2m1 and powers of two": ("G = 12", "G = 32", "g by 4", "g by 16"),
}


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("kind", SHARED_OUT)
def test_warps_that_share_out_the_inner_positions_wait_for_no_other(kind: str):
    (program, kernel), (few, many, short, long) = LOOPS[kind], SHARED_OUT[kind]
    plan = cuda_plan(program.replace(few, many), kernel.replace(short, long), 3, axes="reversed")
    # Each warp copies what it multiplies of the rows, and has all scales of groups.
    has_scales = kind != "nibbles"
    assert sorted(map(len, planned(plan).warp_tiles.values())) == [0] * has_scales + [2]
    source = kernel_of(plan).source
    assert ("s_tiles + stage * " in source and " + warp * " in source) == has_scales
    loop = source.split("int stage = 0;")[1].split("stage = stage ==")[0]
    assert "__syncwarp();" in loop
    assert "__syncthreads();" not in loop
    assert_exact(plan)
    # Two of four warps multiply the same rows: they copy them for one another.
    assert not planned(cuda_plan(program, kernel, 3, axes="reversed")).warp_tiles


@pytest.mark.covering(2)
@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("axes", ["reversed", ""])
@pytest.mark.parametrize("kind", ["nibbles", "nibbles and scales of groups"])
def test_the_codes_of_a_byte_are_a_pair_by_one_dot_product(kind: str, axes: str):
    program, kernel = LOOPS[kind]
    plan = cuda_plan(program, kernel, 3, axes=axes, codes="excess")
    source = kernel_of(plan).source
    has_scales = kind != "nibbles"
    # Reversed, these codes are columns, and sums have theirs in other threads: no excess then.
    has_excess = not (has_scales and axes)
    assert ("excess_u4_bf16(" in source) == has_excess
    assert (" codes_u4_bf16(&" in source) != has_excess
    assert ("scale_bf16<" in source) == (has_scales and not has_excess)
    # What pairs are multiplied by lies as in memory: halves change no places.
    assert ("join_halves(" in source) != has_excess
    assert ("dp2a" in source) == has_excess
    plain = cuda_plan(program, kernel, 3, axes=axes)
    assert (kernel_of(plain).source == source) != has_excess
    assert_exact(plan)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("kind", ["nibbles and scales of groups", "bytes and scales of groups"])
def test_a_warp_multiplies_the_sums_of_each_of_its_groups(kind: str):
    program, kernel = OF_SEVERAL_GROUPS[kind]
    # Codes are rows then.
    axes = "" if kind.startswith("nibbles") else "reversed"
    plan = cuda_plan(program, kernel, 3, axes=axes, codes="excess")
    (mma,) = planned(plan).layouts.mmas.values()
    assert mma.factor >= 0
    assert (mma.excess > 0) == kind.startswith("nibbles")
    source = kernel_of(plan).source
    assert "for (int g = 0; g < 2; ++g)" in source
    assert "scale_bf16<" not in source.split("__global__")[1]
    assert_exact(plan)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("kind", "whole", "tail"),
    [("nibbles", "J = 384", "J = 448"), ("nibbles and scales of groups", "G = 6", "G = 7")],
)
def test_what_lies_behind_the_end_has_no_excess(kind: str, whole: str, tail: str):
    program, kernel = LOOPS[kind]
    rows = ("B = 16", "B = 5")
    given = program.replace(whole, tail).replace(*rows)
    plan = cuda_plan(given, kernel, 3, codes="excess")
    assert "excess_u4_bf16(" in kernel_of(plan).source
    assert_exact(plan)


HIGH_FIRST = (f"where(c < 1, {LOW}, {HIGH})", f"where(c < 1, {HIGH}, {LOW})")


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("form", ["", "excess"])
@pytest.mark.parametrize("kind", ["nibbles", "nibbles and scales of groups"])
def test_the_high_code_of_a_byte_may_come_first(kind: str, form: str):
    """As tinygemm and HQQ pack them."""
    program, kernel = LOOPS[kind]
    index = "64 * g + j" if kind != "nibbles" else "j"
    texts = [t.replace("W[n, j]", f"W[n, {index}]") for t in HIGH_FIRST]
    assert program.count(texts[0]) == 1
    first = 6 if kind == "nibbles" else 7
    nibbles = [f"where %0, %{first + n}, %{first + 1 - n}" for n in (0, 1)]
    assert kernel.count(nibbles[0]) == 1
    turned = kernel.replace(*nibbles)
    plan = cuda_plan(program.replace(*texts), turned, 3, codes=form)
    source = kernel_of(plan).source
    assert f"{'excess_apart' if form else 'codes'}_u4_bf16(&" in source
    assert "high_codes_first(&" in source
    assert_exact(plan)


CODE = f"(where(c < 1, {LOW}, {HIGH}) - 8)"
SEVERAL = {
    "a gate": (
        f"""
        B = 16, J = 256, N = 64
        X[B, 2 * J] : bf16, W[N, J], V[N, J] : u8
        index c < 2
        let gate[b, n] = sum[j, c](X[b, 2 * j + c] * {CODE.replace("W", "V")})
        Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * {CODE}) * gate[b, n]
        """,
        """
          %10 = load V[n, j]
          %11 = bit_and %10, %1 : [n, j]
          %12 = shift_right %10, %2 : [n, j]
          %13 = where %0, %11, %12 : [n, j, c]
          %14 = sub %13, %3 : [n, j, c]
          %15 = matmul[j, c] %4, %9 : [b, n]
          %16 = accum_sum %15 : [b, n]
          %17 = matmul[j, c] %4, %14 : [b, n]
          %18 = accum_sum %17 : [b, n]
          }
          %19 = mul %16, %18 : [b, n]
          store Y[b, n] = %19
        """,
    ),
    "their sum": (
        f"""
        B = 16, J = 256, N = 64
        X[B, 2 * J] : bf16, W[N, J] : u8
        index c < 2
        Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * {CODE}) * sum[j, c]({CODE})
        """,
        """
          %10 = sum[j, c] %9 : [n]
          %11 = matmul[j, c] %4, %9 : [b, n]
          %12 = accum_sum %11 : [b, n]
          %13 = accum_sum %10 : [n]
          }
          %14 = mul %12, %13 : [b, n]
          store Y[b, n] = %14
        """,
    ),
}


@pytest.mark.covering(2)
@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("axes", ["reversed", ""])
@pytest.mark.parametrize("form", ["", "excess"])
@pytest.mark.parametrize("kind", SEVERAL)
def test_codes_beside_others_of_an_iteration_are_what_they_stand_for(
    kind: str, form: str, axes: str
):
    program, lines = SEVERAL[kind]
    kernel = f"""
        kernel codes {{
          grid n by 32, b by 16
          %0 = mask (c < 1)
          %1 = const 15.0
          %2 = const 4.0
          %3 = const 8.0
          loop j by 128 {{
            %4 = load X[b, j * 2 + c]
            %5 = load W[n, j]
            %6 = bit_and %5, %1 : [n, j]
            %7 = shift_right %5, %2 : [n, j]
            %8 = where %0, %6, %7 : [n, j, c]
            %9 = sub %8, %3 : [n, j, c]
            {lines}
        }}
    """
    plan = cuda_plan(program, kernel, 3, axes=axes, codes=form)
    source = kernel_of(plan).source.split("__global__")[1]
    assert source.count("u4_bf16(&") == (2 if kind == "a gate" else 0)
    assert_exact(plan)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
def test_one_code_of_each_byte_has_no_excess():
    """Blocks have the low codes or the high ones, which no instruction puts side by side."""
    program, kernel = LOOPS["nibbles"]
    program = program.replace("Y[b, n] ", "Y[b, n, c] ").replace("sum[j, c]", "sum[j]")
    for old, new in (
        ("b by 16", "b by 16, c by 1"), ("[j, c]", "[j]"), ("[b, n]", "[b, n, c]")
    ):  # fmt: skip
        kernel = kernel.replace(old, new)
    plan = cuda_plan(program, kernel, 3, axes="reversed", codes="excess")
    assert "excess" not in kernel_of(plan).source
    assert_exact(plan)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
def test_two_bytes_side_by_side_are_both_loaded():
    program, kernel = LOOPS["signed bytes"]
    assert_exact(cuda_plan(program, kernel.replace("j by 128", "j by 16"), 3))


def test_the_excess_is_taken_off_by_a_row_tile_of_its_number():
    program, kernel = LOOPS["nibbles"]
    source = kernel_of(cuda_plan(program, kernel, 3, axes="reversed", codes="excess")).source
    assert "pack_bf16(-24.0f, -24.0f)" in source
    assert source.index("_excess[8] = {}") < source.index("int stage = 0;")
    assert "_excess[r % 8];" in source


def test_codes_that_are_no_nibbles_have_one_form():
    for kind in ("signed bytes", "e2m1 and powers of two"):
        program, kernel = LOOPS[kind]
        plans = [cuda_plan(program, kernel, 3, axes="reversed", codes=c) for c in ("", "excess")]
        assert kernel_of(plans[0]).source == kernel_of(plans[1]).source


def test_halves_have_no_room_for_the_excess():
    plan = plan_of(PROGRAMS["nibbles less a zero point"][1], "f16")
    options = tuple(replace(o, excess_codes=True) for o in plan.options)
    (kernel,) = emit_cuda(replace(plan, options=options))
    assert "excess" not in kernel.source
    assert kernel.source == emit_cuda(plan)[0].source


def assert_exact(plan: Plan) -> None:
    draw = np.random.default_rng(3)
    arrays = {}
    for t in plan.ugraph.program.inputs:
        low, high = RANGES.get((t.name, t.dtype.name), (t.dtype.lowest, t.dtype.max_finite))
        arrays[t.name] = draw.integers(low, high + 1, t.shape).astype(np.float64)
    want = evaluate_program(plan.ugraph.program, arrays, FloatMeaning())["Y"]
    np.testing.assert_array_equal(run_emulated(plan, arrays)["Y"], want)
