"""What stands around a convolution of the library, in Triton's interpreter: equal to torch's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from interpreted import in_interpreter

from mirage_py.codegen.triton.convolution_epilogue import EPILOGUE, blocks, emit_epilogue
from mirage_py.errors import ScheduleError
from mirage_py.runtime.base.modules import load_module
from mirage_py.ugraph.ir.convolution import (
    FusedConvolution,
    LibraryConvolution,
    plan_text,
    read_plan,
)

_SMALL = FusedConvolution(2, 8, 5, 5, 24, (3, 3), padding=(1, 1), dtype="f16")
# Channels that fill no tile, more than a tile has, a residual that is a slice; with and without.
CASES = (
    replace(_SMALL, has_bias=True, relu_after=True),
    replace(_SMALL, has_residual=True, relu_after=True),
    replace(_SMALL, results=300, has_bias=True, has_residual=True, residual_pitch=340,
            residual_offset=16),
    replace(_SMALL, results=1, height=40, width=60, has_bias=True),
)  # fmt: skip


def compare(task: Mapping[str, Any]) -> int:
    """In the interpreter: how many of the epilogues are right."""
    torch.manual_seed(0)
    for text in task["texts"]:
        spec, _ = read_plan(text)
        room = torch.full((spec.places * spec.results + 2000,), float("nan")).half()
        y = room[1000:-1000].view(spec.places, spec.results)
        y.copy_(torch.randn(y.shape))
        want = y.float()
        y[0, 0] = want[0, 0] = float("nan")
        given = [y]
        if spec.has_bias:
            given.append(torch.randn(spec.results).half())
            want = want + given[-1].float()
        if spec.has_residual:
            given.append(torch.randn(spec.places, spec.residual_apart).half())
            begin = spec.residual_offset
            want = want + given[-1][:, begin : begin + spec.results].float()
        if spec.relu_after:
            want = want.relu()
        kernel = getattr(load_module(emit_epilogue(spec), EPILOGUE), EPILOGUE)
        kernel[(blocks(spec),)](*given)
        assert torch.equal(y.nan_to_num(7.0), want.half().nan_to_num(7.0)), text
        assert room[:1000].isnan().all(), text
        assert room[-1000:].isnan().all(), text
    return len(task["texts"])


def test_each_result_is_that_of_torch() -> None:
    texts = [plan_text(spec, LibraryConvolution(is_fused=False)) for spec in CASES]
    assert [read_plan(t) for t in texts] == [(c, LibraryConvolution(False)) for c in CASES]
    found = in_interpreter(compare, "unit.codegen.test_convolution_epilogue", texts=texts)
    assert found == len(CASES)


def test_addresses_beyond_32_bits_are_refused() -> None:
    with pytest.raises(ScheduleError, match="32 bits"):
        emit_epilogue(replace(_SMALL, height=1 << 14, width=1 << 13))
