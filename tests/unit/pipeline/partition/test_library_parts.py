"""Parts that are convolutions: found, cut off, compared with wrong calls, and run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from nightly import NIGHTLY

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.partition.library_parts import library_evidence, library_result
from mirage_py.pipeline.pipeline import partition_of
from mirage_py.runtime.launch.library import library_function
from mirage_py.targets import target
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.convolution import read_convolution
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.printing import format_ugraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from tests.data.windows import CONVOLUTIONS, OTHERS


def _case(name):
    function, *shapes = {**CONVOLUTIONS, **OTHERS}[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    return function, inputs, lower_masks(trace(function, *inputs))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_one_call(name):
    function, inputs, program = _case(name)
    call = library_convolution(program)
    assert call is not None
    ugraph = UGraph(program, (call,))
    assert parse_ugraph(format_ugraph(ugraph)) == ugraph
    assert load_text(dump_text(ugraph), "test") == ugraph
    assert read_convolution(str(call.convolution)) == call.convolution
    data = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    (found,) = evaluate_ugraph(ugraph, data, FloatMeaning()).values()
    want = function(*(x.double() for x in inputs))
    np.testing.assert_allclose(found, want.numpy(), atol=1e-9)
    out = torch.empty(program.outputs[0].tensor.shape)
    library_function(call.op, call.convolution)(*inputs, out=out)
    torch.testing.assert_close(out, want.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.conv2d(x[:, :3], w[:, :3]),
        lambda x, w: torch.conv2d(x, w[:3]),
        lambda x, w: torch.conv2d(x, w[..., :2]),
        lambda x, w: torch.conv2d(x[:1], w),
    ],
    ids=["channels", "results", "window", "samples"],
)
def test_a_part_of_a_tensor_is_no_operand_of_a_call(function):
    program = lower_masks(trace(function, torch.randn(2, 8, 9, 12), torch.randn(16, 8, 3, 3)))
    assert library_convolution(program) is None


def _wrong(spec, kernel):
    """Off by one in each number that matters; groups swapped with channels."""
    for axis in range(spec.rank):
        for name in ("stride", "padding", "dilation"):
            # With one window, or a window of one element, a step says nothing.
            if (name == "dilation" and kernel[axis] == 1) or spec.counts[axis] == 1:
                continue
            numbers = list(getattr(spec, name))
            for step in (1, -1):
                changed = [n + step * (a == axis) for a, n in enumerate(numbers)]
                if changed[axis] >= (name != "padding"):
                    yield replace(spec, **{name: tuple(changed)})
    yield replace(spec, transposed=not spec.transposed)
    # Groups counted within channels, in one tensor.
    for which, axes in enumerate(spec.axes):
        swapped = tuple({"gc": "cg", "go": "og"}.get(part, part) for part in axes)
        if swapped != axes:
            yield replace(
                spec, axes=tuple(swapped if n == which else a for n, a in enumerate(spec.axes))
            )


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_wrong_calls_are_refused(name):
    _, inputs, program = _case(name)
    call = library_convolution(program)
    assert library_evidence(program, call, seed=0).equal
    variants = list(_wrong(call.convolution, inputs[1].shape[2:]))
    assert len(variants) >= 4
    # The convolutions share out the variants: each of them has every second one, from another on.
    first = list(CONVOLUTIONS).index(name) % 2
    for spec in variants if NIGHTLY else variants[first::2]:
        found = library_evidence(program, replace(call, convolution=spec), seed=0)
        assert not found.equal, spec


@pytest.mark.parametrize("name", OTHERS)
def test_parts_in_sequence_are_the_program(name):
    _, inputs, _ = _case(name)
    program = trace(OTHERS[name][0], *inputs)
    whole = partition_of(program)
    if whole is None:
        assert not any(node.op == "read" for node in program.nodes)
        return
    data = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    memory = dict(data)
    for part in whole.parts:
        validate_program(part)
        assert all(node.op != "read" for node in part.nodes)
        given = {t.name: memory[t.name] for t in part.inputs}
        memory |= evaluate_program(part, given, FloatMeaning())
    for found, want in evaluate_program(program, data, FloatMeaning()).items():
        np.testing.assert_allclose(memory[found], want, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("bias", 1),
        ("two", 2),
        ("branches", 2),
        ("residual", 1),
        ("max", 0),
        ("patches", 0),
        ("packed", 0),
    ],
)
def test_each_convolution_is_a_part_of_its_own(name, calls):
    function, inputs, _ = _case(name)
    whole = partition_of(trace(function, *inputs))
    parts = whole.parts if whole else ()
    assert sum(library_convolution(part) is not None for part in parts) == calls


def test_a_library_part_has_evidence_and_no_search():
    _, _, program = _case("groups")
    result = library_result(program, target("h200"), seed=0, backend="triton")
    assert result.plan is not None
    assert result.evidence.trials == 2
    assert result.search.kinds == {"library": 1}
    _, _, other = _case("max")
    assert library_result(other, target("h200"), seed=0, backend="triton") is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.einsum("bhd,de->bhe", x.view(2, 4, 3), w),  # one product for each head
        lambda x, w: x[:, 3:6] @ w,
        lambda x, w: x[:, ::4] @ w,
    ],
    ids=["heads", "slice", "step"],
)
def test_products_of_views_are_the_searchs(function):
    program = lower_masks(trace(function, torch.randn(2, 12), torch.randn(3, 5)))
    assert library_convolution(program) is None
    assert partition_of(program) is None


def test_unlike_windows_are_no_convolution():
    # Every second window is shifted by one: affine nowhere.
    def shifted(x, w):
        even, odd = x[:, :, 0:8:2], x[:, :, 2:10:2]
        return torch.stack([(even * w).sum(1), (odd * w).sum(1)], 1)

    program = lower_masks(trace(shifted, torch.randn(2, 3, 10), torch.randn(3, 1)))
    assert library_convolution(program) is None
