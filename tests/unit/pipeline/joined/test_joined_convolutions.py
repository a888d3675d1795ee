"""Convolutions as matmuls with what stands behind them: the parts still are the program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.joined.joined_convolutions import joined_convolutions
from mirage_py.pipeline.partition import memory_formats
from mirage_py.pipeline.pipeline import partition_of, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.search.enumerate.search import SearchLimits
from mirage_py.targets import target
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.rewrite.convolutions import library_convolution

_IMAGE, _WEIGHT = (2, 8, 9, 12), (16, 8, 3, 3)


def _smallest(x, w, b):
    return torch.tanh(torch.amin(F.conv2d(x, w, b), 1, keepdim=True))


def _strided(x, w, b):
    return F.relu(F.conv2d(x, w, b, stride=2, padding=(1, 0), dilation=(1, 2))) * 2.0


def _backwards(x, w):
    return F.conv_transpose2d(x, w, padding=1, dilation=(1, 2)).relu()


def _uneven(x, w):
    # The last columns are in no window.
    return F.conv2d(x, w, stride=(1, 2)).sigmoid()


CASES = {
    "alone": (lambda x, w: F.conv2d(x, w, padding=1), _IMAGE, _WEIGHT),
    "strided": (_strided, _IMAGE, _WEIGHT, (16,)),
    "backwards": (_backwards, _IMAGE, (8, 16, 3, 2)),
    "uneven": (_uneven, _IMAGE, _WEIGHT),
    "volume": (lambda x, w: F.conv3d(x, w, padding=1).exp(), (2, 8, 4, 5, 6), (16, 8, 2, 3, 3)),
    "smallest": (_smallest, (2, 8, 6, 5), _WEIGHT, (16,)),
    "row": (lambda x, w, b: F.conv1d(x, w, b, padding=2) + 1.0, (2, 8, 16), (16, 8, 3), (16,)),
}


def _joined(name, monkeypatch):
    monkeypatch.setattr(memory_formats, "_LEAST_FLOPS", 0.0)
    function, *shapes = CASES[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    program = trace(function, *inputs)
    return program, inputs, joined_convolutions(partition_of(program))


@pytest.mark.parametrize("name", CASES)
def test_the_parts_are_the_program_without_a_library_call(name, monkeypatch):
    program, inputs, found = _joined(name, monkeypatch)
    assert found is not None
    data = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    memory = dict(data)
    for part in found.parts:
        validate_program(part)
        assert library_convolution(part) is None
        given = {t.name: memory[t.name] for t in part.inputs}
        memory |= evaluate_program(part, given, FloatMeaning())
    for result, want in evaluate_program(program, data, FloatMeaning()).items():
        np.testing.assert_allclose(memory[result], want, atol=1e-9)


def test_the_loop_goes_along_one_dimension_and_the_results_places_are_one(monkeypatch):
    _, _, found = _joined("volume", monkeypatch)
    (product,) = [n for part in found.parts for n in part.nodes if n.op == "matmul"]
    assert len(product.reduced) == 1
    assert len(product.dims) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.softmax(F.conv2d(x, w), 2),
        lambda x, w: F.max_pool2d(F.conv2d(x, w), 3, 1),
        lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), stride=2).relu(),
        lambda x, w: F.conv2d(x, w[:, :2].exp(), groups=4).relu(),
        lambda x, w: (F.conv2d(x, w) @ torch.eye(10, dtype=x.dtype)).relu(),
    ],
    ids=["norm", "windows", "transposed", "groups", "product"],
)
def test_what_a_block_would_compute_again_or_tensor_cores_do_not_fill_stays(function):
    inputs = [torch.randn(s, dtype=torch.bfloat16) for s in (_IMAGE, _WEIGHT)]
    whole = partition_of(trace(function, *inputs))
    assert whole is None or joined_convolutions(whole) is None


def test_exact_float32_stays():
    setting = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        program = trace(CASES["strided"][0], *map(torch.randn, CASES["strided"][1:]))
    finally:
        torch.backends.cudnn.allow_tf32 = setting
    assert joined_convolutions(partition_of(program)) is None


def test_a_part_with_a_convolution_has_verified_plans(monkeypatch):
    _, _, found = _joined("strided", monkeypatch)
    request = Request("h200", "triton", limits=SearchLimits(max_kernels=1))
    for part in found.parts:
        assert rank_plans(part, target("h200"), request).instances
