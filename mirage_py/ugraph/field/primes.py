"""The prime pairs that values are reduced by.

Each pair has p = 2q + 1 with p and q prime and q = 7 mod 8 (so p = 15 mod 16). That gives

* an exponential: the squares modulo p form a group of prime order q, so x -> g^x maps sums modulo q
  to products modulo p (Mirage, OSDI 2025, needs only that q divides p - 1; this is the largest q
  possible for p);
* square roots by one power in both fields, since both primes are 3 mod 4, and signs: -1 is not a
  square.

Among all such pairs, these are the two largest below 2^31 for which every prime up to 19 is a
square modulo p and modulo q. Then a positive constant made of small factors (an extent, 1e-6, 0.5)
is "positive" in the field as well: sqrt(c * c) = c, relu(c * x) = c * relu(x) and c > 0 hold there
as they do over the reals. And (q - 1) / 2 has no factor below 17, so that small rational powers
exist modulo q too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PRIME_P: Final = 2_147_024_879
PRIME_Q: Final = 1_073_512_439
PRIME_P2: Final = 2_145_341_519
PRIME_Q2: Final = 1_072_670_759

# A square that is not a small integer: with generator 2, exp(1) would equal the constant 2.
GENERATOR: Final = 271_828_182 * 271_828_182 % PRIME_P
GENERATOR2: Final = 314_159_265 * 314_159_265 % PRIME_P2


@dataclass(frozen=True, slots=True)
class Field:
    """A safe prime p, q = (p - 1) / 2, and a generator of the squares modulo p, of order q."""

    p: int
    q: int
    generator: int


FIELDS: Final[tuple[Field, ...]] = (
    Field(PRIME_P, PRIME_Q, GENERATOR),
    Field(PRIME_P2, PRIME_Q2, GENERATOR2),
)
