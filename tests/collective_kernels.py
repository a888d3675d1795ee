"""Small CUDA kernels, each for one thing that threads do together, with their results in NumPy.

``from collective_kernels import COLLECTIVES``. They run under CPU emulation; a script can run the
same on a GPU: ``kernel.source`` compiles alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage_py.codegen.cuda.text.prelude import names_used, prelude_text
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel, Im2col, TensorMap
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32, DType
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import Output, Program, Tensor

Arrays = Mapping[str, NDArray[np.float64]]

TYPES = {"f16": F16, "bf16": BF16, "f32": F32}


@dataclass(frozen=True)
class Collective:
    """A kernel, the program it stands for and what it makes of its inputs."""

    kernel: CudaKernel
    program: Program
    expected: Callable[[Arrays], NDArray[np.float64]]
    tolerance: float = 0.0


def collective(
    name: str,
    code: str,
    inputs: Mapping[str, tuple[tuple[int, ...], DType]],
    output: tuple[tuple[int, ...], DType],
    expected: Callable[[Arrays], NDArray[np.float64]] = lambda a: np.zeros(0),
    *,
    threads: int = 32,
    grid: int = 1,
    cluster: int = 1,
    smem_bytes: int = 1 << 15,
    maps: tuple[TensorMap, ...] = (),
    capability: int = 80,
    tolerance: float = 0.0,
) -> Collective:
    """``code`` is the inside of a kernel with pointers of the inputs' names and ``Y``."""
    tensors = [Tensor(n, shape, dtype) for n, (shape, dtype) in inputs.items()]
    y = Tensor("Y", *output)
    c_names = {"f32": "float", "f16": "unsigned short", "bf16": "unsigned short"}
    parameters = [f"const {c_names[t.dtype.name]}* {t.name}" for t in tensors]
    parameters.append(f"{c_names[y.dtype.name]}* Y")
    parameters += [f"const __grid_constant__ TensorMap {m.name}" for m in maps]
    dims = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    body = f"""\
extern "C" __global__ void {dims}__launch_bounds__({threads}) {name}({", ".join(parameters)}) {{
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
{code}
}}
"""
    used = prelude_text(names_used(body))
    kernel = CudaKernel(
        name, f"{used}\n\n{body}", body, (*tensors, y), maps, grid, cluster, threads, smem_bytes,
        capability, LaunchConfig(),
    )  # fmt: skip
    program = Program(name, (), tuple(tensors), (), (Output(y, 0, ()),))
    return Collective(kernel, program, expected, tolerance)


def inputs_of(case: Collective) -> dict[str, NDArray[np.float64]]:
    """Small whole numbers: sums of their products are exact."""
    rng = np.random.default_rng(1)
    return {t.name: rng.integers(-4, 5, t.shape).astype(float) for t in case.program.inputs}


def _products_of_warps(dtype: str) -> Collective:
    """16x16 by 16x8; the block's number says which operands lie transposed in memory."""
    code = f"""
    const bool a_lies_across = blockIdx.x & 1, b_lies_across = blockIdx.x & 2;
    unsigned short* A = reinterpret_cast<unsigned short*>(shared_memory);
    unsigned short* B = A + 256;
    for (int i = lane; i < 256; i += 32) A[a_lies_across ? i % 16 * 16 + i / 16 : i] = X[i];
    for (int i = lane; i < 128; i += 32) B[b_lies_across ? i : i % 8 * 16 + i / 8] = W[i];
    __syncwarp();
    unsigned a[4], b[2];
    if (a_lies_across) ldmatrix_x4_trans(a[0], a[1], a[2], a[3],
        A + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
    else ldmatrix_x4(a[0], a[1], a[2], a[3], A + lane % 16 * 16 + lane / 16 * 8);
    if (b_lies_across) ldmatrix_x2_trans(b[0], b[1], B + lane % 16 * 8);
    else ldmatrix_x2(b[0], b[1], B + lane % 8 * 16 + lane / 8 % 2 * 8);
    float d[4] = {{1, 1, 1, 1}};
    mma_{dtype}(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b[0], b[1]);
    for (int r = 0; r < 4; ++r)
        Y[blockIdx.x * 128 + (lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = d[r];
"""
    kind = TYPES[dtype]
    return collective(
        f"products_of_warps_{dtype}", code, {"X": ((16, 16), kind), "W": ((16, 8), kind)},
        ((4, 16, 8), F32), lambda a: np.stack([1 + a["X"] @ a["W"]] * 4), grid=4,
    )  # fmt: skip


