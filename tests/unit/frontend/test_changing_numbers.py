"""Numbers among the arguments that are others in every call."""

from __future__ import annotations

import warnings

import pytest
import torch

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.guards.changing_numbers import MOST_PROGRAMS

X = torch.randn(4, 6)


def scaled(x, factor):
    return x * factor + 1


def numbered(x, layer):
    return x * 2 + 1 if layer >= 0 else x


@pytest.mark.parametrize("kind", [float, int])
def test_some_have_programs_of_their_own_and_then_none_has(optimised, interpreter, kind):
    fn = optimised(scaled)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for n in range(5 * MOST_PROGRAMS):
            torch.testing.assert_close(fn(X, kind(n + 2)), scaled(X, kind(n + 2)))
    whole = [p for p in interpreter.programs if p.name == "scaled"]
    assert len(whole) == MOST_PROGRAMS
    assert [str(w.message).splitlines()[0] for w in shown if "numbers" in str(w.message)] != []
    assert len(fn.dispatch_table().splitlines()) == 1 + MOST_PROGRAMS + 1
    # Those that had kernels keep them, and other shapes have theirs.
    assert "mirage_py" in str(fn.entry(X, kind(2)).served)
    assert fn.entry(X[:2].clone(), kind(2)).kernel is not None


def test_numbers_that_change_no_program_have_kernels(optimised):
    fn = optimised(numbered)
    for n in range(3 * MOST_PROGRAMS):
        assert fn.entry(X, n).kernel is not None


def test_it_is_an_error_where_errors_are_asked_for(optimised):
    fn = optimised(scaled, strict=True)
    for n in range(MOST_PROGRAMS):
        fn(X, float(n + 2))
    with pytest.raises(UnsupportedError, match="numbers among the arguments keep changing"):
        fn(X, 0.5)


def test_a_slice_is_an_argument_like_others(optimised, interpreter):
    fn = optimised(lambda x, at: x[at] * 2)
    for at in (slice(0, 2), slice(1, 3), slice(0, 2), slice(None), slice(0, True)):
        torch.testing.assert_close(fn(X, at), X[at] * 2)
    assert len(fn.dispatch_table().splitlines()) == 1 + 4
