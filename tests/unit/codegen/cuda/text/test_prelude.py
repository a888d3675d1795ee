from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

from mirage_py.codegen.cuda.text import prelude
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.runtime.cpu.cpu_build import cpp_compiler, executable
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# Every device function of sm_80, called once.
CALLS_80 = """
    unsigned r[4] = {1, 2, 3, 4};
    float f[4] = {x, x, x, x};
    cp_async_16(shared, in, true);
    cp_async_16_of_128(shared, in, true);
    cp_async_8(shared, in, false);
    cp_async_4(shared, in, true);
    cp_async_commit();
    cp_async_wait<1>();
    r[0] += shared_address(shared) + static_cast<unsigned>(checked_position(1, 2));
    ldmatrix_x4(r[0], r[1], r[2], r[3], shared);
    ldmatrix_x4_trans(r[0], r[1], r[2], r[3], shared + 16);
    ldmatrix_x2(r[0], r[1], shared);
    ldmatrix_x2_trans(r[2], r[3], shared + 16);
    mma_f16(f[0], f[1], f[2], f[3], r[0], r[1], r[2], r[3], r[0], r[1]);
    mma_bf16(f[0], f[1], f[2], f[3], r[0], r[1], r[2], r[3], r[0], r[1]);
    mma_tf32(f[0], f[1], f[2], f[3], to_tf32(x), r[1], r[2], r[3], r[0], r[1]);
    mma_tf32x3(f[0], f[1], f[2], f[3], x, x, x, x, x, x);
    r[0] = pack_f16(f[0], f[1]);
    r[1] = pack_bf16(f[0], f[1]);
    f[0] = low_f16(r[0]) + high_f16(r[0]) + low_bf16(r[1]) + high_bf16(r[1]);
    r[2] = mul_f16x2(r[0], r[1]) + mul_bf16x2(r[0], r[1]);
    codes_u4_f16(r, r[0], 0x64086408u);
    codes_u4_bf16(r, r[0], 0x43084308u);
    excess_u4_bf16(r, r[0]);
    excess_apart_u4_bf16(r, r[0]);
    high_codes_first(r);
    codes_i8_f16(r, r[0]);
    codes_i8_bf16(r, r[1]);
    codes_e2m1_f16(r, r[0]);
    codes_e2m1_bf16(r, r[1]);
    scale_f16<2>(r, 0.5f);
    scale_bf16<2>(r, 0.5f);
    f[3] = nearest_e4m3(x);
    r[0] = masked_with(r[0], 15u, 64u);
    r[1] = join_halves(sub_f16x2(r[0], r[1]), sub_bf16x2(r[0], r[1]), true, x > 1.0f);
    f[1] = exp2_fast(x) + exp_fast(x) + rsqrt_fast(x) + max_nan(x, f[0]);
    named_arrive(1, 64);
    named_barrier(1, 32);
    f[2] = shuffle_xor(f[2], 1);
    r[3] = shuffle_xor(r[3], 2);
    swap_with_lane(r[0], r[1], 2);
    uint4 u = load_16_evict_first(in);
    u.x += load_8_evict_first(in).y + load_4_evict_first(in);
    u.y += static_cast<unsigned>(evict_first_policy());
    store_16_evict_first(out, u);
"""

