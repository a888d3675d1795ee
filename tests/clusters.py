"""µGraphs whose partial results are combined inside a thread-block cluster, as plans for CUDA.

Each builder splits one dimension of its program in ``parts``, one to a block of the cluster, and
takes extents, tiles and warps; sizes that tiles do not divide leave tails.
"""

from __future__ import annotations

from several_kernels import over

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.ugraph.rewrite.split_dim import split_dim

ATTENTION = """
HEADS = {heads}, ROWS = {rows}, KEYS = {keys}, C = {width}, E = {width}
Q[HEADS, ROWS, C], K[HEADS, KEYS, C], V[HEADS, KEYS, E] : f16
let Z[h, q, s] = sum[c](Q[h, q, c] * K[h, s, c]) * 0.125
let P[h, q, s] = exp(Z[h, q, s]){mask}
O[h, q, e] = sum[s](P[h, q, s] * V[h, s, e]) / sum[s](P[h, q, s])
"""

ATTENTION_KERNEL = """
kernel attention {{
  grid q by {q}, e by {e}, s_part by 1 in cluster, h by 1
  %0 = load Q[h, q, c]
  %1 = const 0.125
  loop s by {s} {{
    %2 = load K[h, s_part * {part} + s, c]
    %3 = matmul[c] %0, %2
    %4 = mul %3, %1
    %5 = max[s] %4
    %6 = accum_max[shift] %5
    %7 = sub %4, %6
    %8 = exp %7
    %9 = sum[s] %8
    %10 = accum_rescaled[1] %9, %6
    %11 = load V[h, s_part * {part} + s, e]
    %12 = matmul[s] %8, %11
    %13 = accum_rescaled[1] %12, %6
  }}
  %14 = max[s_part] %6
  %15 = shift %14
  %16 = sub %6, %15
  %17 = exp %16
  %18 = mul %10, %17
  %19 = sum[s_part] %18
  %20 = mul %13, %17
  %21 = sum[s_part] %20
  %22 = div %21, %19
  store O[h, q, e] = %22
}}
"""

CAUSAL_ATTENTION_KERNEL = """
kernel attention {{
  grid q by {q}, e by {e}, s_part by 1 in cluster, h by 1
  %0 = load Q[h, q, c]
  %1 = const 0.125
  %2 = const -1e+30
  loop s by {s} {{
    %3 = load K[h, s_part * {part} + s, c]
    %4 = matmul[c] %0, %3
    %5 = mul %4, %1
    %6 = mask (s_part * {part} + s <= q + {ahead})
    %7 = where %6, %5, %2
    %8 = max[s] %7
    %9 = accum_max[shift] %8
    %10 = sub %5, %9
    %11 = exp %10
    %12 = mul %11, %6
    %13 = sum[s] %12
    %14 = accum_rescaled[1] %13, %9
    %15 = load V[h, s_part * {part} + s, e]
    %16 = matmul[s] %12, %15
    %17 = accum_rescaled[1] %16, %9
  }}
  %18 = max[s_part] %9
  %19 = shift %18
  %20 = sub %9, %19
  %21 = exp %20
  %22 = mul %14, %21
  %23 = sum[s_part] %22
  %24 = mul %17, %21
  %25 = sum[s_part] %24
  %26 = div %25, %23
  store O[h, q, e] = %26
}}
"""

RMS_NORM_MATMUL = """
B = {b}, D = {d}, N = {n}
X[B, D], G[D], W[D, N] : f16
Y[b, n] = sum[d](X[b, d] * G[d] * W[d, n]) / sqrt(mean[d](X[b, d]^2) + 1e-6)
"""

RMS_NORM_MATMUL_KERNEL = """
kernel rms_norm_matmul {{
  grid n by {tile_n}, d_part by 1 in cluster, b by {tile_b}
  loop d by {tile_d} {{
    %0 = load X[b, d_part * {part} + d]
    %1 = load G[d_part * {part} + d]
    %2 = mul %0, %1
    %3 = load W[d_part * {part} + d, n]
    %4 = matmul[d] %2, %3
    %5 = accum_sum %4
    %6 = square %0
    %7 = sum[d] %6
    %8 = accum_sum %7
  }}
  %9 = sum[d_part] %5
  %10 = sum[d_part] %8
  %11 = size d_part
  %12 = size d
  %13 = mul %11, %12
  %14 = div %10, %13
  %15 = const 1e-06
  %16 = add %14, %15
  %17 = sqrt %16
  %18 = div %9, %17
  store Y[b, n] = %18
}}
"""