TF32 = collective(
    "products_tf32",
    """
    unsigned a[4], b[2];
    for (int r = 0; r < 4; ++r)
        a[r] = to_tf32(X[(lane / 4 + r % 2 * 8) * 8 + lane % 4 + r / 2 * 4]);
    for (int r = 0; r < 2; ++r) b[r] = to_tf32(W[(lane % 4 + r * 4) * 8 + lane / 4]);
    float d[4] = {};
    mma_tf32(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b[0], b[1]);
    for (int r = 0; r < 4; ++r) Y[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = d[r];
""",
    {"X": ((16, 8), F32), "W": ((8, 8), F32)},
    ((16, 8), F32),
    lambda a: a["X"] @ a["W"],
)

# Four 8x8 matrices are stored as they are and across, then pairs multiplied.
STORED = collective(
    "stored_matrices",
    """
    unsigned short* tile = reinterpret_cast<unsigned short*>(shared_memory);
    unsigned m[4];
    for (int i = lane; i < 256; i += 32) tile[i] = X[i];
    __syncwarp();
    ldmatrix_x4(m[0], m[1], m[2], m[3], tile + lane * 8);
    __syncwarp();
    if (blockIdx.x) stmatrix_x4_trans(tile + lane * 8, m[0], m[1], m[2], m[3]);
    else stmatrix_x4(tile + lane * 8, m[0], mul_f16x2(m[1], m[0]), m[2], m[3]);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) Y[blockIdx.x * 256 + i] = tile[i];
""",
    {"X": ((4, 8, 8), F16)},
    ((2, 4, 8, 8), F16),
    lambda a: np.stack(
        [
            np.stack([a["X"][0], a["X"][1] * a["X"][0], a["X"][2], a["X"][3]]),
            a["X"].transpose(0, 2, 1),
        ]
    ),
    grid=2,
    capability=90,
)

# Sums of a row over a warp, and over a cluster in three ways.
SHUFFLES = collective(
    "shuffles",
    """
    float x = X[thread];
    for (int m = 1; m < 32; m *= 2) x += shuffle_xor(x, m);
    float* parts = reinterpret_cast<float*>(shared_memory);
    if (lane == 0) parts[warp] = x;
    __syncthreads();
    float y = 0;
    for (int w = 0; w < 4; ++w) y += parts[w];
    Y[thread] = max_nan(y, X[thread]) + __shfl_sync(0xffffffffu, X[thread], 3);
""",
    {"X": ((128,), F32)},
    ((128,), F32),
    lambda a: np.maximum(a["X"].sum(), a["X"]) + np.repeat(a["X"][3::32], 32),
    threads=128,
)

CLUSTER = collective(
    "cluster_sums",
    """
    float* mine = reinterpret_cast<float*>(shared_memory);
    float4* theirs = reinterpret_cast<float4*>(shared_memory + 1024);
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared_memory + 4096);
    const unsigned rank = cluster_rank();
    if (thread == 0) {
        mbarrier_init(bar, 4);
        mbarrier_fence_init();
    }
    mine[thread] = X[blockIdx.x * 64 + thread];
    cluster_arrive();
    cluster_wait();
    float sum = 0;
    for (unsigned r = 0; r < 4; ++r) sum += load_remote(mine + thread, r);
    for (unsigned r = 0; r < 4; ++r) sum += *in_block(mine + thread, r);
    for (unsigned r = 0; r < 4; ++r) {
        const float x = static_cast<float>(rank + 1);
        if (thread == 0) store_remote(theirs + rank, r, make_float4(x, 0, 0, x));
    }
    cluster_arrive();
    cluster_wait();
    for (int r = 0; r < 4; ++r) sum += theirs[r].x + theirs[r].w;
    if (thread < 4) mbarrier_arrive_at(bar, thread);
    mbarrier_wait(bar, 0);
    Y[blockIdx.x * 64 + thread] = sum;
    cluster_arrive();
    cluster_wait();
""",
    {"X": ((2, 4, 64), F32)},
    ((2, 4, 64), F32),
    lambda a: np.repeat(2 * a["X"].sum(1, keepdims=True) + 20, 4, axis=1),
    threads=64,
    grid=8,
    cluster=4,
    capability=90,
)

