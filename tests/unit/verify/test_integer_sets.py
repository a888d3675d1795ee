"""Integer sets stop with one kind of error when isl has run out of operations."""

from __future__ import annotations

from types import SimpleNamespace

import islpy as isl
import pytest

from mirage_py.verify.pieces.integer_sets import OutOfOperationsError, corners


def test_also_where_coordinates_are_read():
    """The count may run out between a point and its coordinates."""

    def read(*_: object) -> None:
        raise isl.Error("maximal number of operations exceeded")

    point = SimpleNamespace(get_coordinate_val=read)
    first = SimpleNamespace(sample_point=lambda: point, dim=lambda _: 1)
    points = SimpleNamespace(lexmin=lambda: first, lexmax=lambda: first)
    with pytest.raises(OutOfOperationsError):
        corners(points)  # type: ignore[arg-type]