LORA = """
B = {b}, D = {d}, N = {n}, R = {r}
X[B, D], W[D, N], A[D, R], C[R, N] : f16
Y[b, n] = sum[d](X[b, d] * W[d, n]) + sum[r](sum[d](X[b, d] * A[d, r]) * C[r, n])
"""

LORA_KERNEL = """
kernel lora {{
  grid n by {tile_n}, d_part by 1 in cluster, b by {tile_b}
  loop d by {tile_d} {{
    %0 = load X[b, d_part * {part} + d]
    %1 = load W[d_part * {part} + d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
    %4 = load A[d_part * {part} + d, r]
    %5 = matmul[d] %0, %4
    %6 = accum_sum %5
  }}
  %7 = sum[d_part] %6
  %8 = load C[r, n]
  %9 = matmul[r] %7, %8
  %10 = sum[d_part] %3
  %11 = add %10, %9
  store Y[b, n] = %11
}}
"""


def attention_program(
    *, heads: int = 2, rows: int = 20, keys: int = 480, width: int = 64, causal: bool = False
) -> Program:
    """Softmax attention, not split; with ``causal`` the last row sees all keys."""
    mask = f" * (s <= q + {keys - rows})" if causal else ""
    return parse(ATTENTION.format(heads=heads, rows=rows, keys=keys, width=width, mask=mask))


def cluster_attention(
    *,
    heads: int = 2,
    rows: int = 20,
    keys: int = 480,
    width: int = 64,
    parts: int = 4,
    tiles: tuple[int, int, int] = (16, 64, 32),
    num_warps: int = 4,
    num_stages: int = 2,
    causal: bool = False,
) -> Plan:
    """Split-KV attention; ``tiles`` are of rows, keys and columns of V. Maxima, sums and products
    go through the cluster.
    """
    program = attention_program(heads=heads, rows=rows, keys=keys, width=width, causal=causal)
    text = CAUSAL_ATTENTION_KERNEL if causal else ATTENTION_KERNEL
    q, s, e = tiles
    kernel = text.format(q=q, s=s, e=e, part=keys // parts, ahead=keys - rows)
    return _plan(over(split_dim(program, "s", parts), kernel), num_warps, num_stages)


def rms_norm_matmul_program(*, b: int = 20, d: int = 960, n: int = 200) -> Program:
    """RMSNorm, then a product, not split."""
    return parse(RMS_NORM_MATMUL.format(b=b, d=d, n=n))


def cluster_rms_norm_matmul(
    *,
    b: int = 20,
    d: int = 960,
    n: int = 200,
    parts: int = 4,
    tiles: tuple[int, int, int] = (16, 64, 64),
    num_warps: int = 4,
    num_stages: int = 2,
) -> Plan:
    """Split-K; ``tiles`` are of b, d and n."""
    program = rms_norm_matmul_program(b=b, d=d, n=n)
    kernel = _split_k(RMS_NORM_MATMUL_KERNEL, tiles, d // parts)
    return _plan(over(split_dim(program, "d", parts), kernel), num_warps, num_stages)


def lora_program(*, b: int = 20, d: int = 960, n: int = 200, r: int = 16) -> Program:
    """A product with an update of low rank, not split."""
    return parse(LORA.format(b=b, d=d, n=n, r=r))


def cluster_lora(
    *,
    b: int = 20,
    d: int = 960,
    n: int = 200,
    r: int = 16,
    parts: int = 4,
    tiles: tuple[int, int, int] = (16, 64, 64),
    num_warps: int = 4,
    num_stages: int = 2,
) -> Plan:
    """Split-K of both products; ``tiles`` are of b, d and n. The second product of the update comes
    after a sum over the cluster, which every block has to have.
    """
    program = lora_program(b=b, d=d, n=n, r=r)
    kernel = _split_k(LORA_KERNEL, tiles, d // parts)
    return _plan(over(split_dim(program, "d", parts), kernel), num_warps, num_stages)


def _split_k(kernel: str, tiles: tuple[int, int, int], part: int) -> str:
    b, d, n = tiles
    return kernel.format(tile_b=b, tile_d=d, tile_n=n, part=part)


def _plan(ugraph: UGraph, num_warps: int, num_stages: int) -> Plan:
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    threaded = UGraph(ugraph.program, (with_threads(block),))
    return Plan(threaded, (LaunchConfig(num_warps, (num_stages,)),), backend="cuda")
