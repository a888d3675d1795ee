"""µGraphs written by hand, with sizes that no tile divides, and inputs for them."""

from __future__ import annotations

from functools import cache

import numpy as np

from mirage_py.ugraph.field import FieldArray, FieldOps
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph

_RMS_NORM_MATMUL = """
dim b = 7
dim d = 12
dim n = 13
input X[7, 12] : f16
input G[12] : f16
input W[12, 13] : f16
output Y[7, 13] : f16
"""

_RMS_NORM_MATMUL_PROGRAM = """
program {
  %0 = load X[b, d]
  %1 = load G[d]
  %2 = mul %0, %1
  %3 = load W[d, n]
  %4 = matmul[d] %2, %3
  %5 = square %0
  %6 = sum[d] %5
  %7 = size d
  %8 = div %6, %7
  %9 = const 1e-06
  %10 = add %8, %9
  %11 = sqrt %10
  %12 = div %4, %11
  return Y[b, n] = %12
}
"""

RMS_NORM_MATMUL = f"""
ugraph rms_norm_matmul
{_RMS_NORM_MATMUL}
{_RMS_NORM_MATMUL_PROGRAM}
kernel fused {{
  grid n by 4, b by 4
  loop d by 5 {{
    %0 = load X[b, d]
    %1 = load G[d]
    %2 = mul %0, %1
    %3 = load W[d, n]
    %4 = matmul[d] %2, %3
    %5 = accum_sum %4
    %6 = square %0
    %7 = sum[d] %6
    %8 = accum_sum %7
  }}
  %9 = size d
  %10 = div %8, %9
  %11 = const 1e-06
  %12 = add %10, %11
  %13 = sqrt %12
  %14 = div %5, %13
  store Y[b, n] = %14
  thread {{ %10 %12 %13 }}
}}
"""

RMS_NORM_MATMUL_TWO_LOOPS = f"""
ugraph rms_norm_matmul_two_loops
{_RMS_NORM_MATMUL}
{_RMS_NORM_MATMUL_PROGRAM}
kernel fused {{
  grid b by 4
  loop d by 5 {{
    %0 = load X[b, d]
    %1 = square %0
    %2 = sum[d] %1
    %3 = accum_sum %2
  }}
  %4 = size d
  %5 = div %3, %4
  %6 = const 1e-06
  %7 = add %5, %6
  %8 = sqrt %7
  loop d by 7 {{
    %9 = load X[b, d]
    %10 = div %9, %8
    %11 = load G[d]
    %12 = mul %10, %11
    %13 = load W[d, n]
    %14 = matmul[d] %12, %13
    %15 = accum_sum %14
  }}
  store Y[b, n] = %15
}}
"""

RMS_NORM_MATMUL_LIBRARY = f"""
ugraph rms_norm_matmul_library
{_RMS_NORM_MATMUL}
tensor S[7, 12] : f32
{_RMS_NORM_MATMUL_PROGRAM}
kernel scale {{
  grid b by 2
  %0 = load X[b, d]
  %1 = load G[d]
  %2 = mul %0, %1
  %3 = square %0
  %4 = sum[d] %3
  %5 = size d
  %6 = div %4, %5
  %7 = const 1e-06
  %8 = add %6, %7
  %9 = sqrt %8
  %10 = div %2, %9
  store S[b, d] = %10
}}
library project = matmul(S, W) -> Y
"""

SOFTMAX = """
ugraph softmax
dim b = 7
dim s = 13
input X[7, 13] : f32
output Y[7, 13] : f32
program {
  %0 = load X[b, s]
  %1 = exp %0
  %2 = sum[s] %1
  %3 = div %1, %2
  return Y[b, s] = %3
}
kernel two_passes {
  grid b by 4
  loop s by 4 {
    %0 = load X[b, s]
    %1 = max[s] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[s] %4
    %6 = accum_rescaled[1] %5, %2
  }
  loop s by 5 {
    %7 = load X[b, s]
    %8 = sub %7, %2
    %9 = exp %8
    %10 = div %9, %6
    store Y[b, s] = %10
  }
}
"""

SOFTMAX_WHOLE_ROW = """
ugraph softmax_whole_row
dim b = 7
dim s = 13
input X[7, 13] : f32
output Y[7, 13] : f32
program {
  %0 = load X[b, s]
  %1 = exp %0
  %2 = sum[s] %1
  %3 = div %1, %2
  return Y[b, s] = %3
}
kernel one_pass {
  grid b by 3
  %0 = load X[b, s]
  %1 = max[s] %0
  %2 = shift %1
  %3 = sub %0, %2
  %4 = exp %3
  %5 = sum[s] %4
  %6 = div %4, %5
  store Y[b, s] = %6
}
"""

