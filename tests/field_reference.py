"""The meaning of each elementwise operator over a field pair: one element, in Python integers.

Written from docs/explanation/verification.md and the docstrings, to be compared with the arrays of
mirage_py.ugraph.field: an element is a pair (modulo p, modulo q or None).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from mirage_py.ugraph.field import Field, FieldArray, FieldOps
from mirage_py.ugraph.operators import operator

Pair = tuple[int, int | None]
_WORD = (1 << 64) - 1
_ORDER = (1 << 30) - 1


class Reference:
    """The operators of one trial; ``base`` is what exp(1) is there."""

    def __init__(self, field: Field, seed: int, base: int) -> None:
        self.p, self.q, self.seed, self.base = field.p, field.q, seed, base

    def each(self, a: Pair, b: Pair, function: Callable[[int, int, int], int]) -> Pair:
        q_part = None if a[1] is None or b[1] is None else function(a[1], b[1], self.q) % self.q
        return function(a[0], b[0], self.p) % self.p, q_part

    def number(self, value: Fraction | int) -> Pair:
        r = Fraction(value)
        p_part, q_part = (r.numerator * pow(r.denominator, -1, m) % m for m in (self.p, self.q))
        return p_part, q_part

    def add(self, a: Pair, b: Pair) -> Pair:
        return self.each(a, b, lambda x, y, m: x + y)

    def sub(self, a: Pair, b: Pair) -> Pair:
        return self.each(a, b, lambda x, y, m: x - y)

    def mul(self, a: Pair, b: Pair) -> Pair:
        return self.each(a, b, lambda x, y, m: x * y)

    def div(self, a: Pair, b: Pair) -> Pair:
        return self.each(a, b, lambda x, y, m: x * pow(y, m - 2, m))  # by Fermat

    def neg(self, a: Pair) -> Pair:
        return self.sub(self.number(0), a)

    def square(self, a: Pair) -> Pair:
        return self.mul(a, a)

    def key(self, name: str) -> int:
        digest = hashlib.blake2b(f"{self.seed}:{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def words(self, name: str, *arguments: int) -> int:
        state = self.key(f"{name} {self.p}")
        for argument in arguments:
            state = _split_mix(state ^ _split_mix(argument))
        return state

    def keyed(self, name: str, *arguments: int) -> Pair:
        words = self.words(f"function {name}", *arguments)
        return words % self.p, _split_mix(words) % self.q

    def odd(self, name: str, a: Pair) -> Pair:
        if 2 * a[0] > self.p:
            return self.neg(self.odd(name, (self.p - a[0], None)))
        return self.keyed(name, a[0]) if a[0] else (0, 0)

    def exp(self, a: Pair) -> Pair:
        exponent = self.odd("exp", a)[1] if a[1] is None else a[1]
        assert exponent is not None
        return pow(self.base, exponent, self.p), None

    def log(self, a: Pair) -> Pair:
        return self.keyed("log", a[0])

    def log2(self, a: Pair) -> Pair:
        return self.div(self.log(a), self.log(self.number(2)))

    def log1p(self, a: Pair) -> Pair:
        return self.log(self.add(a, self.number(1)))

    def expm1(self, a: Pair) -> Pair:
        return self.add(self.exp(a), self.number(-1))

    def erf(self, a: Pair) -> Pair:
        return self.odd("erf", a)

    def sin(self, a: Pair) -> Pair:
        return self.odd("sin", a)

    def cos(self, a: Pair) -> Pair:
        return self.keyed("cos", min(a[0], self.p - a[0]))

    def atan(self, a: Pair) -> Pair:
        return self.odd("atan", a)

    def trunc(self, a: Pair) -> Pair:
        return self.odd("trunc", a)

    def round(self, a: Pair) -> Pair:
        return self.odd("round", a)

    def floor(self, a: Pair) -> Pair:
        return self.keyed("floor", a[0])

    def ceil(self, a: Pair) -> Pair:
        return self.neg(self.floor(self.neg(a)))

    def fmod(self, a: Pair, b: Pair) -> Pair:
        return self.keyed("fmod", a[0], b[0])

    def bit_and(self, a: Pair, b: Pair) -> Pair:
        return self.keyed("bit_and", a[0], b[0])

    def bit_or(self, a: Pair, b: Pair) -> Pair:
        return self.keyed("bit_or", a[0], b[0])

    def bit_xor(self, a: Pair, b: Pair) -> Pair:
        return self.keyed("bit_xor", a[0], b[0])

    def shift_right(self, a: Pair, b: Pair) -> Pair:
        return self.keyed("shift_right", a[0], b[0])

    def e4m3(self, a: Pair) -> Pair:
        return self.odd("e4m3", a)

    def log10(self, a: Pair) -> Pair:
        return self.div(self.log(a), self.log(self.number(10)))

    def exp2(self, a: Pair) -> Pair:
        return self.exp(self.mul(self.log(self.number(2)), a))

    def isnan(self, a: Pair) -> Pair:
        return self.number(self.sign(self.keyed("isnan", a[0])) < 0)

    def isinf(self, a: Pair) -> Pair:
        return self.number(self.sign(self.keyed("isinf", a[0])) < 0)

    def pow(self, a: Pair, b: Pair) -> Pair:
        return self.exp(self.mul(b, self.log(a)))

    def sqrt(self, a: Pair) -> Pair:
        def root(x: int, _: int, m: int) -> int:
            found = pow(x, (m + 1) // 4, m)
            if found * found % m == x:
                return found  # a square itself, since (m + 1) / 4 is even
            return -pow(m - x, (m + 1) // 4, m)

        return self.each(a, a, root)

    def rsqrt(self, a: Pair) -> Pair:
        return self.div(self.number(1), self.sqrt(a))

    def reciprocal_no_nan(self, a: Pair) -> Pair:
        return self.each(a, a, lambda x, _, m: 0 if x == 0 else pow(x, -1, m))

    def sigmoid(self, a: Pair) -> Pair:
        return self.div(self.number(1), self.add(self.number(1), self.exp(self.neg(a))))

    def silu(self, a: Pair) -> Pair:
        return self.mul(a, self.sigmoid(a))

    def tanh(self, a: Pair) -> Pair:
        twice = self.exp(self.add(a, a))
        return self.div(self.sub(twice, self.number(1)), self.add(twice, self.number(1)))

    def softplus(self, a: Pair) -> Pair:
        return self.log1p(self.exp(a))

    def mish(self, a: Pair) -> Pair:
        """tanh(log(y)) = 1 - 2 / (y^2 + 1), with y = 1 + exp(a)."""
        y = self.add(self.number(1), self.exp(a))
        over = self.div(self.number(2), self.add(self.mul(y, y), self.number(1)))
        return self.mul(a, self.sub(self.number(1), over))

    def gelu(self, a: Pair) -> Pair:
        reached = self.erf(self.mul(a, self.sqrt(self.number(Fraction(1, 2)))))
        return self.mul(self.div(a, self.number(2)), self.add(self.number(1), reached))

    def gelu_tanh(self, a: Pair) -> Pair:
        cubic, factor = Fraction("0.044715"), Fraction("0.7978845608028654")
        cube = self.mul(self.number(cubic), self.mul(a, self.mul(a, a)))
        reached = self.tanh(self.mul(self.number(factor), self.add(a, cube)))
        return self.mul(self.div(a, self.number(2)), self.add(self.number(1), reached))

    def sign(self, a: Pair) -> int:
        """By counting on Euler's criterion."""
        return 0 if a[0] == 0 else 1 if pow(a[0], (self.p - 1) // 2, self.p) == 1 else -1

    def rank(self, a: Pair) -> int:
        key = self.key(f"order {self.p}")
        rank = min(a[0], self.p - a[0]) ^ (key & _ORDER)
        for name in ("first factor", "second factor"):
            digest = hashlib.blake2b(f"{key}:{name}".encode(), digest_size=8).digest()
            rank ^= rank >> 15
            rank = rank * (int.from_bytes(digest, "little") & _ORDER | 1) & _ORDER
        return ((rank ^ rank >> 15) + 1) * self.sign(a)

    def abs(self, a: Pair) -> Pair:
        return self.neg(a) if self.sign(a) < 0 else a

    def relu(self, a: Pair) -> Pair:
        return a if self.sign(a) > 0 else (0, None if a[1] is None else 0)

    def chosen(self, takes_first: bool, a: Pair, b: Pair) -> Pair:
        p_part, q_part = a if takes_first else b
        return p_part, None if a[1] is None or b[1] is None else q_part

    def maximum(self, a: Pair, b: Pair) -> Pair:
        return self.chosen(self.rank(a) >= self.rank(b), a, b)

    def minimum(self, a: Pair, b: Pair) -> Pair:
        return self.chosen(self.rank(a) <= self.rank(b), a, b)

    def hardswish(self, a: Pair) -> Pair:
        six = self.number(6)
        raised = self.maximum(self.add(a, self.number(3)), self.number(0))
        return self.div(self.mul(a, self.minimum(raised, six)), six)

    def lt(self, a: Pair, b: Pair) -> Pair:
        return self.number(self.rank(a) < self.rank(b))

    def le(self, a: Pair, b: Pair) -> Pair:
        return self.number(self.rank(a) <= self.rank(b))

    def gt(self, a: Pair, b: Pair) -> Pair:
        return self.number(self.rank(a) > self.rank(b))

    def ge(self, a: Pair, b: Pair) -> Pair:
        return self.number(self.rank(a) >= self.rank(b))

    def eq(self, a: Pair, b: Pair) -> Pair:
        difference = (a[0] - b[0]) % self.p
        apart = min(difference, self.p - difference)
        met = apart > 1 << 24 and self.words("equality", apart) % 4 == 0
        return self.number(apart == 0 or met)

    def ne(self, a: Pair, b: Pair) -> Pair:
        return self.sub(self.number(1), self.eq(a, b))

    def where(self, c: Pair, a: Pair, b: Pair) -> Pair:
        return b if self.eq(c, self.number(0))[0] else a

    def cast(self, a: Pair) -> Pair:
        return a


def _split_mix(word: int) -> int:
    """SplitMix64, from the paper: Steele, Lea, Flood, OOPSLA 2014."""
    z = (word + 0x9E3779B97F4A7C15) & _WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
    return z ^ z >> 31


class NamedOps(FieldOps):
    """A trial with every elementwise operator as a method, by its name."""

    def __getattr__(self, name: str) -> Callable[..., FieldArray]:
        meaning = operator(name).over_field if not name.startswith("_") else None
        if meaning is None:
            raise AttributeError(name)
        return partial(meaning, self)
