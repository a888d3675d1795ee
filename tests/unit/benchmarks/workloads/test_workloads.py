"""Every workload of the benchmarks: its spec at its sizes, and the torch function it rivals."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from benchmarks.workloads.workload import Workload
from benchmarks.workloads.workloads import cells, suites
from mirage_py.frontend.spec import parse_file
from mirage_py.pipeline.pipeline import normalise
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.program import Program

ALL = tuple(cells().values())
# One workload of each example.
DISTINCT = tuple({w.example: w for w in ALL}.values())
# Extents of one spec are distinct, so that no axis can be mistaken for another. Query heads come
# in whole groups; constants of the torch functions stand as they are.
SMALL = {
    "R": 2,
    "G": 3,
    "B": 4,
    "H": 6,
    "T": 7,
    "S": 8,
    "D": 10,
    "N": 11,
    "M": 13,
    "F": 14,
    "V": 17,
}


def small(workload: Workload) -> Program:
    sizes = re.findall(r"\b([A-Z]+) = \d", workload.spec.read_text(encoding="utf-8"))
    return parse_file(workload.spec, sizes={n: SMALL[n] for n in sizes if n in SMALL})


def inputs_of(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        t.name: rng.normal(size=t.shape)
        if t.dtype.is_float
        else rng.integers(0, SMALL["V"], t.shape).astype(np.float64)
        for t in program.inputs
    }


def results_of(workload: Workload, inputs: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, ...]:
    found = workload.torch_function()(*(torch.from_numpy(x) for x in inputs.values()))
    return found if isinstance(found, tuple) else (found,)


def test_suites_are_the_known_ones():
    assert {name: len(suite) for name, suite in suites().items()} == {
        "paper": 18,
        "lora4k": 3,
        "decode": 3,
        "prefill": 10,
        "models": 44,
        "misc": 2,
        "large": 12,
        "smoke": 2,
    }


def test_keys_are_unique():
    assert len(cells()) == sum(len(suite) for suite in suites().values())


def test_no_two_workloads_are_the_same_program():
    programs = [parse_file(w.spec, sizes=w.sizes).digest for w in ALL]
    assert len(dict.fromkeys(programs)) == len(programs)


@pytest.mark.parametrize("workload", ALL, ids=lambda w: w.key)
def test_spec_and_function_fit(workload: Workload):
    program = parse_file(workload.spec, sizes=workload.sizes)
    inputs = [
        torch.empty(t.shape, dtype=getattr(torch, t.dtype.torch_name), device="meta")
        for t in program.inputs
    ]
    result = workload.torch_function()(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    assert [tuple(r.shape) for r in results] == [o.tensor.shape for o in program.outputs]


@pytest.mark.parametrize("workload", DISTINCT, ids=lambda w: w.example)
def test_function_agrees_with_the_spec_in_float64(workload: Workload):
    program = small(workload)
    inputs = inputs_of(program)
    results = results_of(workload, inputs)
    # Losses are computed in float32.
    tolerance = 1e-5 if "entropy" in workload.example else 1e-9
    for form in (program, normalise(program)):
        got = evaluate_program(form, inputs, FloatMeaning())
        for value, expected in zip(got.values(), results, strict=True):
            np.testing.assert_allclose(value, expected.numpy(), rtol=tolerance, atol=tolerance)