# Three stages of 16 bytes a thread; the last copy of each row is not in and brings zeros.
PIPELINE = collective(
    "copies_in_stages",
    """
    float4* stages = reinterpret_cast<float4*>(shared_memory);
    const float4* rows = reinterpret_cast<const float4*>(X);
    float sum = 0;
    for (int i = 0; i < 2; ++i) {
        cp_async_16(stages + i * 64 + thread, rows + i * 64 + thread, true);
        cp_async_commit();
    }
    for (int i = 0; i < 8; ++i) {
        cp_async_wait<1>();
        __syncthreads();
        const int next = i + 2;
        const bool is_in = next < 7;
        const float4* from = rows + (is_in ? next * 64 + thread : 0);
        cp_async_16(stages + next % 3 * 64 + thread, from, is_in);
        cp_async_commit();
        const float4 x = stages[i % 3 * 64 + (thread ^ 63)];
        sum += x.x + x.y + x.z + x.w;
    }
    Y[thread] = sum;
""",
    {"X": ((8, 64, 4), F32)},
    ((64,), F32),
    lambda a: a["X"][:7].sum((0, 2))[::-1],
    threads=64,
)

# A warp brings rows of 256 bytes through two stages, three others add them up.
BULK = collective(
    "bulk_in_stages",
    """
    unsigned long long* full = reinterpret_cast<unsigned long long*>(shared_memory + 4096);
    unsigned long long* empty = full + 2;
    if (thread == 0) {
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, 2);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warp == 0) {
        if (lane == 0)
            for (int i = 0; i < 8; ++i) {
                const int stage = i % 2;
                mbarrier_wait(empty + stage, i / 2 % 2 ^ 1);
                mbarrier_expect(full + stage, 256);
                unsigned char* to = shared_memory + stage * 256;
                bulk_load(to, X + i * 64, 128, full + stage);
                bulk_load_evict_first(to + 128, X + i * 64 + 32, 128, full + stage);
            }
    } else {
        float sum = 0;
        for (int i = 0; i < 8; ++i) {
            const int stage = i % 2;
            mbarrier_wait(full + stage, i / 2 % 2);
            sum += reinterpret_cast<float*>(shared_memory + stage * 256)[thread - 32];
            __syncwarp();
            if (lane == 0) mbarrier_arrive(empty + stage);
        }
        named_barrier(1, 64);
        Y[thread - 32] = sum;
    }
""",
    {"X": ((8, 64), F32)},
    ((64,), F32),
    lambda a: a["X"].sum(0),
    threads=96,
    capability=90,
)

# A box of 4x3x8 that sticks out of a tensor of 5x4x12 at every end.
TILE = collective(
    "tile_with_edges",
    """
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared_memory + 4096);
    if (thread == 0) {
        mbarrier_init(bar, 1);
        mbarrier_fence_init();
        tma_prefetch(&X_map);
        mbarrier_expect(bar, 4 * 3 * 8 * 4);
        tma_load_3d(shared_memory, &X_map, bar, 8, 2, -1);
    }
    __syncthreads();
    mbarrier_wait(bar, 0);
    for (int i = thread; i < 96; i += 32) Y[i] = reinterpret_cast<float*>(shared_memory)[i];
""",
    {"X": ((5, 4, 12), F32)},
    ((4, 3, 8), F32),
    lambda a: np.pad(a["X"], ((1, 0), (0, 1), (0, 4)))[0:4, 2:5, 8:16],
    maps=(TensorMap("X_map", "X", (12, 4, 5), (48, 192), (8, 3, 4), 0),),
    capability=90,
)


