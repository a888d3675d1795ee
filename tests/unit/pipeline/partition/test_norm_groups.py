"""Convolutions of what a norm, or a view, has in groups of channels: one axis in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.partition.library_parts import library_evidence
from mirage_py.pipeline.pipeline import normalise, partition_of
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.rewrite.convolutions import library_convolution


def _block(x, g, t, w, v):
    y = F.conv2d(F.silu(F.group_norm(x, 4, g)), w, padding=1) + t[:, :, None, None]
    return x + F.conv2d(F.silu(F.group_norm(y, 2)), v, padding=1)


def _shuffled(x, w, v):
    y = F.relu(F.conv2d(x, w, groups=2))
    y = y.unflatten(1, (2, 3)).transpose(1, 2).flatten(1, 2)
    return F.conv2d(y, v, padding=1)


def _standardised(x, w):
    w = (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)
    return F.conv2d(F.group_norm(x, 2), w, padding=1)


def _upsampled(x, w):
    return F.conv2d(F.interpolate(F.silu(F.group_norm(x, 4)), scale_factor=2), w, padding=1)


def _frames(x, w):
    y = x.transpose(1, 2).flatten(0, 1)
    return F.conv2d(F.group_norm(y, 2), w, padding=1)


IMAGES = (2, 8, 5, 6)
WEIGHTS = (3, 8, 3, 3)
CASES = {
    # function, shapes of its inputs, axes of channels that each convolution reads
    "groups": (lambda x, w: F.conv2d(F.group_norm(x, 4), w, padding=1), (IMAGES, WEIGHTS), [["c"]]),
    "one group": (lambda x, w: F.conv2d(F.group_norm(x, 1), w), (IMAGES, WEIGHTS), [["c"]]),
    "channels": (lambda x, w: F.conv2d(F.group_norm(x, 8), w), (IMAGES, WEIGHTS), [["c"]]),
    "one axis": (
        lambda x, w: F.conv1d(F.group_norm(x, 4), w, padding=2),
        ((2, 8, 7), (3, 8, 5)),
        [["c"]],
    ),
    "three axes": (
        lambda x, w: F.conv3d(F.group_norm(x, 2), w, stride=2, padding=1),
        ((1, 8, 4, 5, 3), (3, 8, 3, 3, 3)),
        [["c"]],
    ),
    "transposed": (
        lambda x, w: F.conv_transpose2d(F.group_norm(x, 4), w, stride=2, padding=1),
        (IMAGES, (8, 3, 4, 4)),
        [["c"]],
    ),
    "block": (_block, (IMAGES, (8,), (2, 8), (8, 8, 3, 3), (8, 8, 3, 3)), [["c"], ["c"]]),
    # Groups of the convolution: as many as of the norm, more, fewer, and across them.
    "as many": (
        lambda x, w: F.conv2d(F.group_norm(x, 2), w, groups=2),
        (IMAGES, (4, 4, 3, 3)),
        [["g", "c"]],
    ),
    "more": (
        lambda x, w: F.conv2d(F.group_norm(x, 2), w, groups=4),
        (IMAGES, (4, 2, 3, 3)),
        [["gc"]],
    ),
    "fewer": (
        lambda x, w: F.conv2d(F.group_norm(x, 4), w, groups=2),
        (IMAGES, (4, 4, 3, 3)),
        [["gc"]],
    ),
    "across": (
        lambda x, w: F.conv2d(F.group_norm(x, 2), w, groups=3),
        ((2, 12, 5, 6), (6, 4, 3, 3)),
        [["gc"]],
    ),
    "depthwise": (
        lambda x, w: F.conv2d(F.group_norm(x, 4), w, groups=8),
        (IMAGES, (8, 1, 3, 3)),
        [["g"]],
    ),
    "shuffled": (_shuffled, ((2, 4, 5, 6), (6, 2, 1, 1), (3, 6, 3, 3)), [["c"]]),
    "scaled": (
        lambda x, s, w: F.conv2d(F.group_norm(x, 4), w * s * 0.1, padding=1),
        (IMAGES, (8, 1, 1), WEIGHTS),
        [["c"]],
    ),
    "standardised": (_standardised, (IMAGES, WEIGHTS), [["c"]]),
    "upsampled": (_upsampled, (IMAGES, WEIGHTS), [["c"]]),
    "frames": (_frames, ((2, 8, 3, 5, 6), WEIGHTS), [["c"]]),
}


def _run(program, parts, inputs):
    """All tensors, after each part has computed its own."""
    memory = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    for part in parts:
        validate_program(part)
        given = {t.name: memory[t.name] for t in part.inputs}
        memory |= evaluate_program(part, given, FloatMeaning())
    return memory


def test_an_input_has_the_axes_that_it_has():
    x, w = torch.randn(2, 3, 4, 5), torch.randn(4, 3, 5)
    program = trace(lambda x, w: F.conv1d(x.flatten(2), w, padding=2), x, w)
    assert library_convolution(program) is None
    assert partition_of(program) is None


@pytest.mark.parametrize("name", CASES)
def test_each_convolution_is_a_call_with_one_axis_of_channels(name):
    function, shapes, channels = CASES[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    program = trace(function, *inputs)
    whole = partition_of(program)
    assert whole is not None
    memory = _run(program, whole.parts, inputs)
    calls = [(part, library_convolution(part)) for part in whole.parts]
    found = [call.convolution for _, call in calls if call is not None]
    assert all(library_evidence(p, call, seed=0).equal for p, call in calls if call is not None)
    want = function(*(x.double() for x in inputs)).numpy()
    np.testing.assert_allclose(memory[program.outputs[0].tensor.name], want, atol=1e-9)
    assert [[a for a in c.axes[0] if a and {*a} <= {*"gc"}] for c in found] == channels


def _attention(x, g, wq, wk, wv, wo):
    y = F.group_norm(x, 4, g).flatten(2).transpose(1, 2)
    q, k, v = ((y @ w).unflatten(2, (2, 4)).transpose(1, 2) for w in (wq, wk, wv))
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) @ wo
    return x + y.transpose(1, 2).reshape(x.shape)


def test_rows_and_channels_before_attention_are_one_axis_each():
    shapes = IMAGES, (8,), (8, 8), (8, 8), (8, 8), (8, 8)
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    program = trace(_attention, *inputs)
    whole = partition_of(program)
    assert whole is not None
    memory = _run(program, whole.parts, inputs)
    want = _attention(*(x.double() for x in inputs)).numpy()
    np.testing.assert_allclose(memory["out"], want, atol=1e-9)
    first, second = (normalise(part) for part in whole.parts[:2])
    (normal,) = (t for t in second.inputs if t.name.startswith("T"))
    assert normal.shape == (2, 8, 30)
    # Loops over channels, over columns of a head, and over rows.
    reduced = {d for n in second.nodes if n.op == "matmul" for d in n.reduced}
    assert sorted(second.sizes[d] for d in reduced) == [4, 8, 30]
    assert sorted(first.sizes.values()) == [2, 2, 4, 30]


def _residuals(x, w, b, g, v):
    y = F.conv2d(x, w, b, padding=1) + x
    y = y + F.conv2d(F.group_norm(y, 4, g), v, padding=1)
    return y + F.conv2d(F.group_norm(y, 4, g), v, padding=1)


def test_a_residual_beside_its_norm_is_computed_once():
    shapes = IMAGES, (8, 8, 3, 3), (8,), (8,), (8, 8, 3, 3)
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    program = trace(_residuals, *inputs)
    # A bias and three residuals, a gain and a constant for each of two norms.
    assert sum(n.op == "add" for n in program.nodes) == 6
    whole = partition_of(program)
    assert whole is not None
    memory = _run(program, whole.parts, inputs)
    want = _residuals(*(x.double() for x in inputs)).numpy()
    np.testing.assert_allclose(memory["out"], want, atol=1e-9)
    assert all(len(t.shape) == len(IMAGES) for t in whole.cuts)


def _beside(x, w):
    y = F.conv2d(F.silu(F.group_norm(x, 4)), w, padding=1)
    return x + F.silu(F.group_norm(y, 4))


def test_a_norm_of_a_result_that_is_added_is_computed_under_one_name():
    inputs = [torch.randn(IMAGES), torch.randn(8, 8, 3, 3)]
    program = trace(_beside, *inputs)
    normal = normalise(program)
    assert sum(n.op == "sub" for n in normal.nodes) == 2
    whole = partition_of(program)
    assert whole is not None
    assert len(whole.parts) == 3
    memory = _run(program, whole.parts, inputs)
    want = _beside(*(x.double() for x in inputs)).numpy()
    np.testing.assert_allclose(memory["out"], want, atol=1e-9)


def test_statistics_of_channels_are_taken_once_though_some_see_them_in_groups() -> None:
    """Running statistics have channels, a group norm behind them groups: each had sums of its own,
    and no plan was found (KernelBench L2-11).
    """

    def block(x, w, mean, var):
        y = F.conv_transpose2d(x, w, padding=1)
        y = torch.tanh(F.batch_norm(y, mean, var, training=True))
        return F.group_norm(F.max_pool2d(y, 2), 2)

    shapes = ((2, 8, 5, 5), (8, 8, 4, 4), (8,), (8,))
    with torch.no_grad():
        found = partition_of(trace(block, *map(torch.empty, shapes)))
    assert found is not None
    sums = [sum(n.op == "sum" for n in normalise(part).nodes) for part in found.parts]
    assert sums == [0, 2, 0, 2]
