"""The programs that are measured, at the shapes of the field (benchmarks/README.md names sources).

Each is one of the examples: a spec with its sizes overridden, and the torch function that a user
would have written, whose parameters are the spec's inputs in order.
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
    """``sizes`` override the spec's extents."""

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
        path = EXAMPLES / f"{self.example}.py"
        spec = importlib.util.spec_from_file_location(f"examples_{self.example}", path)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Callable[..., Any] = getattr(module, self.example)
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