CALLS_90 = """
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared + 1024);
    mbarrier_init(bar, 1);
    mbarrier_fence_init();
    mbarrier_expect(bar, 64);
    tma_prefetch(&map);
    tma_load_1d(shared, &map, bar, 0);
    tma_load_2d(shared, &map, bar, 0, 1);
    tma_load_3d(shared, &map, bar, 0, 1, 2);
    tma_load_4d(shared, &map, bar, 0, 1, 2, 3);
    tma_load_5d(shared, &map, bar, 0, 1, 2, 3, 4);
    tma_load_1d_evict_first(shared, &map, bar, 0);
    tma_load_2d_evict_first(shared, &map, bar, 0, 1);
    tma_load_3d_evict_first(shared, &map, bar, 0, 1, 2);
    tma_load_4d_evict_first(shared, &map, bar, 0, 1, 2, 3);
    tma_load_5d_evict_first(shared, &map, bar, 0, 1, 2, 3, 4);
    tma_load_im2col_3d(shared, &map, bar, 0, 1, 2, 3);
    tma_load_im2col_4d(shared, &map, bar, 0, 1, 2, 3, 4, 5);
    tma_load_im2col_5d(shared, &map, bar, 0, 1, 2, 3, 4, 5, 6, 7);
    bulk_load(shared, in, 64, bar);
    bulk_load_evict_first(shared, in, 64, bar);
    mbarrier_arrive(bar);
    mbarrier_arrive_at(bar, 1);
    mbarrier_wait(bar, 0);
    fence_async_shared();
    stmatrix_x4(shared, r[0], r[1], r[2], r[3]);
    stmatrix_x4_trans(shared, r[0], r[1], r[2], r[3]);
    float d[32];
    for (int i = 0; i < 32; ++i) d[i] = x;
    const unsigned long long a = shared_descriptor(shared, 16, 1024, 128);
    registers_decrease<40>();
    registers_increase<160>();
    keep(d);
    wgmma_fence();
    wgmma_m64n64k16_f16_ss_kk(d, a, a, false);
    wgmma_m64n64k16_bf16_ss_tt(d, a, a, true);
    wgmma_m64n64k8_tf32_ss_kk(d, a, a, true);
    wgmma_m64n64k16_f16_rs_kt(d, r[0], r[1], r[2], r[3], a, true);
    wgmma_commit();
    wgmma_wait<0>();
    keep(d);
    unsigned other[4];
    hand_over(other, r);
    r[0] ^= other[1];
    float4* four = reinterpret_cast<float4*>(shared);
    f[0] += nearest_e4m3(f[1]) + reciprocal_fast(f[2]) + gelu_fast(f[3]);
    float* one = reinterpret_cast<float*>(shared);
    wait_for_kernel_before();
    wait_for_kernel_before(in);
    hide_origin(in);
    next_kernel_may_start();
    cluster_arrive();
    cluster_wait();
    f[0] += d[0] + *in_block(one, cluster_rank() ^ 1);
    f[0] += load_remote(one, 1) + load_remote(four, 1).y;
    store_remote(one, 1, x);
    store_remote(four, 1, load_remote(four, remote_address(four, 1) & 1));
"""

KERNEL = """

extern "C" __global__ void every(const unsigned char* in, float* out, float x{parameter}) {{
    extern __shared__ __align__(1024) unsigned char shared[];
{calls}
    out[threadIdx.x] = f[0] + f[1] + f[2] + f[3] + __uint_as_float(r[0] ^ r[1] ^ r[2] ^ r[3]);
}}
"""

NVCC = shutil.which("nvcc")


def kernel(capability: int) -> str:
    if capability == 80:
        return KERNEL.format(parameter="", calls=CALLS_80)
    parameter = ", const __grid_constant__ TensorMap map"
    return KERNEL.format(parameter=parameter, calls=CALLS_80 + CALLS_90)


