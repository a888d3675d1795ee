"""Every workload of the benchmarks: its spec at its sizes, and the torch function it rivals."""

from __future__ import annotations

import pytest
import torch

from benchmarks.workloads import Workload, large, suite
from mirage_py.frontend.spec import parse_file


def test_keys_are_unique():
    keys = [w.key for w in (*suite(), *large())]
    assert len(dict.fromkeys(keys)) == len(keys)


@pytest.mark.parametrize("workload", [*suite(), *large()], ids=lambda w: w.key)
def test_spec_and_function_fit(workload: Workload):
    program = parse_file(workload.spec, sizes=workload.sizes)
    assert all(program.sizes[name.lower()] == size for name, size in workload.sizes.items())
    inputs = [
        torch.empty(t.shape, dtype=getattr(torch, t.dtype.torch_name), device="meta")
        for t in program.inputs
    ]
    result = workload.torch_function()(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    assert [tuple(r.shape) for r in results] == [o.tensor.shape for o in program.outputs]
