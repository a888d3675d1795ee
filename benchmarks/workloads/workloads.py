"""The programs that are measured, at the shapes of the field (benchmarks/README.md names sources).

Each is one of the examples: a spec with its sizes overridden, and the torch function that a user
would have written, whose parameters are the spec's inputs in order. The large ones share a file of
functions, and so do the models' layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.workloads.model_layers import LLAMA_8B, models
from benchmarks.workloads.workload import EXAMPLES, Workload

__all__ = ["EXAMPLES", "Workload", "cells", "suites"]

BATCHES = (1, 8, 16)
PREFILL_ROWS = (512, 2048, 4096)


def suites() -> Mapping[str, tuple[Workload, ...]]:
    """Named groups of workloads. No key stands in two of them.

    ``paper``    six programs of the Mirage paper at batch 1, 8, 16, at its shapes
    ``lora4k``   LoRA on a weight of 4096 by 4096
    ``decode``   a new token over 8192 keys, 16 query heads on 2 key-value heads
    ``prefill``  projections of 512 to 4096 rows; causal attention of 4096 tokens, 32 heads
    ``models``   layers of four models, in bf16
    ``misc``     softmax; LayerNorm and a linear layer
    ``large``    blocks of today's models
    ``smoke``    so small that anything runs them: for the harness, not for figures
    """
    return {
        "paper": tuple(_paper()),
        "lora4k": tuple(Workload("lora4k", "lora", b, {"B": b, "D": 4096}) for b in BATCHES),
        "decode": tuple(Workload("decode", "large/decode_attention", b, {"B": b}) for b in BATCHES),
        "prefill": tuple(_prefill()),
        "models": models(),
        "misc": (
            Workload("softmax", "softmax", 1, {}),
            Workload("layernorm_linear", "layernorm_linear", 1, {}),
        ),
        "large": tuple(_large()),
        "smoke": (
            Workload("smoke_rmsnorm", "rmsnorm_matmul", 1, {"B": 2, "D": 64, "N": 96}),
            Workload("smoke_gqa", "attention", 1, {"H": 2, "T": 16, "S": 64, "D": 16}),
        ),
    }


def cells() -> dict[str, Workload]:
    """All workloads by key."""
    return {w.key: w for suite in suites().values() for w in suite}


def _paper() -> Iterator[Workload]:
    """Six programs of the Mirage paper."""
    for b in BATCHES:
        yield Workload("rmsnorm", "rmsnorm_matmul", b, {"B": 2 * b})
        yield Workload("gatedmlp", "gated_mlp", b, {"B": 8 * b})
        yield Workload("lora", "lora", b, {"B": 16 * b})
        yield Workload("gqa", "attention", b, {"H": 2 * b})
        yield Workload("qknorm", "qknorm_attention", b, {"H": 2 * b})
        yield Workload("ntrans", "ntrans", b, {"B": b})


def _prefill() -> Iterator[Workload]:
    """Many rows, where the vendor's matmul is at its best; whole prompts."""
    for rows in PREFILL_ROWS:
        yield Workload("rmsnorm_prefill", "rmsnorm_matmul", rows, {"B": rows})
        yield Workload("gatedmlp_prefill", "gated_mlp", rows, {"B": rows})
        sizes = {"B": rows, "D": LLAMA_8B.hidden}
        sizes |= {"N": LLAMA_8B.heads * LLAMA_8B.head_dim}
        sizes |= {"M": LLAMA_8B.kv_heads * LLAMA_8B.head_dim}
        yield Workload("qkv_prefill", "models/norm_q_k_v", rows, sizes)
    yield Workload("causal", "large/causal_attention", 1, {})


def _large() -> Iterator[Workload]:
    """Blocks of today's models, at their widths: projections of few rows twice, the rest once."""
    for b in (1, 8):
        yield Workload("residualmlp", "large/residual_norm_mlp", b, {"B": 8 * b})
        yield Workload("mlpblock", "large/residual_norm_mlp_down", b, {"B": 8 * b})
        yield Workload("loramlp", "large/lora_gated_mlp", b, {"B": 8 * b})
        yield Workload("qknormout", "large/qknorm_attention_out", b, {"B": b})
    yield Workload("layernormgelu", "large/layernorm_linear_gelu", 1, {})
    yield Workload("window", "large/sliding_window_attention", 1, {})
    yield Workload("softcap", "large/softcap_attention", 1, {})
    yield Workload("crossentropy", "large/cross_entropy", 1, {})
