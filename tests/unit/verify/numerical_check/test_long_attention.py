"""Attention over 2048 keys: right kernels pass on every set of inputs, planted faults do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.dtypes import DType, dtype
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.numerical_check.input_sets import drawn_sets
from mirage_py.verify.numerical_check.numerical_check import judge, reference

# Heads of 128: a query that is divided by their root is rounded once more.
SPEC = """
T = 24, S = 2048, C = 128
Q[T, C], K[S, C], V[S, C], M[T, S] : {type}
O[t, e] = sum[s](softmax[s](where(s <= t + 2020, sum[c](Q[t, c] * K[s, c]) * 0.088388 + M[t, s],
                                  -inf)) * V[s, e])
"""
SETS = ("random", "offset", "far_rows", "small")
SCALE = 0.088388


@dataclass(frozen=True)
class Fault:
    """What a kernel does wrong."""

    scaled_query: bool = False
    without_tile: int = -1
    hides_from: int = 2020
    rescales: bool = True
    scale: float = SCALE
    half_sums: bool = False


def single(x):
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float64)


def online_softmax(arrays, kind: DType, fault: Fault):
    """Tiles of 64 keys; float32, with operands of products in the type of the inputs."""
    q, k, v, bias = (arrays[n] for n in "QKVM")
    factor = fault.scale
    if fault.scaled_query:
        q, factor = round_to(single(q * factor), kind), 1.0
    rows = np.arange(len(q))[:, None]
    top = np.full((len(q), 1), -1e30)
    total, weight = np.zeros((len(q), v.shape[1])), np.zeros((len(q), 1))
    for tile in range(0, len(k), 64):
        if tile // 64 == fault.without_tile:
            continue
        keys = slice(tile, tile + 64)
        logits = single(single(single(q @ k[keys].T) * factor) + bias[:, keys])
        logits = np.where(tile + np.arange(64) <= rows + fault.hides_from, logits, -np.inf)
        new = np.maximum(top, logits.max(1, keepdims=True))
        p = single(np.exp(logits - new))
        old = single(np.exp(top - new)) if fault.rescales else 1.0
        weight = single(weight * old + p.sum(1, keepdims=True))
        total = single(total * old + single(round_to(p, kind) @ v[keys]))
        total = round_to(total, kind) if fault.half_sums else total
        top = new
    return {"O": round_to(total / weight, kind)}


@pytest.fixture(scope="module", params=["bf16", "f16"])
def checked(request):
    """The program, its type, and for each set the inputs and the reference."""
    program = parse(SPEC.format(type=request.param))
    sets = [s.arrays for s in drawn_sets(program, 0, SETS)]
    return program, dtype(request.param), [(s, reference(program, s)) for s in sets]


def refused(checked, fault: Fault) -> list[str]:
    program, kind, sets = checked
    with np.errstate(all="ignore"):
        found = [judge(program, known, online_softmax(s, kind, fault)) for s, known in sets]
    return [n for n, evidence in zip(SETS, found, strict=True) if not evidence.passed]


def test_a_right_kernel_passes(checked):
    assert refused(checked, Fault()) == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(without_tile=13),
        Fault(without_tile=31),
        Fault(hides_from=2019),
        Fault(hides_from=2021),
        Fault(rescales=False),
        Fault(scale=1.0),
        Fault(scale=SCALE * 1.05),
        Fault(half_sums=True),
        Fault(scaled_query=True),
    ],
)
def test_a_wrong_kernel_is_refused(checked, fault: Fault):
    assert refused(checked, fault)
