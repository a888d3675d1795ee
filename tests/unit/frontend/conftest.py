"""Decorated functions whose kernels are interpreted, for tests that count what they are asked."""

from __future__ import annotations

import pytest
from frontend_kernels import Interpreter

from mirage_py.frontend.decorator import CallOptions, SuperoptimizedFunction


@pytest.fixture
def interpreter():
    return Interpreter()


@pytest.fixture
def optimised(interpreter):
    return lambda fn, **options: SuperoptimizedFunction(fn, CallOptions(**options), interpreter)