_ATTENTION = """
dim h = 2
dim t = 7
dim s = 13
dim c = 5
dim e = 3
input Q[2, 7, 5] : f16
input K[2, 13, 5] : f16
input V[2, 13, 3] : f16
output O[2, 7, 3] : f16
"""

ATTENTION = f"""
ugraph attention
{_ATTENTION}
program {{
  %0 = load Q[h, t, c]
  %1 = load K[h, s, c]
  %2 = matmul[c] %0, %1
  %3 = const 0.4472135954999579
  %4 = mul %2, %3
  %5 = exp %4
  %6 = mask (s <= t + 6)
  %7 = mul %5, %6
  %8 = load V[h, s, e]
  %9 = matmul[s] %7, %8
  %10 = sum[s] %7
  %11 = div %9, %10
  return O[h, t, e] = %11
}}
kernel flash {{
  grid h by 1, t by 4
  %0 = load Q[h, t, c]
  %1 = const 0.4472135954999579
  loop s by 4 {{
    %2 = load K[h, s, c]
    %3 = matmul[c] %0, %2
    %4 = mul %3, %1
    %5 = mask (s <= t + 6)
    %6 = const -1e+30
    %7 = where %5, %4, %6
    %8 = max[s] %7
    %9 = accum_max[shift] %8
    %10 = sub %4, %9
    %11 = exp %10
    %12 = mul %5, %11
    %13 = sum[s] %12
    %14 = accum_rescaled[1] %13, %9
    %15 = load V[h, s, e]
    %16 = matmul[s] %12, %15
    %17 = accum_rescaled[1] %16, %9
  }}
  %18 = div %17, %14
  store O[h, t, e] = %18
}}
"""

SPLIT_ATTENTION = """
ugraph split_attention
dim h = 2
dim t = 3
dim p = 3
dim s = 5
dim c = 4
dim e = 6
input Q[2, 3, 4] : f16
input K[2, 15, 4] : f16 strides (60, 1, 15)
input V[2, 15, 6] : f16
output O[3, 12] : f16
tensor M[2, 3, 3] : f32
tensor L[2, 3, 3] : f32
tensor A[2, 3, 3, 6] : f32
program {
  %0 = load Q[h, t, c]
  %1 = load K[h, p * 5 + s, c]
  %2 = matmul[c] %0, %1
  %3 = exp %2
  %4 = load V[h, p * 5 + s, e]
  %5 = matmul[p, s] %3, %4
  %6 = sum[p, s] %3
  %7 = div %5, %6
  return O[t, h * 6 + e] = %7
}
kernel partial {
  grid h by 1, p by 1
  %0 = load Q[h, t, c]
  loop s by 2 {
    %1 = load K[h, p * 5 + s, c]
    %2 = matmul[c] %0, %1
    %3 = max[s] %2
    %4 = accum_max[shift] %3
    %5 = sub %2, %4
    %6 = exp %5
    %7 = sum[s] %6
    %8 = accum_rescaled[1] %7, %4
    %9 = load V[h, p * 5 + s, e]
    %10 = matmul[s] %6, %9
    %11 = accum_rescaled[1] %10, %4
  }
  store M[h, p, t] = %4
  store L[h, p, t] = %8
  store A[h, p, t, e] = %11
}
kernel combine {
  grid h by 1, t by 2
  loop p by 2 {
    %0 = load M[h, p, t]
    %1 = max[p] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = load L[h, p, t]
    %6 = mul %4, %5
    %7 = sum[p] %6
    %8 = accum_rescaled[1] %7, %2
    %9 = load A[h, p, t, e]
    %10 = matmul[p] %4, %9
    %11 = accum_rescaled[1] %10, %2
  }
  %12 = div %11, %8
  store O[t, h * 6 + e] = %12
}
"""

