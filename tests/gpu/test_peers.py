"""The peers on the GPU: they compute what eager does, and can be captured in a graph."""

from __future__ import annotations

import re

import pytest
import torch

from benchmarks.peers.peers import peers
from benchmarks.workloads.workload import Workload
from benchmarks.workloads.workloads import cells
from mirage_py.frontend.spec import parse_file
from mirage_py.runtime.timing.timing import time_interleaved
from mirage_py.ugraph.ir.program import Program

pytestmark = pytest.mark.gpu

DISTINCT = {w.example: w for w in cells().values()}
# Widths of rows and heads stay; a window of 1024 keys must end somewhere.
SIZES = {"B": 2, "T": 2048, "S": 2048, "V": 4096, "F": 2048, "N": 2048, "M": 1024}
# Back ends differ in what they take: these may refuse a program.
MAY_REFUSE = ("sdpa_cudnn", "sdpa_cudnn_gqa", "sdpa_efficient")
AUTOTUNED = "compile_max_autotune"


def program_of(workload: Workload) -> Program:
    text = workload.spec.read_text(encoding="utf-8")
    sizes = {n: SIZES[n] for n in re.findall(r"\b([A-Z]+) = \d", text) if n in SIZES}
    return parse_file(workload.spec, sizes=sizes)


def inputs_of(program: Program, seed: int) -> list[torch.Tensor]:
    drawn = torch.Generator("cuda").manual_seed(seed)
    found = []
    for t in program.inputs:
        dtype = getattr(torch, t.dtype.torch_name)
        if not t.dtype.is_float:
            found.append(torch.randint(0, 64, t.shape, generator=drawn, device="cuda", dtype=dtype))
            continue
        values = torch.randn(t.shape, generator=drawn, device="cuda")
        # Weights, so that products keep their size.
        wide = len(t.shape) == 2 and found
        found.append((values / t.shape[0] ** 0.5 if wide else values).to(dtype))
    return found


@pytest.mark.parametrize("example", DISTINCT)
@torch.no_grad()
def test_peers_agree_with_eager_and_can_be_captured(example: str):
    program = program_of(DISTINCT[example])
    sets = [inputs_of(program, seed) for seed in (1, 2)]
    found = peers(DISTINCT[example])
    del found[AUTOTUNED]
    wanted = found["eager"](*sets[0])
    for name in list(found):
        try:
            got = found[name](*sets[0])
        except RuntimeError:
            if name not in MAY_REFUSE:
                raise
            del found[name]
            continue
        pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True)
        for value, expected in pairs:
            error = (value.double() - expected.double()).abs().max()
            assert error <= 5e-2 * expected.double().abs().max(), name
    times = time_interleaved(
        {name: lambda n, peer=peer: peer(*sets[n]) for name, peer in found.items()}, 2, reps=3
    )
    assert {name: t.note or t.failure for name, t in times.items() if t.note or t.failure} == {}
