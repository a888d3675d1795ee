"""µGraphs of several kernels over split programs, written by hand: ``several_kernels.NAMES``.

Sizes are those of a real model cut down, with tails in the grid; tiles are such that tensor cores
take the products.
"""

from __future__ import annotations

from functools import cache

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.ugraph.text.printing import format_program
from mirage_py.ugraph.text.text_form import parse_ugraph

RMS_NORM_MATMUL = """
B = 20, D = 960, N = 200
X[B, D], G[D], W[D, N] : f16
Y[b, n] = sum[d](X[b, d] * G[d] * W[d, n]) / sqrt(mean[d](X[b, d]^2) + 1e-6)
"""

RMS_NORM_MATMUL_KERNELS = """
tensor P0[4, 20, 200] : f32
tensor P1[4, 20] : f32
kernel partial {
  grid n by 64, d_part by 1, b by 16
  loop d by 64 {
    %0 = load X[b, d_part * 240 + d]
    %1 = load G[d_part * 240 + d]
    %2 = mul %0, %1
    %3 = load W[d_part * 240 + d, n]
    %4 = matmul[d] %2, %3
    %5 = accum_sum %4
    %6 = square %0
    %7 = sum[d] %6
    %8 = accum_sum %7
  }
  store P0[d_part, b, n] = %5
  store P1[d_part, b] = %8
}
kernel combine {
  grid n by 64, b by 4
  %0 = load P0[d_part, b, n]
  %1 = sum[d_part] %0
  %2 = load P1[d_part, b]
  %3 = sum[d_part] %2
  %4 = size d_part
  %5 = size d
  %6 = mul %4, %5
  %7 = div %3, %6
  %8 = const 1e-06
  %9 = add %7, %8
  %10 = sqrt %9
  %11 = div %1, %10
  store Y[b, n] = %11
}
"""

ATTENTION = """
HEADS = 2, ROWS = 20, KEYS = 480, C = 64, E = 64
Q[HEADS, ROWS, C], K[HEADS, KEYS, C], V[HEADS, KEYS, E] : f16
let Z[h, q, s] = sum[c](Q[h, q, c] * K[h, s, c]) * 0.125
O[h, q, e] = sum[s](exp(Z[h, q, s]) * V[h, s, e]) / sum[s](exp(Z[h, q, s]))
"""

CAUSAL_ATTENTION = """
HEADS = 2, ROWS = 20, KEYS = 480, C = 64, E = 64
Q[HEADS, ROWS, C], K[HEADS, KEYS, C], V[HEADS, KEYS, E] : f16
let Z[h, q, s] = sum[c](Q[h, q, c] * K[h, s, c]) * 0.125
let P[h, q, s] = exp(Z[h, q, s]) * (s <= q + 460)
O[h, q, e] = sum[s](P[h, q, s] * V[h, s, e]) / sum[s](P[h, q, s])
"""

# Flash decoding. The grid has four axes: M and L do not depend on e, so that the first block along
# it stores them.
ATTENTION_KERNELS = """
tensor M[4, 2, 20] : f32
tensor L[4, 2, 20] : f32
tensor A[4, 2, 20, 64] : f32
kernel partial {
  grid q by 16, e by 32, s_part by 1, h by 1
  %0 = load Q[h, q, c]
  %1 = const 0.125
  loop s by 64 {
    %2 = load K[h, s_part * 120 + s, c]
    %3 = matmul[c] %0, %2
    %4 = mul %3, %1
    %5 = max[s] %4
    %6 = accum_max[shift] %5
    %7 = sub %4, %6
    %8 = exp %7
    %9 = sum[s] %8
    %10 = accum_rescaled[1] %9, %6
    %11 = load V[h, s_part * 120 + s, e]
    %12 = matmul[s] %8, %11
    %13 = accum_rescaled[1] %12, %6
  }
  store M[s_part, h, q] = %6
  store L[s_part, h, q] = %10
  store A[s_part, h, q, e] = %13
}
kernel combine {
  grid q by 8, h by 1
  %0 = load M[s_part, h, q]
  %1 = max[s_part] %0
  %2 = shift %1
  %3 = sub %0, %2
  %4 = exp %3
  %5 = load L[s_part, h, q]
  %6 = mul %5, %4
  %7 = sum[s_part] %6
  %8 = load A[s_part, h, q, e]
  %9 = mul %8, %4
  %10 = sum[s_part] %9
  %11 = div %10, %7
  store O[h, q, e] = %11
}
"""

_, _, _COMBINE = ATTENTION_KERNELS.partition("kernel combine")

CAUSAL_ATTENTION_KERNELS = f"""
tensor M[4, 2, 20] : f32
tensor L[4, 2, 20] : f32
tensor A[4, 2, 20, 64] : f32
kernel partial {{
  grid q by 16, e by 32, s_part by 1, h by 1
  %0 = load Q[h, q, c]
  %1 = const 0.125
  %2 = const -1e+30
  loop s by 64 {{
    %3 = load K[h, s_part * 120 + s, c]
    %4 = matmul[c] %0, %3
    %5 = mul %4, %1
    %6 = mask (s_part * 120 + s <= q + 460)
    %7 = where %6, %5, %2
    %8 = max[s] %7
    %9 = accum_max[shift] %8
    %10 = sub %5, %9
    %11 = exp %10
    %12 = mul %11, %6
    %13 = sum[s] %12
    %14 = accum_rescaled[1] %13, %9
    %15 = load V[h, s_part * 120 + s, e]
    %16 = matmul[s] %12, %15
    %17 = accum_rescaled[1] %16, %9
  }}
  store M[s_part, h, q] = %9
  store L[s_part, h, q] = %14
  store A[s_part, h, q, e] = %17
}}
kernel combine{_COMBINE}"""

