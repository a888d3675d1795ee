"""Convolutions as matmuls with what stands behind them: the parts still are the program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from nightly import NIGHTLY

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
_SIGNAL = (2, 16, 9), (16, 24, 3)
_COLOURS, _DOUBLED = (16, 3, 3, 3), ((2, 16, 4, 5), (16, 24, 3, 3))


def _smallest(x, w, b):
    return torch.tanh(torch.amin(F.conv2d(x, w, b), 1, keepdim=True))


def _strided(x, w, b):
    return F.relu(F.conv2d(x, w, b, stride=2, padding=(1, 0), dilation=(1, 2))) * 2.0


def _backwards(x, w):
    return F.conv_transpose2d(x, w, padding=1, dilation=(1, 2)).relu()


def _uneven(x, w):
    # The last columns are in no window.
    return F.conv2d(x, w, stride=(1, 2)).sigmoid()


def _transposed(x, w, stride, padding):
    return F.conv_transpose2d(x, w, stride=stride, padding=padding).relu()


def _doubled(x, w, b):
    return F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1).relu() * 2.0


def _doubled_by_four(x, w):
    return torch.amin(F.conv_transpose2d(x, w, stride=2, padding=1), 1)


def _doubled_volume(x, w):
    return F.conv_transpose3d(x, w, stride=(1, 2, 2), padding=1, output_padding=(0, 1, 1)).relu()


CASES = {
    "alone": (lambda x, w: F.conv2d(x, w, padding=1), _IMAGE, _WEIGHT),
    "strided": (_strided, _IMAGE, _WEIGHT, (16,)),
    "backwards": (_backwards, _IMAGE, (8, 16, 3, 2)),
    "one row": (lambda x, w: F.conv2d(x, w, padding=(0, 1)).relu(), (2, 8, 3, 12), _WEIGHT),
    "one slice": (lambda x, w: F.conv3d(x, w).relu(), (2, 8, 2, 5, 6), (16, 8, 2, 3, 3)),
    "uneven": (_uneven, _IMAGE, _WEIGHT),
    "volume": (lambda x, w: F.conv3d(x, w, padding=1).exp(), (2, 8, 4, 5, 6), (16, 8, 2, 3, 3)),
    "smallest": (_smallest, (2, 8, 6, 5), _WEIGHT, (16,)),
    "row": (lambda x, w, b: F.conv1d(x, w, b, padding=2) + 1.0, (2, 8, 16), (16, 8, 3), (16,)),
    "colours": (lambda x, w: F.conv2d(x, w, stride=2, padding=1).relu(), (2, 3, 9, 8), _COLOURS),
    "grey": (lambda x, w: F.conv2d(x, w).relu(), (2, 1, 7, 8), (17, 1, 3, 3)),
    "eleven": (lambda x, w: F.conv2d(x, w, dilation=2).relu(), (2, 11, 7, 8), (16, 11, 3, 2)),
    "colour volume": (F.conv3d, (2, 3, 4, 5, 6), (16, 3, 2, 3, 1)),
    "signal": (lambda x, w: F.conv1d(x, w, stride=3, dilation=4), (2, 8, 32), (16, 8, 3)),
    "pooled": (lambda x, w: F.max_pool2d(F.conv2d(x, w), 3, 1), _IMAGE, _WEIGHT),
    "normed": (lambda x, w: torch.softmax(F.conv2d(x, w), 2), _IMAGE, _WEIGHT),
    "not an input": (lambda x, w: F.conv2d(x.exp(), w, padding=1).relu(), _IMAGE, _WEIGHT),
    "doubled": (_doubled, (2, 16, 4, 5), (16, 24, 3, 3), (24,)),
    "doubled by four": (_doubled_by_four, (2, 16, 4, 5), (16, 24, 4, 4)),
    "doubled, odd": (lambda x, w: _transposed(x, w, 2, 1), (2, 16, 4, 5), (16, 24, 3, 3)),
    "doubled, stored": (lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1), *_DOUBLED),
    "fivefold": (lambda x, w: F.conv_transpose2d(x, w, None, 5, 1, 0, 1, 2) * 2.0, *_DOUBLED),
    "long signal": (lambda x, w: F.conv1d(x, w).relu(), (1, 8, 20003), (16, 8, 3)),
    "doubled signal": (lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 0, 1, 2), *_SIGNAL),
    "holes": (lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 0, 1, 2) + 1.0, *_DOUBLED),
    "uneven phases": (lambda x, w: _transposed(x, w, (2, 1), 0), *_DOUBLED),
    "doubled volume": (_doubled_volume, (1, 6, 3, 4, 2), (6, 16, 3, 3, 3)),
    "doubled, normed": (lambda x, w: torch.softmax(_transposed(x, w, 2, 1), 2), *_DOUBLED),
}


def _joined(name, monkeypatch, dtype=torch.bfloat16):
    monkeypatch.setattr(memory_formats, "_LEAST_FLOPS", 0.0)
    function, *shapes = CASES[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    program = trace(function, *inputs)
    return program, inputs, joined_convolutions(partition_of(program))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("name", CASES)
def test_the_parts_are_the_program_without_a_library_call(name, dtype, monkeypatch):
    program, inputs, found = _joined(name, monkeypatch, dtype)
    assert found is not None
    data = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    memory = dict(data)
    for part in found.parts:
        validate_program(part)
        assert library_convolution(part) is None
        for product in (n for n in part.nodes if n.op == "matmul"):
            # Else the weight is multiplied anew for each place.
            image, weight = (part.nodes[a].dims for a in product.args)
            assert {*image} & {*weight} == {*product.reduced}
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
        lambda x, w: F.conv2d(x, w[:, :4].exp(), groups=4).relu(),
        lambda x, w: (F.conv2d(x, w) @ torch.eye(10, dtype=x.dtype)).relu(),
    ],
    ids=["norm", "windows", "groups", "product"],
)
def test_what_a_block_would_compute_again_or_tensor_cores_do_not_fill_stays(function):
    shapes = (2, 16, 9, 12), (16, 16, 3, 3)
    inputs = [torch.randn(s, dtype=torch.bfloat16) for s in shapes]
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


# By day of what is doubled a signal with two phases, not an image with four.
@pytest.mark.parametrize(
    "name", ["strided", "colours", "signal", "doubled" if NIGHTLY else "doubled signal"]
)
def test_a_part_with_a_convolution_has_verified_plans(name, monkeypatch):
    _, _, found = _joined(name, monkeypatch)
    request = Request("h200", "triton", limits=SearchLimits(max_kernels=1))
    # Of what is doubled the phases differ in their windows alone: of one place, and of all.
    for part in {p.name: p for p in (found.parts[0], found.parts[-1])}.values():
        assert rank_plans(part, target("h200"), request).instances
