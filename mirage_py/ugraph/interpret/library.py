"""Interpreter of library kernels: operators over whole positional tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from mirage_py.errors import ValidationError
from mirage_py.ugraph.interpret.convolution import convolve
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.ir.ugraph import LibraryCall
from mirage_py.ugraph.operators import ELEMENTWISE, operator

A = TypeVar("A")


def library_shape(call: LibraryCall, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Shape of the result: NumPy's rules for matmul (batched) and for elementwise operators."""
    where = f"library call {call.name} ({call.op})"
    if call.convolution is not None:
        if len(shapes) != 2 or call.op != "convolution":
            raise ValidationError(f"'{call.op}' of {len(shapes)} tensors", where=where)
        return call.convolution.result_shape(*shapes)
    row = operator(call.op)
    if len(shapes) != row.arity or (row.kind != ELEMENTWISE and call.op != "matmul"):
        raise ValidationError(
            f"'{call.op}' of {len(shapes)} tensors is no library call",
            where=where,
            repair="use matmul of two tensors, or an elementwise operator",
        )
    try:
        if call.op != "matmul":
            return np.broadcast_shapes(*shapes)
        left, right = shapes
        if min(len(left), len(right)) < 2 or left[-1] != right[-2]:
            raise ValueError
        return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    except ValueError:
        listed = " and ".join(str(list(s)) for s in shapes)
        raise ValidationError(f"shapes {listed} do not fit", where=where) from None


def call_library(call: LibraryCall, tensors: Mapping[str, A], meaning: Meaning[A]) -> A:
    """The value of the call's result. Raises ValidationError for shapes that do not fit."""
    args = [tensors[name] for name in call.args]
    shape = library_shape(call, [meaning.shape(a) for a in args])
    if call.convolution is not None:
        x, weight = args
        return convolve(call.convolution, x, weight, meaning)
    if call.op != "matmul":
        return meaning.stretch(meaning.apply(call.op, None, args), shape)
    left, right = args
    rank = len(shape)
    left_shape, right_shape = meaning.shape(left), meaning.shape(right)
    left_batch = (1,) * (rank - len(left_shape)) + left_shape[:-2]
    right_batch = (1,) * (rank - len(right_shape)) + right_shape[:-2]
    a = meaning.reshape(left, (*left_batch, *left_shape[-2:], 1))
    b = meaning.reshape(right, (*right_batch, 1, *right_shape[-2:]))
    return meaning.reshape(meaning.contract(a, b, (rank - 1,)), shape)
