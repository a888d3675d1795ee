"""No text makes the parser fail in any way but its own: an error with a place and a repair."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from mirage_py.errors import MirageError, SpecError
from mirage_py.frontend.spec import parse

ROOT = Path(__file__).parents[2]
SEEDS = [
    path.read_text(encoding="utf-8")
    for folder in ("examples", "examples/odd", "tests/data/malformed_specs")
    for path in sorted((ROOT / folder).glob("*.math"))
]
RICH = """
H = 4, G = 2, T = ?, S = 12, D = H * 2   # sizes
Q[H, T, D], K[G, D, S], V[G, S, D] : f16, M[T, S] : bool, W[H * D, 6] : f32
O[T, 6] : bf16
index i < 3, r < S // 2
let x[h, t, s] = sum[d](Q[h, t, d] * K[h // 2, d, s]) / sqrt(D) + (s - t) * 2^(-(h + 1))
let p[h, t, s] = softmax[s](where(s <= t & t - s < 8 | not M[t, s], x[h, t, s], -inf))
let y[t, h * 8 + d] = p[h, t, s] @ V[h // 2, s, d]
O[t, n] = rms_norm[n](y @ W, eps=1e-5) + max(-1.5, clamp(cast(n, f16), 0, 1e3))
L[i] : f32 = max[r](V[1, 2 * r + 1, 7 - i]) - mean[r](gelu(V[0, r, i])^2)
"""
PIECES = [
    *"[](){}+-*/^@&|~,:=<>?'.#!;\\\"", "**", "//", "==", "<=", "≤", "π", "∞", "α", "²", "\0", "\n",
    "\r", "\t", " ", "0", "1", "7", "1e-6", "1e999", "9" * 50, "inf", "-inf", "not ", "let ",
    "index ", "T", ".T", "b", "d", "n", "X", "W", "D", "sum", "max[d](", "softmax[s]", "where(",
    "cast(x, f16)", "f16", "X[b, d]", "[b, n]", "(X @ W)", " % 3", " // 2", "^0.5", "^-1", "^99",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from([*SEEDS, RICH]))
    whole = text
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 0, 1, 1, 2, 5, 30]))
        piece = draw(
            st.one_of(
                st.sampled_from(PIECES),
                st.just(""),
                st.text(max_size=3),
                # A piece of the text itself: names at wrong places, lines twice.
                st.builds(
                    lambda a, n: whole[a : a + n], st.integers(0, len(whole)), st.integers(1, 40)
                ),
            )
        )
        text = text[:start] + piece + text[start + length :]
    return text


@given(mutated())
@example("Y[0] = inf - inf")
@example("Y[0] = 0^-1 + (-1)^0.5 + 2^inf + 2^-inf + 1^1e300")
@example("Y[0] = (" * 2000)
@example("Y[0] = " + "-" * 5000 + "1")
@example("index = 3")
@example("X[2^9^9^9^9] : f16")
def test_mutated_specs_parse_or_explain(text: str):
    check(text)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_heaps_of_tokens_parse_or_explain(text: str):
    check(text)


@given(st.text(max_size=40))
def test_any_text_parses_or_explains(text: str):
    check(text)


def check(text: str) -> None:
    error = failure(text)
    if isinstance(error, SpecError):
        assert error.repair
        assert error.position.line <= 1 + text.count("\n") + text.count("\r")
        assert 1 <= error.position.column <= len(error.position.source_line) + 2 + text.count("\t")
    elif error is not None:
        # Only the sizes that this test binds may be refused without a place in the text.
        assert "T" in error.what or error.exit_code == 5


def failure(text: str) -> MirageError | None:
    try:
        parse(text, sizes={"T": 4} if "T = ?" in text else None)
    except MirageError as error:
        return error
    return None
