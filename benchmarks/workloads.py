"""The programs that are measured, at the shapes of the field (benchmarks/README.md names sources).

Each is one of the examples: a spec with its sizes overridden, and the torch function that a user
would have written, whose parameters are the spec's inputs in order. The large ones share a file of
functions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True, slots=True)
class Workload:
    """``example`` is a file of the examples without its ending; ``sizes`` override its extents."""

    name: str
    example: str
    batch: int
    sizes: Mapping[str, int]

    @property
    def key(self) -> str:
        """A file name."""
        return f"{self.name}-b{self.batch}"

    @property
    def spec(self) -> Path:
        """The math spec."""
        return EXAMPLES / f"{self.example}.math"

    def torch_function(self) -> Callable[..., Any]:
        """The example's torch function."""
        folder, _, name = self.example.rpartition("/")
        path = EXAMPLES / (f"{folder}/functions.py" if folder else f"{name}.py")
        spec = importlib.util.spec_from_file_location(f"examples_{folder or name}", path)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Callable[..., Any] = getattr(module, name)
        return function


def suite(batches: tuple[int, ...] = (1, 8, 16)) -> tuple[Workload, ...]:
    """Six programs of the Mirage paper at each batch, and softmax and LayerNorm+linear once."""
    cells: list[Workload] = []
    for b in batches:
        cells += [
            Workload("rmsnorm", "rmsnorm_matmul", b, {"B": 2 * b}),
            Workload("gatedmlp", "gated_mlp", b, {"B": 8 * b}),
            Workload("lora", "lora", b, {"B": 16 * b}),
            Workload("gqa", "attention", b, {"H": 2 * b}),
            Workload("qknorm", "qknorm_attention", b, {"H": 2 * b}),
            Workload("ntrans", "ntrans", b, {"B": b}),
        ]
    cells += [
        Workload("softmax", "softmax", 1, {}),
        Workload("layernorm_linear", "layernorm_linear", 1, {}),
    ]
    return tuple(cells)


def extra() -> tuple[Workload, ...]:
    """LoRA at a model's width, decoding with grouped heads, and prefill."""
    cells: list[Workload] = []
    for b in (1, 8, 16):
        cells += [
            Workload("lora4k", "lora", b, {"B": b, "D": 4096}),
            Workload("decode", "large/decode_attention", b, {"B": b}),
        ]
    for rows in (512, 4096):
        cells += [
            Workload("rmsnorm_prefill", "rmsnorm_matmul", rows, {"B": rows}),
            Workload("gatedmlp_prefill", "gated_mlp", rows, {"B": rows}),
        ]
    cells += [Workload("causal", "large/causal_attention", 1, {})]
    return tuple(cells)


def large(batches: tuple[int, ...] = (1, 8)) -> tuple[Workload, ...]:
    """Blocks of today's models, at their widths: projections of few rows at each batch, the rest
    once.
    """
    cells: list[Workload] = []
    for b in batches:
        cells += [
            Workload("residualmlp", "large/residual_norm_mlp", b, {"B": 8 * b}),
            Workload("mlpblock", "large/residual_norm_mlp_down", b, {"B": 8 * b}),
            Workload("loramlp", "large/lora_gated_mlp", b, {"B": 8 * b}),
            Workload("qknormout", "large/qknorm_attention_out", b, {"B": b}),
        ]
    cells += [
        Workload("layernormgelu", "large/layernorm_linear_gelu", 1, {}),
        Workload("causal", "large/causal_attention", 1, {}),
        Workload("window", "large/sliding_window_attention", 1, {}),
        Workload("softcap", "large/softcap_attention", 1, {}),
        Workload("crossentropy", "large/cross_entropy", 1, {}),
    ]
    return tuple(cells)
