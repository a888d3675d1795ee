"""Composites whose convolutions are matmuls of ours: several tilings, and each is the program."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.joined.joined_composites import joined_composites
from mirage_py.pipeline.partition import memory_formats
from mirage_py.pipeline.partition.composites import picked_in
from mirage_py.pipeline.partition.part_choice import Chosen, choose
from mirage_py.pipeline.pipeline import partition_of, rank_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.targets import target
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.ugraph import LibraryCall


def _program():
    torch.manual_seed(0)
    shapes = (2, 8, 6, 7), (16, 8, 3, 3), (16,)
    inputs = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    return trace(lambda x, w, b: F.conv2d(x, w, b, padding=1).relu() + 1.0, *inputs), inputs


def _composites(program, monkeypatch, rank=rank_plans):
    monkeypatch.setattr(memory_formats, "_LEAST_FLOPS", 0.0)
    whole = partition_of(program)
    chosen = [Chosen(None) for _ in whole.parts]
    request = Request("h200", "triton")
    return joined_composites(whole, chosen, rank, request, target("h200"), measure=True)


def test_each_is_the_program_with_other_tiles_and_without_a_library_call(monkeypatch):
    program, inputs = _program()
    found = _composites(program, monkeypatch)
    assert len({c.plan.ugraph for c in found}) == len(found) == 3
    assert [c.time_us for c in found] == sorted(c.time_us for c in found)
    data = {t.name: x.double().numpy() for t, x in zip(program.inputs, inputs, strict=True)}
    (want,) = evaluate_program(program, data, FloatMeaning()).values()
    for composite in found:
        ugraph = composite.plan.ugraph
        assert not any(isinstance(k, LibraryCall) for k in ugraph.kernels)
        assert all(
            p and p.evidence for p in picked_in(composite.whole, composite.chosen, composite.plan)
        )
        (got,) = evaluate_ugraph(ugraph, data, FloatMeaning()).values()
        np.testing.assert_allclose(got, want, atol=1e-9)


def test_there_is_none_where_a_part_has_no_plan(monkeypatch):
    def refusing(program, *_):
        raise UnsupportedError("not to be searched", where=program.name)

    assert _composites(_program()[0], monkeypatch, rank=refusing) == []


def test_convolutions_of_few_channels_are_ours_or_the_librarys_beside_matmuls_of_ours(monkeypatch):
    """A matmul of ours was never beside the library's depthwise convolution, if that is a part by
    itself: both had one digest.
    """
    monkeypatch.setattr(memory_formats, "_LEAST_FLOPS", 0.0)
    shapes = (2, 8, 6, 7), (8, 1, 3, 3), (16, 8, 3, 3)
    inputs = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
    program = trace(
        lambda x, w, v: F.conv2d(F.conv2d(x, w, None, 1, 1, 1, 8), v, padding=1).relu(), *inputs
    )
    whole, h200, request = partition_of(program), target("h200"), Request("h200", "triton")
    chosen = [choose(p, rank_plans, request, h200, measure=False) for p in whole.parts]
    found = joined_composites(whole, chosen, rank_plans, request, h200, measure=True)
    kernels = [c.plan.ugraph.kernels for c in found]
    by_library = {tuple(k.args[1] for k in plan if isinstance(k, LibraryCall)) for plan in kernels}
    assert by_library == {(), ("w",), ("v",)}