# Every third row of a box and every second column.
STEPS = collective(
    "tile_with_steps",
    """
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared_memory + 4096);
    if (thread == 0) {
        mbarrier_init(bar, 1);
        mbarrier_fence_init();
        mbarrier_expect(bar, 2 * 3 * 8 * 4);
        tma_load_3d(shared_memory, &X_map, bar, 4, 1, 1);
    }
    __syncthreads();
    mbarrier_wait(bar, 0);
    for (int i = thread; i < 48; i += 32) Y[i] = reinterpret_cast<float*>(shared_memory)[i];
""",
    {"X": ((5, 8, 12), F32)},
    ((2, 3, 8), F32),
    lambda a: a["X"][1:5:3, 1:6:2, 4:12],
    maps=(TensorMap("X_map", "X", (12, 8, 5), (48, 384), (8, 6, 6), 0, (1, 2, 3)),),
    capability=90,
)


# Numbers of float32 on their way to tensor cores.
ROUNDED = collective(
    "tile_in_tf32",
    """
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared_memory + 4096);
    if (thread == 0) {
        mbarrier_init(bar, 1);
        mbarrier_fence_init();
        mbarrier_expect(bar, 4 * 32 * 4);
        tma_load_2d(shared_memory, &X_map, bar, 0, 0);
    }
    __syncthreads();
    mbarrier_wait(bar, 0);
    for (int i = thread; i < 128; i += 32) Y[i] = reinterpret_cast<float*>(shared_memory)[i];
""",
    {"X": ((4, 32), F32)},
    ((4, 32), F32),
    lambda a: _nearest_tf32(a["X"]),
    maps=(TensorMap("X_map", "X", (32, 4), (128,), (32, 4), 0, rounds=True),),
    capability=90,
)


def _nearest_tf32(x: NDArray[np.float64]) -> NDArray[np.float64]:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64)


def _pixels(a: Arrays) -> NDArray[np.float64]:
    """32 pixels at an offset of (2, 1) from places of images, four lines of five, from (4, 3)."""
    places = [(n, 2 * h, 1 * w) for n in range(3) for h in range(4) for w in range(5)]
    at = places.index((0, 4, 3))
    chosen = places[at : at + 32]
    return np.stack([a["X"][n, h + 2, w + 1, 4:12] for n, h, w in chosen])


# Pixels of windows of 3 x 3 at steps of 2 and 1, over the ends of lines and of an image.
PIXELS = collective(
    "pixels_of_windows",
    """
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared_memory + 4096);
    if (thread == 0) {
        mbarrier_init(bar, 1);
        mbarrier_fence_init();
        mbarrier_expect(bar, 32 * 8 * 4);
        tma_load_im2col_4d(shared_memory, &X_map, bar, 4, 3, 4, 0, 1, 2);
    }
    __syncthreads();
    mbarrier_wait(bar, 0);
    for (int i = thread; i < 256; i += 32) Y[i] = reinterpret_cast<float*>(shared_memory)[i];
""",
    {"X": ((3, 10, 7, 12), F32)},
    ((32, 8), F32),
    _pixels,
    maps=(
        TensorMap(
            *("X_map", "X", (12, 7, 10, 3), (48, 336, 3360), (8, 32), 0),
            windows=Im2col((-2, -3), (1, 1, 2, 1)),
        ),
    ),
    capability=90,
)


@dataclass(frozen=True)
class _Operand:
    """How an operand of wgmma with ``extent`` rows and K = 64 lies in shared memory."""

    name: str
    extent: int
    swizzle: int
    is_transposed: bool

    @property
    def width(self) -> int:
        return self.swizzle // 2 or 8

    @property
    def tensor_map(self) -> TensorMap:
        inner, outer = (self.extent, 64) if self.is_transposed else (64, self.extent)
        return TensorMap(
            f"{self.name}_map", self.name, (inner, outer), (2 * inner,), (self.width, outer),
            self.swizzle,
        )  # fmt: skip

    @property
    def boxes(self) -> int:
        return (self.extent if self.is_transposed else 64) // self.width

    @property
    def box_bytes(self) -> int:
        return self.width * 2 * (64 if self.is_transposed else self.extent)

    def loads(self, at: int) -> str:
        return "\n        ".join(
            f"tma_load_2d(shared_memory + {at + i * self.box_bytes}, &{self.name}_map, bar, "
            f"{i * self.width}, 0);"
            for i in range(self.boxes)
        )

    def descriptor(self, at: int, step: int) -> str:
        """Of 16 steps of K."""
        if self.is_transposed and self.swizzle:
            place, leading, stride = step * 16 * self.swizzle, self.box_bytes, 8 * self.swizzle
        elif self.is_transposed:
            place, leading, stride = step * 256, 128, self.box_bytes
        elif self.swizzle:
            box, inside = divmod(step * 16, self.width)
            place, leading, stride = box * self.box_bytes + inside * 2, 16, 8 * self.swizzle
        else:
            place, leading, stride = 2 * step * self.box_bytes, self.box_bytes, 128
        return (
            f"shared_descriptor(shared_memory + {at + place}, {leading}, {stride}, {self.swizzle})"
        )