# Two outputs with different dimensions: H is stored by the blocks with the first tile of f.
RESIDUAL_GATED = """
ugraph residual_gated
dim b = 7
dim d = 12
dim f = 13
input X[7, 12] : f16
input R[7, 12] : f16
input U[12, 13] : f16
input W[12, 13] : f16
output H[7, 12] : f16
output Y[7, 13] : f16
program {
  %0 = load X[b, d]
  %1 = load R[b, d]
  %2 = add %0, %1
  %3 = square %2
  %4 = sum[d] %3
  %5 = size d
  %6 = div %4, %5
  %7 = const 1e-06
  %8 = add %6, %7
  %9 = sqrt %8
  %10 = div %2, %9
  %11 = load U[d, f]
  %12 = matmul[d] %10, %11
  %13 = silu %12
  %14 = load W[d, f]
  %15 = matmul[d] %10, %14
  %16 = mul %13, %15
  return H[b, d] = %2
  return Y[b, f] = %16
}
kernel gated {
  grid f by 4, b by 4
  loop d by 5 {
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

# The parts of a long product are added up in memory; S does not depend on n.
SPLIT_MATMUL_ADDED = """
ugraph split_matmul_added
dim b = 7
dim p = 3
dim d = 5
dim n = 13
input X[7, 15] : f16
input W[15, 13] : f16
output Y[7, 13] : f32
output S[7] : f32
program {
  %0 = load X[b, p * 5 + d]
  %1 = load W[p * 5 + d, n]
  %2 = matmul[p, d] %0, %1
  %3 = square %0
  %4 = sum[p, d] %3
  return Y[b, n] = %2
  return S[b] = %4
}
kernel split_k {
  grid n by 4, p by 2, b by 4
  loop d by 2 {
    %0 = load X[b, p * 5 + d]
    %1 = load W[p * 5 + d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  store_add Y[b, n] = %3
  %5 = load X[b, p * 5 + d]
  %6 = square %5
  %7 = sum[d] %6
  store_add S[b] = %7
}
"""

ROW_MAXIMUM = """
ugraph row_maximum
dim b = 5
dim s = 11
input X[5, 11] : f32
output Y[5] : f32
program {
  %0 = load X[b, s]
  %1 = silu %0
  %2 = max[s] %1
  return Y[b] = %2
}
kernel scan {
  grid b by 2
  loop s by 3 {
    %0 = load X[b, s]
    %1 = silu %0
    %2 = max[s] %1
    %3 = accum_max %2
  }
  store Y[b] = %3
}
"""

# Both halves of a rotary embedding: quotients and remainders in indices, and a value repeated.
ROTARY = """
ugraph rotary
dim b = 3
dim r = 2
dim x = 10
input X[3, 10] : bf16
input C[5] : f32
output Y[3, 2, 10] : bf16
program {
  %0 = load X[b, (x + 5) % 10]
  %1 = const -1.0
  %2 = mul %0, %1
  %3 = mask (x < 5)
  %4 = where %3, %2, %0
  %5 = load C[x % 5]
  %6 = mul %4, %5
  %7 = load X[b, x]
  %8 = add %6, %7
  %9 = index x // 5 + r
  %10 = mul %8, %9
  %11 = cast[bf16] %10
  return Y[b, r, x] = %11
}
kernel k0 {
  grid b by 2, x by 4
  %0 = load X[b, (x + 5) % 10]
  %1 = const -1.0
  %2 = mul %0, %1
  %3 = mask (x < 5)
  %4 = where %3, %2, %0
  %5 = load C[x % 5]
  %6 = mul %4, %5
  %7 = load X[b, x]
  %8 = add %6, %7
  %9 = index x // 5 + r
  %10 = mul %8, %9
  %11 = cast[bf16] %10
  store Y[b, r, x] = %11
}
"""

TEXTS = {
    "rms_norm_matmul": RMS_NORM_MATMUL,
    "rms_norm_matmul_two_loops": RMS_NORM_MATMUL_TWO_LOOPS,
    "rms_norm_matmul_library": RMS_NORM_MATMUL_LIBRARY,
    "softmax": SOFTMAX,
    "softmax_whole_row": SOFTMAX_WHOLE_ROW,
    "attention": ATTENTION,
    "split_attention": SPLIT_ATTENTION,
    "residual_gated": RESIDUAL_GATED,
    "split_matmul_added": SPLIT_MATMUL_ADDED,
    "row_maximum": ROW_MAXIMUM,
    "rotary": ROTARY,
}


@cache
def ugraph(name: str) -> UGraph:
    """The sample of that name."""
    return parse_ugraph(TEXTS[name], name)


def float_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Normally distributed inputs, float64."""
    draw = np.random.default_rng(seed)
    return {t.name: draw.normal(size=t.shape) for t in program.inputs}


def field_inputs(program: Program, ops: FieldOps) -> dict[str, FieldArray]:
    """Uniform inputs over the field pair of a trial."""
    return {t.name: ops.random(t.shape, t.name) for t in program.inputs}


def edited(name: str, *changes: tuple[str, str]) -> UGraph:
    """The sample with parts of its text replaced; each must be there."""
    text = TEXTS[name]
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse_ugraph(text, name)
