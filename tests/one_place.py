"""Pairs of programs at real sizes: different in one row, column, border or corner, or the same in
other words.
"""

from __future__ import annotations

ATTENTION = """T = {t}, D = 64
Q[T, D], K[T, D], V[T, D] : f16
let logits[t, s] = sum[d](Q[t, d] * K[s, d])
O[t, e] = sum[s]( softmax[s]( where({mask}, logits[t, s], -inf) ) * V[s, e] )
"""
SUMMED = """T = {t}
X[T, T] : f32
Y[t] = sum[s](where({mask}, X[t, s], 0))
"""
VALUES = """T = {t}
X[T], W[T] : f32
Y[t] = sum[s](where({mask}, X[s] * W[t], 0))
"""
COUNTED = """T = {t}
X[T] : f32
index s < T
Y[t] = X[t] * sum[s](where({mask}, 1, 0))
"""
COLUMNS = """B = 16, N = {n}
X[B, N], Z[B, N], W[N] : f32
U[b, n] = X[b, n] + Z[b, n] * W[n]
Y[b, n] = {value}
"""
SHORT = """N = {n}
X[N], Z[N] : f32
index i < {i}
U[n] = X[n] + Z[n]
Y[i] = {value}
"""
IMAGE = """C = 3, H = {h}, W = 64
X[C, H + 2, W + 2] : f32
index c < C, h < H, w < W
Y[c, h, w] = {value}
"""
PRODUCT = """M = {m}, K = 256, N = 512
A[M, K], B[K, N], C[M, K] : f16
U[m, k] = A[m, k] + C[m, k]
Y[m, n] = {value}
"""
PADDED = """N = 4096
X[N] : f32
index n < N, k < 5
Y[n] = sum[k](where({mask}, X[(n + k + 4094) % 4096], 0) * (k + 1))
"""
GROUPED = """H = 32, T = 512, D = 16
Q[H, T, D], K[8, T, D] : f16
Y[h, t] = sum[s, d](where({mask}, Q[h, t, d] * K[{head}, s, d], 0))
"""
MERGED = """H = 32, T = 512, D = 16
X[T, H * D] : f32
index h < H, d < D
Y[t, h * D + d] = where(h < 31, X[t, h * D + d], 0)
"""


def masks(text: str, t: int, one: str, other: str) -> tuple[str, str]:
    """A text with two masks."""
    return text.format(t=t, mask=one), text.format(t=t, mask=other)


def values(text: str, one: str, other: str, **sizes: int) -> tuple[str, str]:
    """A text with two values."""
    return text.format(value=one, **sizes), text.format(value=other, **sizes)


CONV = " + ".join(f"X[c, h + {i}, w + {j}]" for i in range(3) for j in range(3))

