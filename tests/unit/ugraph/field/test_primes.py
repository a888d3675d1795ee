from __future__ import annotations

import pytest

from mirage_py.ugraph.field import FIELDS, Field

# Miller-Rabin with these bases is a proof for every number below 3,215,031,751 (Jaeschke 1993).
PROVING_BASES = (2, 3, 5, 7)


def is_prime(n: int) -> bool:
    if n < 2:
        return False
    for base in PROVING_BASES:
        if n % base == 0:
            return n == base
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(
        pow(base, odd, n) == 1 or any(pow(base, odd << i, n) == n - 1 for i in range(twos))
        for base in PROVING_BASES
    )


def is_square(a: int, prime: int) -> bool:
    return pow(a, (prime - 1) // 2, prime) == 1


def test_the_primality_test_itself() -> None:
    sieve = [n for n in range(2000) if n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))]
    assert [n for n in range(2000) if is_prime(n)] == sieve


@pytest.mark.parametrize("field", FIELDS)
class TestField:
    def test_is_a_safe_prime_pair_just_below_2_31(self, field: Field) -> None:
        assert is_prime(field.p)
        assert is_prime(field.q)
        assert field.p == 2 * field.q + 1
        assert 0.999 * 2**31 < field.p < 2**31

    def test_roots_are_one_power(self, field: Field) -> None:
        assert field.q % 8 == 7
        assert field.p % 16 == 15

    def test_generator_has_order_q_and_is_no_small_number(self, field: Field) -> None:
        assert pow(field.generator, field.q, field.p) == 1
        assert min(field.generator, field.p - field.generator) > 2**16

    def test_small_primes_are_squares(self, field: Field) -> None:
        small = [n for n in range(2, 20) if is_prime(n)]
        assert [n for n in small if not is_square(n, field.p)] == []
        assert [n for n in small if not is_square(n, field.q)] == []

    def test_small_denominators_of_powers_have_inverses(self, field: Field) -> None:
        assert [d for d in range(3, 17, 2) if (field.q - 1) % d == 0] == []


def test_fields_are_different() -> None:
    primes = [m for field in FIELDS for m in (field.p, field.q)]
    assert len(set(primes)) == 2 * len(FIELDS) == 4
