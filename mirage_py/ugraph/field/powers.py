"""Powers in a field: exponentiation by windows, and the exponent of a rational power.

The map x -> x^k modulo a prime m respects products, as a real power does on positive numbers. For a
rational r = n/d there is one k modulo (m - 1) / 2 with d * k = n, and its parity is free: it says
what becomes of the sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_WIDEST_WINDOW = 5


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Left-to-right exponentiation by windows.

    Start from the power ``first_digit`` of the base; then for every (squarings, digit) square so
    many times and multiply by the power ``digit`` of the base (odd; 0 for none).
    """

    first_digit: int
    steps: tuple[tuple[int, int], ...]

    @property
    def largest_digit(self) -> int:
        return max(self.first_digit, *(digit for _, digit in self.steps), 1)

    @property
    def products(self) -> int:
        """Multiplications the plan takes, the table of odd powers of the base included."""
        table = 0 if self.largest_digit == 1 else 1 + self.largest_digit // 2
        return table + sum(squarings + (digit > 0) for squarings, digit in self.steps)


@lru_cache(maxsize=256)
def window_plan(exponent: int) -> WindowPlan:
    """The cheapest sliding-window plan for an exponent of at least 1."""
    plans = (_plan_of_width(exponent, width) for width in range(1, _WIDEST_WINDOW + 1))
    return min(plans, key=lambda plan: plan.products)


def _plan_of_width(exponent: int, width: int) -> WindowPlan:
    bits = f"{exponent:b}"
    digits: list[tuple[int, int]] = []
    squarings = 0
    position = 0
    while position < len(bits):
        if bits[position] == "0":
            squarings += 1
            position += 1
            continue
        window = bits[position : position + width].rstrip("0")
        digits.append((squarings + len(window), int(window, 2)))
        squarings = 0
        position += len(window)
    if squarings:
        digits.append((squarings, 0))
    return WindowPlan(digits[0][1], tuple(digits[1:]))


@lru_cache(maxsize=256)
def rational_exponent(r: Fraction, m: int) -> int | None:
    """The k in [0, m - 1) for which x -> x^k is the power r modulo the prime m = 3 mod 4.

    Integers are themselves, and -r is m - 1 less the k of r. The rest, with r = n + f and 0 < f <
    1, is x^n times the power f, and that one is *odd*: it keeps the sign. An even one would make
    sqrt(a - b) equal to sqrt(b - a), of which over the reals one is not a number wherever the other
    is not zero. None when the denominator has no inverse.
    """
    if r < 0:
        opposite = rational_exponent(-r, m)
        return None if opposite is None else -opposite % (m - 1)
    half = (m - 1) // 2  # odd, since m = 3 mod 4
    try:
        k = r.numerator * pow(r.denominator, -1, half) % half
    except ValueError:
        return None
    whole = r.numerator // r.denominator
    parity = whole % 2 if r.denominator == 1 else (whole + 1) % 2
    return k if k % 2 == parity else k + half