def _products_of_warp_groups(dtype: str, n: int, swizzle: int) -> Collective:
    """64x64 by 64xn in six blocks: A and B by rows or by columns, and A in registers."""
    a = {t: _Operand("At" if t else "A", 64, swizzle, t) for t in (False, True)}
    b = {t: _Operand("Bt" if t else "B", n, swizzle, t) for t in (False, True)}
    b_at, bar_at = 8192, 8192 + n * 128
    cases = []
    for block in range(6):
        a_across, b_across, in_registers = bool(block & 2), bool(block & 1), block >= 4
        axes = "kt"[a_across] + "kt"[b_across]
        name = f"wgmma_m64n{n}k16_{dtype}_{'rs' if in_registers else 'ss'}_{axes}"
        loads = b[b_across].loads(b_at)
        if not in_registers:
            loads = f"{a[a_across].loads(0)}\n        {loads}"
        calls = []
        for step in range(4):
            if in_registers:
                first = ", ".join(
                    f"pairs[(row + {r % 2 * 8}) * 32 + {step * 8 + r // 2 * 4} + lane % 4]"
                    for r in range(4)
                )
            else:
                first = a[a_across].descriptor(0, step)
            second = b[b_across].descriptor(b_at, step)
            calls.append(f"{name}(d, {first}, {second}, {str(step > 0).lower()});")
        text = "\n        ".join(calls)
        cases.append(f"""
    if (blockIdx.x == {block}) {{
        if (thread == 0) {{
        mbarrier_expect(bar, {n * 128 + (0 if in_registers else 8192)});
        {loads}
        }}
        mbarrier_wait(bar, 0);
        wgmma_fence();
        {text}
        wgmma_commit();
        wgmma_wait<0>();
        keep(d);
    }}""")
    code = f"""
    unsigned long long* bar = reinterpret_cast<unsigned long long*>(shared_memory + {bar_at});
    const int row = warp * 16 + lane / 4;
    const unsigned* pairs = reinterpret_cast<const unsigned*>(A);
    if (thread == 0) {{
        mbarrier_init(bar, 1);
        mbarrier_fence_init();
    }}
    __syncthreads();
    float d[{n // 2}];
    for (int i = 0; i < {n // 2}; ++i) d[i] = 5;
    keep(d);
{"".join(cases)}
    for (int i = 0; i < {n // 2}; ++i)
        Y[(blockIdx.x * 64 + row + i / 2 % 2 * 8) * {n} + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
"""
    kind = TYPES[dtype]
    shapes = {"A": (64, 64), "At": (64, 64), "B": (n, 64), "Bt": (64, n)}
    return collective(
        f"products_of_warp_groups_{dtype}_{swizzle}", code,
        {name: (shape, kind) for name, shape in shapes.items()},
        ((6, 64, n), F32),
        lambda a: np.stack(
            [
                (a["At"].T if block in {2, 3} else a["A"]) @ (a["Bt"] if block & 1 else a["B"].T)
                for block in range(6)
            ]
        ),
        threads=128, grid=6, smem_bytes=bar_at + 64, capability=90,
        maps=tuple(o.tensor_map for o in (a[False], a[True], b[False], b[True])),
    )  # fmt: skip


COLLECTIVES = (
    _products_of_warps("f16"),
    _products_of_warps("bf16"),
    TF32,
    STORED,
    SHUFFLES,
    CLUSTER,
    PIPELINE,
    BULK,
    TILE,
    STEPS,
    PIXELS,
    ROUNDED,
    *(
        _products_of_warp_groups("bf16" if swizzle == 64 else "f16", n, swizzle)
        for swizzle, n in ((128, 128), (64, 64), (32, 64), (0, 32))
    ),
)
