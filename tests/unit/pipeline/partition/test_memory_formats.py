"""Channels last between parts: what lies otherwise, and that the parts still are the program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.partition import memory_formats, part_clock
from mirage_py.pipeline.partition.library_parts import library_evidence
from mirage_py.pipeline.partition.optimize_parts import PartJob
from mirage_py.pipeline.partition.part_choice import choose
from mirage_py.pipeline.partition.part_clock import PartClock
from mirage_py.pipeline.pipeline import partition_of, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.runtime.launch.library import convolution_of
from mirage_py.targets import target
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.rewrite.convolutions import library_convolution


def _alone(x, w):
    return F.conv2d(x, w, padding=1)


def _network(x, w, bias, v):
    y = F.relu(F.conv2d(x, w, bias, padding=1))
    return torch.tanh(F.conv_transpose2d(y, v, stride=2)) + 1.0


def _volume(x, w):
    return F.conv3d(x, w).sigmoid()


CASES = {
    "alone": (_alone, (2, 8, 6, 5), (8, 8, 3, 3)),
    "network": (_network, (2, 8, 6, 5), (16, 8, 3, 3), (16,), (16, 8, 3, 3)),
    "volume": (_volume, (1, 8, 4, 5, 6), (8, 8, 2, 3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_with_channels_last_are_the_program(name, monkeypatch):
    monkeypatch.setattr(memory_formats, "_LEAST_FLOPS", 0.0)
    function, *shapes = CASES[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    program = trace(function, *inputs)
    whole = partition_of(program)
    assert whole is not None
    data = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    memory = dict(data)
    for part in whole.parts:
        validate_program(part)
        memory |= evaluate_program(
            part, {t.name: memory[t.name] for t in part.inputs}, FloatMeaning()
        )
        call = library_convolution(part)
        if call is None:
            continue
        # What it reads and writes has channels last, and cuDNN sees a view of that.
        of_data, _, of_result = call.convolution.axes
        assert of_data[-1] in ("c", "gc")
        assert of_result[-1] in ("o", "go")
        assert library_evidence(part, call, seed=0).equal
        x, taps = (torch.from_numpy(memory[a]).to(torch.float32) for a in call.args)
        want = torch.from_numpy(memory[call.result]).to(torch.float32)
        found = convolution_of(call.convolution)(x, taps, torch.full_like(want, torch.nan))
        torch.testing.assert_close(found, want, atol=1e-4, rtol=1e-4)
        assert found.is_contiguous()
    for found, want in evaluate_program(program, data, FloatMeaning()).items():
        np.testing.assert_allclose(memory[found], want, atol=1e-9)


def test_small_convolutions_and_those_of_exact_float32_stay_as_they_lie(monkeypatch):
    small = trace(_alone, torch.randn(2, 8, 6, 5).bfloat16(), torch.randn(8, 8, 3, 3).bfloat16())
    assert len(partition_of(small).parts) == 1
    monkeypatch.setattr(memory_formats, "_LEAST_FLOPS", 0.0)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    exact = trace(_alone, torch.randn(2, 8, 6, 5), torch.randn(8, 8, 3, 3))
    assert len(partition_of(exact).parts) == 1


def test_a_result_that_the_library_made_is_not_copied():
    x, w = torch.randn(1, 2, 3, 3), torch.randn(2, 2, 3, 3)
    program = trace(lambda x, w: F.conv_transpose2d(x, w, stride=2), x, w)
    (part,) = partition_of(program).parts
    out = torch.empty(1, 2, 7, 7)
    call = library_convolution(part)
    found = convolution_of(call.convolution)(torch.ones(1, 2, 3, 3), torch.ones(2, 2, 3, 3), out)
    assert found is not out
    assert found.stride() == out.stride()


def test_copies_are_neither_measured_alone_nor_have_a_share_of_the_budget(monkeypatch):
    monkeypatch.setattr(memory_formats, "_LEAST_FLOPS", 0.0)
    x, w = torch.randn(2, 8, 6, 5).bfloat16(), torch.randn(8, 8, 3, 3).bfloat16()
    program = trace(lambda x, w: F.conv2d(x, w, padding=1).relu(), x, w)
    whole, h200 = partition_of(program), target("h200")
    copy, call, rest = whole.parts
    assert [p.nodes[-1].op for p in (copy, rest)] == ["load", "relu"]
    job = PartJob(h200, measure=True, request=Request("h200", "triton", budget=40.0))
    with monkeypatch.context() as still:
        still.setattr(part_clock.time, "monotonic", lambda: 100.0)
        clock = PartClock(whole, (0, 1, 2), h200, 40.0, 140.0)
        assert [clock.share(n) for n in clock.order] == [20.0] * 3
    chosen = choose(copy, rank_plans, job.of_part(whole, 0), h200, measure=True)
    assert chosen.picked["triton"].plan.ugraph.program == copy
    assert library_convolution(call) is not None
