"""Sets of inputs for the search's float screen."""

from __future__ import annotations

from mirage_py.ugraph.ir.dtypes import BOOL, F32
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.verify.rounding.rounding_inputs import rounding_sets


def test_tensors_without_axes_are_drawn():
    tensors = [Tensor("on", (), BOOL), Tensor("scale", (), F32), Tensor("x", (3, 5), F32)]
    sets = [arrays for _, arrays in rounding_sets(tensors, 0, masked=True)]
    assert all(s[t.name].shape == t.shape for s in sets for t in tensors)
    assert {bool(s["on"]) for s in sets} == {False, True}