MATMUL = """
B = 20, D = 960, N = 200
X[B, D], W[D, N] : f16
Y[b, n] : f32 = sum[d](X[b, d] * W[d, n])
"""

ADDED_KERNELS = """
kernel split_k {
  grid n by 64, d_part by 1, b by 16
  loop d by 64 {
    %0 = load X[b, d_part * 240 + d]
    %1 = load W[d_part * 240 + d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  store_add Y[b, n] = %3
}
"""

GELU_MATMUL = """
B = 20, D = 96, N = 200
X[B, D], W[D, N], C[N] : f16
Y[b, n] = gelu(sum[d](X[b, d] * W[d, n]) + C[n])
"""

EPILOGUE_KERNELS = """
tensor T[20, 200] : f32
library product = matmul(X, W) -> T
kernel epilogue {
  grid n by 64, b by 16
  %0 = load T[b, n]
  %1 = load C[n]
  %2 = add %0, %1
  %3 = gelu %2
  store Y[b, n] = %3
}
"""

PROLOGUE_KERNELS = """
tensor S[20, 960] : f16
kernel norm {
  grid b by 1
  %0 = load X[b, d]
  %1 = square %0
  %2 = sum[d] %1
  %3 = size d
  %4 = div %2, %3
  %5 = const 1e-06
  %6 = add %4, %5
  %7 = sqrt %6
  %8 = div %0, %7
  %9 = load G[d]
  %10 = mul %8, %9
  store S[b, d] = %10
}
library product = matmul(S, W) -> Y
"""

RESIDUAL_GATED = """
B = 20, D = 256, F = 200
X[B, D], R[B, D], U[D, F], W[D, F] : f16
H[b, d] = X[b, d] + R[b, d]
let N[b] = sqrt(mean[d](H[b, d]^2) + 1e-6)
let A[b, f] = sum[d](H[b, d] / N[b] * U[d, f])
Y[b, f] = silu(A[b, f]) * sum[d](H[b, d] / N[b] * W[d, f])
"""

RESIDUAL_GATED_KERNELS = """
kernel gated {
  grid f by 64, b by 16
  loop d by 64 {
    %0 = load X[b, d]
    %1 = load R[b, d]
    %2 = add %0, %1
    store H[b, d] = %2
    %4 = square %2
    %5 = sum[d] %4
    %6 = accum_sum %5
    %7 = load U[d, f]
    %8 = matmul[d] %2, %7
    %9 = accum_sum %8
    %10 = load W[d, f]
    %11 = matmul[d] %2, %10
    %12 = accum_sum %11
  }
  %13 = size d
  %14 = div %6, %13
  %15 = const 1e-06
  %16 = add %14, %15
  %17 = sqrt %16
  %18 = div %9, %17
  %19 = silu %18
  %20 = div %12, %17
  %21 = mul %19, %20
  store Y[b, f] = %21
}
"""

# Name -> the program as a spec, the dimension that is split, intermediates and kernels.
_SOURCES = {
    "split_rms_norm_matmul": (RMS_NORM_MATMUL, "d", RMS_NORM_MATMUL_KERNELS),
    "split_attention": (ATTENTION, "s", ATTENTION_KERNELS),
    "split_causal_attention": (CAUSAL_ATTENTION, "s", CAUSAL_ATTENTION_KERNELS),
    "split_matmul_added": (MATMUL, "d", ADDED_KERNELS),
    "library_epilogue": (GELU_MATMUL, "", EPILOGUE_KERNELS),
    "library_prologue": (RMS_NORM_MATMUL, "", PROLOGUE_KERNELS),
    "residual_gated": (RESIDUAL_GATED, "", RESIDUAL_GATED_KERNELS),
}
NAMES = sorted(_SOURCES)
PARTS = 4


@cache
def program(name: str) -> Program:
    """The program, not split."""
    return parse(_SOURCES[name][0])


@cache
def ugraph(name: str) -> UGraph:
    """The kernels with their tiles, over the split program."""
    source = program(name)
    _, dim, kernels = _SOURCES[name]
    return over(split_dim(source, dim, PARTS) if dim else source, kernels)


_DECLARATIONS = ("fp32_precision", "dim", "input", "output")


def over(program: Program, kernels: str) -> UGraph:
    """A µGraph of a program, from the text of its intermediates and kernels."""
    head, *lines = format_program(program).splitlines()
    declared = [line for line in lines if line.split()[0] in _DECLARATIONS]
    body = [line for line in lines if line not in declared]
    between = [line for line in kernels.splitlines() if line.startswith("tensor ")]
    rest = [line for line in kernels.splitlines() if line not in between]
    text = [head.replace("program", "ugraph", 1), *declared, *between]
    return parse_ugraph("\n".join([*text, "program {", *body, "}", *rest]))


def plan(name: str) -> Plan:
    """The instance with launch options."""
    graph = ugraph(name)
    options = (
        LaunchConfig(4, tuple(2 for s in k.sections if s.loop))
        if isinstance(k, BlockGraph)
        else LaunchConfig()
        for k in graph.kernels
    )
    return Plan(graph, tuple(options))
