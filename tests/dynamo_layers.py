"""Equal layers, each region optimised by a fake that counts; for two processes in a row."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.servers import optimizing
from mirage_py.pipeline import pipeline
from mirage_py.targets import target


class Found:
    """Nothing faster."""

    plan = link = None

    def document(self) -> dict[str, Any]:
        return {}


def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for w in weights:
        x = x + F.silu(F.rms_norm(x, (64,)) @ w)
    return x


def compile_layers(count: int = 8) -> tuple[list[str], list[str]]:
    """Compile so many layers: the digests of the programs searched for, and the log."""
    searched: list[str] = []

    def run(program: Any, _: Any) -> Found:
        searched.append(program.digest)
        return Found()

    kept, pipeline.run = pipeline.run, run
    try:
        inputs = torch.randn(4, 64), *(torch.randn(64, 64) for _ in range(count))
        graph = make_fx(layers, decompositions(), tracing_mode="fake")(*inputs)
        options = BackendOptions(target="h200")
        compiler = GraphCompiler(options, target("h200"), optimizing(options))
        fused = compiler.fused("inference", graph)
        torch.testing.assert_close(fused(*inputs), layers(*inputs))
    finally:
        pipeline.run = kept
    return searched, compiler.lines