DIFFERENT: dict[str, tuple[str, str]] = {
    "causal, window of 511": masks(ATTENTION, 512, "s <= t", "t - 511 < s <= t"),
    "causal, window of 4095": masks(SUMMED, 4096, "s <= t", "t - 4095 < s <= t"),
    "window one wider": masks(SUMMED, 8192, "t - 8190 < s <= t", "t - 8191 < s <= t"),
    "one pair of positions": masks(VALUES, 2048, "s <= t", "s <= t & not (s == 5 & t == 1234)"),
    "one row": masks(ATTENTION, 512, "s <= t", "s <= t & t != 300 | t == 300 & s < t"),
    "first token always seen": masks(
        ATTENTION, 512, "t - 128 < s <= t", "t - 128 < s <= t | s == 0 & t == 128"
    ),
    "slope of almost one": masks(SUMMED, 2048, "2048 * s <= 2047 * t", "2048 * s < 2047 * t"),
    "slope with an offset": masks(
        VALUES, 4096, "512 * s <= 513 * t + 100", "512 * s <= 513 * t + 99"
    ),
    "diagonal blocks, one corner": masks(
        VALUES, 1024, "s // 128 == t // 128", "s // 128 == t // 128 & s + t < 2046"
    ),
    "diagonal blocks, another last one": masks(
        VALUES, 1024, "s // 128 == t // 128", "(s + s // 1023) // 128 == t // 128"
    ),
    "strided keys": masks(VALUES, 1024, "(t - s) % 64 == 0", "(t - s) % 64 == 0 & t - s < 960"),
    "counted keys": masks(COUNTED, 512, "s <= t", "s <= t & s + t < 1022"),
    "every second, but the last": masks(
        VALUES, 1024, "s % 2 == t % 2", "s % 2 == (t + t // 1023) % 2"
    ),
    "one column": values(COLUMNS, "X[b, n] * 2", "X[b, n] * where(n == 1000, 3, 2)", n=4096),
    "one element": values(
        COLUMNS, "X[b, n] * 2", "X[b, n] * where(n == 77 & b == 3, 3, 2)", n=8192
    ),
    "last column": values(COLUMNS, "X[b, n] + 1", "X[b, n] + where(n < 4095, 1, 2)", n=4096),
    "two pieces, one from elsewhere": values(
        COLUMNS,
        "where(n < 2048, X[b, n], Z[b, n])",
        "where(n < 2047, X[b, n], Z[b, n])",
        n=4096,
    ),
    "three pieces": values(
        COLUMNS,
        "where(n < 1000, X[b, n], where(n < 3000, Z[b, n], W[n]))",
        "where(n < 1000, X[b, n], where(n <= 3000, Z[b, n], W[n]))",
        n=4096,
    ),
    "a piece inside a piece": values(
        COLUMNS,
        "where(n < 2000, X[b, n], Z[b, n])",
        "where(n < 2000, where(b == 7 & n > 1998, Z[b, n], X[b, n]), Z[b, n])",
        n=4096,
    ),
    "rotated by one at the end": values(COLUMNS, "X[b, n]", "X[b, (n + n // 4095) % 4096]", n=4096),
    "a column read twice": values(
        COLUMNS, "X[b, n]", "X[b, (n + 4095 * (n // 4095)) % 4096]", n=4096
    ),
    "halves swapped, but one": values(
        COLUMNS,
        "X[b, (n + 2048) % 4096]",
        "where(n == 2048, X[b, n], X[b, (n + 2048) % 4096])",
        n=4096,
    ),
    "sevenths": values(COLUMNS, "X[b, n] * W[n // 7]", "X[b, n] * W[n * 585 // 4096]", n=4096),
    "sevenths, but for a few": values(
        COLUMNS, "X[b, n] * W[n // 7]", "X[b, n] * W[(n * 585 + 500) // 4096]", n=4096
    ),
    "interleaved": values(
        COLUMNS,
        "where(n % 2 == 0, X[b, n // 2], Z[b, n // 2])",
        "where(n % 2 == 0, X[b, n // 2], Z[b, (n // 2 + 4095 * (n // 4095)) % 4096])",
        n=4096,
    ),
    "rows of 64 transposed": values(
        COLUMNS,
        "X[b, n % 64 * 64 + n // 64]",
        "X[b, (n % 64 * 64 + n // 64 + 4095 * ((n // 64 + n % 64) // 126)) % 4096]",
        n=4096,
    ),
    "pairs, the last one swapped": values(
        SHORT,
        "X[2 * i] + Z[2 * i + 1] * 3",
        "X[2 * i + i // 2047] + Z[2 * i + 1 - i // 2047] * 3",
        n=4096,
        i=2048,
    ),
    "a slice one shorter": values(
        SHORT, "X[i + 1]", "where(i < 4094, X[i + 1], X[i])", n=4096, i=4095
    ),
    "every third": values(
        SHORT, "X[3 * i]", "X[(3 * i + 4095 * (i // 1364)) % 4096]", n=4096, i=1365
    ),
    "a bump with relu": values(
        COLUMNS, "max(X[b, n], 0)", "max(X[b, n], 0) * where(n == 513, 2, 1)", n=2048
    ),
    "padding of a window": (
        PADDED.format(mask="0 <= n + k - 2 < 4096"),
        PADDED.format(mask="0 <= n + k - 2 < 4095"),
    ),
    "a window at the top row": values(
        IMAGE,
        CONV,
        CONV.replace("X[c, h + 0, w + 0]", "where(h == 0 & w == 63, 0, X[c, h, w])"),
        h=512,
    ),
    "grouped heads, the last one": (
        GROUPED.format(mask="s <= t", head="h // 4"),
        GROUPED.format(mask="s <= t", head="(h // 4 + 7 * (h // 31)) % 8"),
    ),
    "one column of an operand": values(
        PRODUCT,
        "sum[k](A[m, k] * B[k, n])",
        "sum[k](A[m, k] * where(n == 511 & k == 17, 0, B[k, n]))",
        m=512,
    ),
    "one row from another operand": values(
        PRODUCT,
        "sum[k](A[m, k] * B[k, n])",
        "sum[k](where(m == 255, C[m, k], A[m, k]) * B[k, n])",
        m=512,
    ),
    "a weight of one position": values(COLUMNS, "X[b, n] * n", "X[b, n] * (n + n // 4095)", n=4096),
}

