"""Limits on programs that are searched without a partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.frontend.spec.large_references import PARTITIONED, REFERENCES

from mirage_py.frontend.spec import parse, parse_file
from mirage_py.pipeline.partition.limits import (
    PartitionLimits,
    chained_products,
    computes_twice,
    fits,
    fits_part,
    operator_count,
)
from mirage_py.pipeline.pipeline import normalise

LARGE = Path(__file__).parents[4] / "examples" / "large"
CHAIN = "N = 8\nA[N, N], B[N, N], C[N, N] : f16\n"


@pytest.mark.parametrize("name", REFERENCES)
def test_the_large_examples_fit(name: str):
    program = normalise(parse_file(LARGE / f"{name}.math"))
    assert fits(program)
    assert chained_products(program) <= PartitionLimits().products


@pytest.mark.parametrize("name", PARTITIONED)
def test_a_whole_block_does_not(name: str):
    assert not fits(normalise(parse_file(LARGE / f"{name}.math")))


def test_each_count_is_a_limit():
    program = parse(CHAIN + "Y[i, l] = sum[j, k](A[i, j] * B[j, k] * C[k, l])")
    assert (operator_count(program), chained_products(program)) == (2, 2)
    assert fits(program, PartitionLimits(operators=2, reduced_dims=2))
    assert not fits(program, PartitionLimits(operators=1, reduced_dims=2))
    assert not fits(program, PartitionLimits(operators=2, reduced_dims=1))
    # A chain alone makes no program too large, only a part.
    assert fits(program, PartitionLimits(products=1))
    assert not fits_part(program, PartitionLimits(products=1))


def test_a_part_computes_nothing_twice():
    twice = parse("N = 8\nA[N, N] : f16\nY[i, k] = sum[j](exp(A[i, j]) * exp(A[k, j]))")
    once = parse("N = 8\nA[N, N], B[N, N] : f16\nY[i, k] = sum[j](exp(A[i, j]) * exp(B[k, j]))")
    assert computes_twice(twice)
    assert not computes_twice(once)
    assert not fits_part(twice, PartitionLimits())


def test_programs_of_one_kernel_may_be_twice_as_large():
    few, many = (
        parse(f"B = {rows}, D = 64\nX[B, D] : f32\nY[b, d] = softmax[d](X[b, d])")
        for rows in (16, 2048)
    )
    limits = PartitionLimits(operators=-(-operator_count(many) // 2))
    assert fits(many, limits)
    assert not fits(few, limits)


def test_what_is_computed_beside_the_longest_result_counts_less():
    """A batch norm updates its running statistics: an activation after it is in its part."""
    chain = "".join(f"let T{n}[i] = exp(T{n - 1}[i])\n" for n in range(1, 7))
    text = f"N = 8\nX[N] : f32\nlet T0[i] = X[i]\n{chain}Y[i] = T6[i]\nZ[i] = log(tanh(X[i]))"
    beside = parse(text)
    assert operator_count(beside) == 8
    assert fits(beside, PartitionLimits(operators=6))
    assert not fits(beside, PartitionLimits(operators=5))
