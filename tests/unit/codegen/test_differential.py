"""Every operator, each element type, odd sizes and tiles: interpreted kernels and float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from nightly import NIGHTLY

from benchmarks.checks.differential import interpreted, judge, table
from benchmarks.checks.differential_cases import FLOATS, INTEGERS, SIZES, Case, quick
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import all_operators

CASES = tuple(quick())
GROUPS = tuple(dict.fromkeys((c.group, c.dtype) for c in CASES))


def covering(group: str, dtype: DType) -> list[Case]:
    """The cases of a group for a type: at night all. By day the types share out the sizes with
    their tiles: each group sees every type and every size, and each type every size, in one group
    or another.
    """
    own = [c for c in CASES if (c.group, c.dtype) == (group, dtype)]
    if NIGHTLY:
        return own
    types = [t for g, t in GROUPS if g == group]
    first = types.index(dtype) + [*dict.fromkeys(g for g, _ in GROUPS)].index(group)
    return own[first % len(types) :: len(types)]


def in_kernel(case: Case) -> Iterator[str]:
    for kernel in case.plan.ugraph.kernels:
        assert isinstance(kernel, BlockGraph)
        yield from (node.op for node in kernel.nodes)


@pytest.mark.parametrize(("group", "dtype"), GROUPS, ids=str)
def test_agrees_with_float64(group, dtype):
    cases = covering(group, dtype)
    assert cases
    wrong = [f"{j.case.key} {j.output}: {j.fault}" for c in cases for j in judge(c, interpreted)
             if not j.passed]  # fmt: skip
    assert wrong == []


def test_types_share_out_the_sizes():
    """None is left out: the sizes of a group are those of its types together."""
    for group in dict.fromkeys(g for g, _ in GROUPS):
        chosen = [c for g, t in GROUPS if g == group for c in covering(g, t)]
        every = {str((c.sizes, c.tiles)) for c in CASES if c.group == group}
        assert {str((c.sizes, c.tiles)) for c in chosen} == every
    chosen = [c for g, t in GROUPS for c in covering(g, t)]
    for dtype in FLOATS:
        sizes = {(c.sizes.get("m"), c.sizes["n"]) for c in chosen if c.dtype == dtype}
        assert sizes == {(c.sizes.get("m"), c.sizes["n"]) for c in CASES if c.dtype == dtype}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_no_operator_is_missing(dtype):
    """What is named for an output is also in the kernel that computes it."""
    cases = [c for c in CASES if c.dtype == dtype]
    named = {op for c in cases for ops in c.operators.values() for op in ops}
    # A kernel loads what a program reads at other indices.
    apart = [o.name for o in all_operators() if o.name not in named and not o.is_bitwise]
    assert apart == ["read"]
    for case in cases:
        there = dict.fromkeys(in_kernel(case))
        assert [o for ops in case.operators.values() for o in ops if o not in there] == []


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_loaded_stored_cast_and_chosen_by(dtype):
    named = {op for c in CASES if c.dtype == dtype for ops in c.operators.values() for op in ops}
    wanted = {"load", "store", "cast", "where", "eq", "le", "mul", "add", "sum", "max", "index"}
    assert sorted(wanted - named) == []


def test_every_size_and_kind_of_tile_is_there():
    sizes = {s for c in CASES for s in c.sizes.values()}
    assert [s for s in SIZES if s not in sizes] == []
    tiles = [(t, c.sizes[d]) for c in CASES for d, t in c.tiles.items()]
    assert any(t > size for t, size in tiles)
    assert any(t & (t - 1) for t, _ in tiles)
    assert any(1 < t < size and size % t for t, size in tiles)


def test_a_wrong_kernel_is_found():
    """What the tests above rest on: a judge that cannot fail would see nothing."""
    case = next(c for c in CASES if c.group == "unary" and c.sizes["n"] == 129)

    def off(case, arrays):
        got = {name: np.array(values) for name, values in interpreted(case, arrays).items()}
        got["Y1_exp"][0, 0] *= 1.01
        return got

    found = judge(case, off)
    assert [j.output for j in found if not j.passed] == ["Y1_exp"]
    assert "1 WRONG" in table(found)