EQUAL: dict[str, tuple[str, str]] = {
    "t >= s": masks(ATTENTION, 512, "s <= t", "t >= s"),
    "not later": masks(ATTENTION, 512, "s <= t", "not (s > t)"),
    "difference not negative": masks(ATTENTION, 512, "s <= t", "t - s >= 0"),
    "smaller than the next": masks(SUMMED, 4096, "s <= t", "s < t + 1"),
    "a window as wide as the rows": masks(SUMMED, 4096, "s <= t", "t - 4096 < s <= t"),
    "two masks": (
        VALUES.format(t=2048, mask="t - 128 < s <= t"),
        VALUES.format(t=2048, mask="s <= t").replace("X[s]", "where(s > t - 128, X[s], 0)"),
    ),
    "a window the other way round": masks(
        VALUES, 2048, "t - 128 < s <= t", "not (s > t | t - s >= 128)"
    ),
    "twice a condition": masks(VALUES, 4096, "s <= t", "2 * s <= 2 * t + 1"),
    "blocks by quotients or by borders": masks(
        VALUES, 512, "s // 128 == t // 128", "t - t % 128 <= s < t - t % 128 + 128"
    ),
    "parity": masks(VALUES, 512, "s % 2 == t % 2", "(s + t) % 2 == 0"),
    "a diagonal": masks(COUNTED, 512, "s == t", "s <= t & s >= t"),
    "slices joined": values(COLUMNS, "X[b, n]", "where(n < 2048, X[b, n], X[b, n])", n=4096),
    "slices joined by remainders": values(
        COLUMNS,
        "X[b, n] * 2",
        "where(n < 1024, X[b, n % 1024], X[b, (n - 1024) % 3072 + 1024]) * 2",
        n=4096,
    ),
    "pieces in the other order": values(
        COLUMNS,
        "where(n < 2048, X[b, n], Z[b, n])",
        "where(n >= 2048, Z[b, n], X[b, n])",
        n=4096,
    ),
    "rotated there and back": values(
        COLUMNS, "X[b, n]", "X[b, ((n + 100) % 4096 + 3996) % 4096]", n=4096
    ),
    "sevenths by a product": values(
        COLUMNS, "X[b, n] * W[n // 7]", "X[b, n] * W[n * 9363 // 65536]", n=4096
    ),
    "a column twice named": values(
        COLUMNS,
        "X[b, n] * where(n == 1000, 3, 2)",
        "X[b, n] * (2 + where(1000 <= n & n < 1001, 1, 0))",
        n=4096,
    ),
    "pairs": values(SHORT, "X[2 * i] + Z[2 * i + 1]", "Z[1 + i + i] + X[i + i]", n=4096, i=2048),
    "padding of a window, one by one": (
        PADDED.format(mask="0 <= n + k - 2 < 4096"),
        PADDED.format(mask="n + k >= 2 & not (n + k > 4097)"),
    ),
    "grouped heads": (
        GROUPED.format(mask="s <= t", head="h // 4"),
        GROUPED.format(mask="t + 1 > s", head="4 * h // 16"),
    ),
    "heads merged": (
        MERGED,
        "T = 512, N = 512\nX[T, N] : f32\nY[t, n] = where(n < 496, X[t, n], 0)",
    ),
}
