"""A model on a GPU: the graph level beside eager PyTorch and torch.compile.

Everything compiled is compiled with max-autotune, in CUDA graphs; candidates are called in turns.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.config as inductor_config

import mirage_py
from benchmarks.graphs.models import model_at
from mirage_py.dynamo.whole_graph.timer import CompiledGraph, times_on_gpu

Json = dict[str, Any]


def measured_row(name: str, batch: int, *, mode: str, budget_s: float) -> Json:
    """Medians in microseconds, and how far ours is from eager, of the largest element."""
    model, inputs = model_at(name, batch, "cuda")
    with torch.no_grad():
        want = model(*inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about itself
            program = torch.export.export(model, inputs, strict=False)
        found = mirage_py.optimize_graph(program, effort="full", freeze=True, budget=budget_s)
        calls = {
            "eager": lambda: model(*inputs),
            "max_autotune": _compiled(model, inputs, mode, freezing=False),
            "max_autotune_freezing": _compiled(model, inputs, mode, freezing=True),
            "ours": _compiled(found.module, inputs, mode, freezing=True),
        }
        error = float((calls["ours"]().double() - want.double()).abs().max() / want.abs().max())
        graphs = {n: CompiledGraph(call, is_captured=n == "eager") for n, call in calls.items()}
        times = times_on_gpu(graphs, lambda: None)
    result = found.result
    row = {
        "model": name,
        "batch": batch,
        "device": torch.cuda.get_device_name(),
        "times_us": {n: round(us, 2) for n, us in times.items()},
        "error": error,
        "verdict": found.verdict,
        "evidence": str(found.evidence),
        "steps": [] if result is None else [str(s) for s in result.steps],
    }
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
    return row


def _compiled(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], mode: str, *, freezing: bool
) -> Callable[[], torch.Tensor]:
    """Compiled here, as freezing is a setting of the moment of compilation."""
    torch.compiler.reset()
    with inductor_config.patch({"freezing": freezing}):
        compiled = torch.compile(model, mode=mode)
        for _ in range(3):
            compiled(*inputs)
    return lambda: compiled(*inputs)
