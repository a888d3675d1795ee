"""Laws of neutral constants and constant powers."""

from __future__ import annotations

from mirage_py.axioms.laws.notation import one, power, sqrt, square, x, zero
from mirage_py.axioms.terms.law import Law
from mirage_py.axioms.terms.term import const

LAWS = (
    Law("scalars.times_one", x * one, x),
    Law("scalars.over_one", x / one, x),
    Law("scalars.plus_zero", x + zero, x),
    Law("scalars.minus_zero", x - zero, x),
    Law("scalars.zero_minus", zero - x, -x),
    Law("scalars.times_minus_one", x * const("-1"), -x),
    Law("scalars.first_power", power(x, "1"), x),
    Law("scalars.second_power", power(x, "2"), square(x)),
    Law("scalars.third_power", power(x, "3"), square(x) * x),
    Law("scalars.power_minus_one", power(x, "-1"), one / x),
    Law("scalars.half_power", power(x, "0.5"), sqrt(x)),
    Law("scalars.power_minus_half", power(x, "-0.5"), one / sqrt(x)),
)