def test_every_piece_is_compiled_below():
    assert set(prelude._pieces()) <= set(prelude.names_used(kernel(90)))


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("architecture", ["80", "90a"])
def test_nvcc_takes_every_function(architecture, tmp_path):
    text = kernel(int(architecture[:2]))
    file = tmp_path / "every.cu"
    file.write_text(prelude.prelude_text(prelude.names_used(text)) + text)
    code = f"arch=compute_{architecture},code=sm_{architecture}"
    command = [NVCC, f"-gencode={code}", "-cubin", "-o", str(tmp_path / "every.cubin"), str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
def test_a_cpu_has_a_double_of_every_function():
    body = kernel(90)
    every = CudaKernel("every", body, body, (), (), 1, 1, 32, 0, 90, LaunchConfig())
    assert executable(every).exists()


def test_a_piece_brings_what_it_needs_and_nothing_else():
    text = prelude.prelude_text(["exp_fast", "cp_async_wait", "cp_async_16", "exp_fast"])
    assert text.count("float exp2_fast(") == text.count("float exp_fast(") == 1
    assert text.index("exp2_fast(float") < text.index("exp_fast(float")
    assert "unsigned shared_address(" in text
    assert "mma" not in text


def test_overloads_come_together():
    text = prelude.prelude_text(["shuffle_xor"])
    assert "float shuffle_xor(float" in text
    assert "unsigned shuffle_xor(unsigned" in text


def test_unknown_functions_are_refused():
    with pytest.raises(KeyError, match="mma_f8"):
        prelude.prelude_text(["mma_f8"])


def test_products_of_warp_groups_are_found_by_name():
    name, text = prelude.wgmma_function(96, "bf16", True, False, True)
    assert name == "wgmma_m64n96k16_bf16_rs_kt"
    assert f"void {name}(" in text
    assert prelude.prelude_text([name]) == text
    (shape,) = prelude.wgmma_shapes(f"x; {name}(d); {name}(d);")
    assert (shape.n, shape.dtype, shape.a_in_registers) == (96, "bf16", True)


def test_products_of_float8_take_32_inner_positions_and_no_transposes():
    name, text = prelude.wgmma_function(128, "f8e4m3", False, False, False)
    assert name == "wgmma_m64n128k32_f8e4m3_ss_kk"
    assert "m64n128k32.f32.e4m3.e4m3" in text
    assert "%64, %65, adds, 1, 1;" in text
    (shape,) = prelude.wgmma_shapes(f"{name}(d);")
    assert (shape.dtype, shape.depth) == ("f8e4m3", 32)
    with pytest.raises(ValueError, match="of f8e4m3 is not transposed"):
        prelude.wgmma_function(128, "f8e4m3", False, False, True)


def test_products_of_tf32_take_8_inner_positions_and_no_transposes():
    name, text = prelude.wgmma_function(64, "tf32", False, False, False)
    assert name == "wgmma_m64n64k8_tf32_ss_kk"
    assert "m64n64k8.f32.tf32.tf32" in text
    assert "%32, %33, adds, 1, 1;" in text
    with pytest.raises(ValueError, match="of tf32 is not transposed"):
        prelude.wgmma_function(64, "tf32", False, True, False)


@pytest.mark.parametrize("n", [0, 12, 264])
def test_shapes_that_do_not_exist_are_refused(n):
    with pytest.raises(ValueError, match="no wgmma"):
        prelude.wgmma_function(n, "f16", False, False, False)


def test_factors_move_both_codes_of_a_byte_to_the_highest_bits_of_a_significand():
    text = (prelude.FOLDER / "halves.cuh").read_text(encoding="utf-8")
    (body,) = re.findall(r"excess_u4_bf16\(.*?\n}", text, re.DOTALL)
    products = re.findall(r"dp2a\.(lo|hi)\..*?d\[(\d)\].*?\(0x(\w+)u\)", body)
    (words,) = re.findall(r"masked_with\(d\[i\], (\w+)u, (\w+)u\)", body)
    mask, bits = (np.uint32(int(word, 16)) for word in words)
    assert [int(number) for _, number, _ in products] == [0, 1, 2, 3]
    given = np.random.default_rng(0).integers(0, 1 << 32, 999, dtype=np.uint32)
    for half, number, word in products:
        two = given >> np.uint32(16 if half == "hi" else 0)
        # A dp2a takes two factors of 16 bits, the lower one for the lower byte.
        factors = [np.uint32(int(word, 16) >> place & 0xFFFF) for place in (0, 16)]
        pair = (two & 255) * factors[0] + (two >> 8 & 255) * factors[1] & mask | bits
        byte = given >> np.uint32(8 * int(number)) & 255
        for place, code in ((0, byte & 15), (16, byte >> 4)):
            value = (pair >> np.uint32(place) & 0xFFFF).astype(np.uint32) << np.uint32(16)
            np.testing.assert_array_equal(value.view(np.float32), code + 16.0)


def test_shifts_move_both_codes_of_a_pair_to_the_highest_bits_of_a_significand():
    text = (prelude.FOLDER / "halves.cuh").read_text(encoding="utf-8")
    (body,) = re.findall(r"excess_apart_u4_bf16\(.*?\n}", text, re.DOTALL)
    assert "i == 0 ? bytes << 3 : bytes >> (4 * i - 3)" in body
    (words,) = re.findall(r"masked_with\(moved, (\w+)u, (\w+)u\)", body)
    mask, bits = (np.uint32(int(word, 16)) for word in words)
    given = np.random.default_rng(0).integers(0, 1 << 32, 999, dtype=np.uint32)
    for i in range(4):
        moved = given << np.uint32(3) if i == 0 else given >> np.uint32(4 * i - 3)
        pair = moved & mask | bits
        for place in (0, 16):
            value = (pair >> np.uint32(place) << np.uint32(16)).view(np.float32)
            code = given >> np.uint32(place + 4 * i) & np.uint32(15)
            np.testing.assert_array_equal(value, code + 16.0)
