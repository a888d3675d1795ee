from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage_py.ugraph.ir import index as ix
from mirage_py.verify.sizes.conditions import Conditions

S, T = ix.dim("s"), ix.dim("t")
CAUSAL = ix.compare("le", S, T)


def moved(predicates, old, new):
    conditions = Conditions(predicates, old, new)
    return [conditions.moved(p) for p in predicates]


def truth(predicate, sizes):
    env = {d: np.arange(n).reshape([-1, 1] if d == "s" else [1, -1]) for d, n in sizes.items()}
    return np.broadcast_to(predicate.evaluate(env), (sizes["s"], sizes["t"]))


def test_sizes_that_stay_leave_conditions_alone():
    sizes = {"s": 64, "t": 32}
    window = ix.compare("gt", S, T - 5)
    assert moved([CAUSAL, window], sizes, sizes) == [CAUSAL, window]


def test_an_offset_of_the_sizes_difference_is_that_of_the_new_ones():
    right_aligned = ix.compare("le", S, T + 3840)
    (small,) = moved([right_aligned], {"s": 4096, "t": 256}, {"s": 11, "t": 5})
    assert str(small) == "(s <= t + 6)"


@pytest.mark.parametrize("new", [{"s": 3, "t": 11}, {"s": 11, "t": 3}, {"s": 7, "t": 8}])
def test_causal_masks_leave_something_of_every_row(new):
    (small,) = moved([CAUSAL], {"s": 4096, "t": 4096}, new)
    assert truth(small, new).any(axis=0).all()
    assert not truth(small, new).all()


def test_masks_that_are_one_off_stay_different():
    window = [ix.compare("gt", S, T - width) for width in (512, 511, 510)]
    small = moved([CAUSAL, *window], {"s": 4096, "t": 4096}, {"s": 11, "t": 7})
    assert len({str(p) for p in small}) == 4


def test_the_same_border_written_otherwise_stays_the_same_border():
    forms = [CAUSAL, ix.compare("lt", S, T + 1), ix.compare("ge", T, S), ix.compare("gt", T + 1, S)]
    sizes = {"s": 9, "t": 5}
    first, *others = (truth(p, sizes) for p in moved(forms, {"s": 64, "t": 32}, sizes))
    for other in others:
        assert np.array_equal(first, other)


def test_parts_of_a_condition_move_too():
    both = ix.Predicate("and", args=(CAUSAL, ix.Predicate("not", args=(ix.compare("eq", S, 63),))))
    (small,) = moved([both], {"s": 64, "t": 64}, {"s": 5, "t": 5})
    assert str(small) == "((s <= t) & (~(s == 4)))"


P = ix.dim("p")
SPLIT = {"p": 4, "s": 16, "t": 32}


def test_a_split_dimension_is_one_number():
    whole = [ix.compare("le", S, T + 32), ix.compare("gt", S, T + 21)]
    parts = [ix.compare("le", P * 16 + S, T + 32), ix.compare("gt", P * 16 + S, T + 21)]
    new = {"p": 3, "s": 7, "t": 5}
    small = moved(whole, {"s": 64, "t": 32}, {"s": 21, "t": 5})
    assert [str(m) for m in small] == ["(s <= t + 16)", "(s > t + 10)"]
    assert [str(m) for m in moved(parts, SPLIT, new)] == [
        "(s + p * 7 <= t + 16)",
        "(s + p * 7 > t + 10)",
    ]


def test_another_stride_is_no_split():
    for stride in (15, 17, 8, 32):
        (small,) = moved([ix.compare("le", P * stride + S, T)], SPLIT, {"p": 3, "s": 7, "t": 5})
        assert f"p * {stride} + s" in str(small)


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=3, unique=True),
    st.integers(12, 20),
    st.integers(12, 20),
)
def test_borders_keep_their_order(offsets, s, t):
    masks = [ix.compare("le", S, T + offset) for offset in sorted(offsets)]
    new = {"s": s, "t": t}
    shares = [truth(p, new).mean() for p in moved(masks, {"s": 32, "t": 32}, new)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("new", [{"s": 5, "t": 7}, {"s": 11, "t": 4}])
@pytest.mark.parametrize("op", ["ne", "lt"])
def test_borders_lie_where_they_make_a_difference(op, new):
    """37 t + 41 s has few of the values between its least and its greatest, at small sizes."""
    old = {"s": 300, "t": 400}
    terms = T * 37 + S * 41
    one, other = moved([ix.compare(op, terms, 9001), ix.compare(op, terms, 9002)], old, new)
    assert not truth(one, new).all()
    assert (truth(one, new) != truth(other, new)).any()
