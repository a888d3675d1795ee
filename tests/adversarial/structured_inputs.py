"""Inputs on which programs that agree on random numbers come apart: zeros, ties, small integers,
masks that keep nothing, rows that are all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite

import numpy as np
from adversarial.machine import Array

from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.program import Program, Tensor

Draw = np.random.Generator


def structured_inputs(program: Program, seed: int) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """Each set by its name, with the inputs of the program."""
    for number, (name, (floats, truths)) in enumerate(_sets(program).items()):
        draw = np.random.default_rng([seed, number])
        yield name, {t.name: _filled(t, floats, truths, draw, program) for t in program.inputs}


def _filled(
    tensor: Tensor,
    floats: Callable[[Draw, Tensor], Array],
    truths: Callable[[Draw, Tensor], Array],
    draw: Draw,
    program: Program,
) -> Array:
    if tensor.dtype == BOOL:
        return truths(draw, tensor)
    if not tensor.dtype.is_float:
        # Numbers that positions are compared with: each of them, its neighbours, 0.
        longest = max(program.sizes.values())
        return draw.integers(longest + 1, size=tensor.shape).astype(np.float64)
    return floats(draw, tensor)


Sets = Mapping[str, tuple[Callable[[Draw, Tensor], Array], Callable[[Draw, Tensor], Array]]]


def _sets(program: Program) -> Sets:
    pool = np.asarray(_constants(program))
    return {
        "zeros": (lambda _, t: np.zeros(t.shape), _fair),
        "ones": (lambda _, t: np.ones(t.shape), _constant(1.0)),
        "small integers": (lambda d, t: d.integers(-2, 3, size=t.shape).astype(np.float64), _fair),
        "positive integers": (
            lambda d, t: d.integers(1, 4, size=t.shape).astype(np.float64),
            _rows_without,
        ),
        "ties with constants": (lambda d, t: d.choice(pool, size=t.shape), _fair),
        "equal rows": (_equal_rows, _rows_without),
        "nothing kept": (lambda d, t: d.normal(size=t.shape), _constant(0.0)),
        "rows without": (lambda d, t: d.normal(size=t.shape), _rows_without),
        "sparse": (_sparse, _fair),
    }


def _fair(draw: Draw, tensor: Tensor) -> Array:
    return draw.integers(2, size=tensor.shape).astype(np.float64)


def _sparse(draw: Draw, tensor: Tensor) -> Array:
    """Zeros, of one sign, and numbers in three places of ten."""
    values = draw.normal(size=tensor.shape)
    return np.where(draw.random(tensor.shape) < 0.3, values, 0.0)


def _constant(value: float) -> Callable[[Draw, Tensor], Array]:
    return lambda _, t: np.full(t.shape, value)


def _rows_without(draw: Draw, tensor: Tensor) -> Array:
    """Fair bits, but nothing in about half of the rows of the last axis."""
    kept = draw.integers(2, size=(*tensor.shape[:-1], 1))
    return np.asarray(_fair(draw, tensor) * kept, dtype=np.float64)


def _equal_rows(draw: Draw, tensor: Tensor) -> Array:
    """One number for all of a row."""
    row = draw.integers(-3, 4, size=(*tensor.shape[:-1], 1)).astype(np.float64)
    return np.broadcast_to(row, tensor.shape).copy() if tensor.shape else row.reshape(())


def _constants(program: Program) -> tuple[float, ...]:
    """Numbers that the program compares with or adds, their neighbours, and 0."""
    found = {n.attr for n in program.nodes if n.op == "const" and isinstance(n.attr, float)}
    usual = sorted(c for c in found if isfinite(c) and abs(c) < 100.0)
    return (0.0, 1.0, -1.0, *usual, *(-c for c in usual if c))
