"""Exponentials that are added to each other: one shift where they meet, in every kind of plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from exp_graphs import ops
from families import safe_families, stabilize
from torch import Tensor

from mirage_py.axioms.proof.prove import prove
from mirage_py.frontend.torch.trace import trace
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import H200
from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.shifts.safe_exp import add_safe_shifts

ROWS, KEYS = 4, 16
Function = Callable[..., Tensor]


def sums(x: Tensor, c: Tensor) -> Tensor:
    return x.exp() / (x.exp().sum(-1, keepdim=True) + c.exp())


def two_more(x: Tensor, c: Tensor, e: Tensor) -> Tensor:
    return x.exp() / (x.exp().sum(-1, keepdim=True) + c.exp() + e.exp())


def log_of_both(x: Tensor, c: Tensor) -> Tensor:
    return torch.log(c.exp().sum(-1) + x.exp().sum(-1))


def masked(x: Tensor, c: Tensor, keep: Tensor) -> Tensor:
    kept = x.masked_fill(~keep, float("-inf")).exp()
    return kept / (kept.sum(-1, keepdim=True) + c.exp())


def weighted(x: Tensor, c: Tensor, v: Tensor) -> Tensor:
    return x.exp() @ v / (x.exp().sum(-1, keepdim=True) + c.exp())


def column(x: Tensor, c: Tensor, v: Tensor) -> Tensor:
    return torch.cat([x, c], -1).softmax(-1)[..., :-1] @ v


# The softmax of all that is added, which torch shifts itself.
def _softmax(x: Tensor, *others: Tensor) -> Tensor:
    return torch.cat([x, *others], -1).softmax(-1)[..., : x.shape[-1]]


PROGRAMS: Mapping[str, tuple[Function, Function]] = {
    "sums": (sums, _softmax),
    "two_more": (two_more, _softmax),
    "log_of_both": (log_of_both, lambda x, c: torch.cat([x, c], -1).logsumexp(-1)),
    "masked": (masked, lambda x, c, k: _softmax(x.masked_fill(~k, float("-inf")), c)),
    "weighted": (weighted, lambda x, c, v: _softmax(x, c) @ v),
    "column": (column, lambda x, c, v: _softmax(x, c) @ v),
}
LEVELS = ((1.0, 3e4), (1.0, -3e4), (1e4, 0.0))


def _inputs(name: str, spread: float, level: float) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(len(name))
    found = {
        "x": torch.randn(ROWS, KEYS, generator=draw) * spread,
        "c": torch.randn(ROWS, 1, generator=draw) + level,
    }
    if name == "log_of_both":
        found["c"] = torch.randn(ROWS, KEYS // 2, generator=draw) + level
    if name == "two_more":
        found["e"] = torch.randn(ROWS, 1, generator=draw) - level
    if name == "masked":
        keep = torch.rand(ROWS, KEYS, generator=draw) > 0.5
        keep[::3] = False
        found["keep"] = keep
    if name in ("weighted", "column"):
        found["v"] = torch.randn(KEYS, 16, generator=draw)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_of_plan_gives_finite_and_right_results(name: str) -> None:
    function, safe = PROGRAMS[name]
    program = normalise(trace(function, *_inputs(name, 1.0, 0.0).values()))
    families = search(program, limits=SearchLimits(max_kernels=2)).families
    found = safe_families(families).ugraphs
    assert found
    backend, run = ("cuda", run_emulated) if name == "weighted" else ("triton", run_interpreted)
    for instance in {i.kind: i for i in rank(found, H200, 20, backend)}.values():
        assert "shift" in [n.op for k in instance.family.kernels for n in _nodes(k)]
        field_test(program, instance.family, trials=2, seed=0).require()
        for spread, level in LEVELS:
            inputs = _inputs(name, spread, level)
            want = safe(*(x.double() if x.is_floating_point() else x for x in inputs.values()))
            arrays = {n: x.numpy().astype(np.float64) for n, x in inputs.items()}
            (got,) = run(instance.plan, arrays).values()
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-3, atol=1e-5)


def _nodes(kernel: Kernel) -> tuple[Node, ...]:
    return kernel.nodes if isinstance(kernel, BlockGraph) else ()


def test_running_maxima_are_joined_behind_their_loops_and_that_is_proved() -> None:
    program = normalise(trace(weighted, *_inputs("weighted", 1.0, 0.0).values()))
    families = [f.ugraph for f in search(program, limits=SearchLimits(max_kernels=1)).families]
    running = [u for u in map(stabilize, families) if "accum_rescaled" in ops(u, 0)]
    assert running
    for ugraph in running:
        # The loop rescales by its own maximum alone; the other exponential comes behind it.
        assert ops(ugraph, 0).count("accum_max") == 1
        assert ops(ugraph, 0).count("shift") == 2
    assert prove(program, running[0]) is not None


def test_exponentials_that_are_subtracted_alone_are_not_joined() -> None:
    def difference(x: Tensor, c: Tensor) -> Tensor:
        return x.exp() / (x.exp().sum(-1, keepdim=True) - c.exp())

    program = normalise(trace(difference, *_inputs("sums", 1.0, 0.0).values()))
    for family in search(program, limits=SearchLimits(max_kernels=1)).families:
        assert stabilize(family.ugraph) == family.ugraph


def test_float64_shifts_them_together() -> None:
    program = normalise(trace(sums, *_inputs("sums", 1.0, 0.0).values()))
    inputs = _inputs("sums", 1e4, 0.0)
    arrays = {n: x.double().numpy() for n, x in inputs.items()}
    (got,) = evaluate_program(add_safe_shifts(program), arrays, FloatMeaning()).values()
    np.testing.assert_allclose(got, _softmax(*(x.double() for x in inputs.values())).numpy())
