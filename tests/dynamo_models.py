"""Six models of ``transformers``, as small as their configurations allow, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 61,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def llama() -> torch.nn.Module:
    """Grouped queries, RMSNorm, rotary positions, a gated MLP."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_TEXT))


def qwen3() -> torch.nn.Module:
    """Queries and keys are normalised."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**_TEXT))


def gemma3() -> torch.nn.Module:
    """A sliding window in every other layer; logits with a soft cap."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        **_TEXT | {"num_hidden_layers": 2},
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
        final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0,
    )
    config._attn_implementation = "eager"  # torch's own attention has no soft cap
    return Gemma3ForCausalLM(config)


def mixtral() -> torch.nn.Module:
    """Experts, chosen by data."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_TEXT, num_local_experts=4, num_experts_per_tok=2)
    return MixtralForCausalLM(config)


def lora() -> torch.nn.Module:
    """Llama with adapters, which alone are trained."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj", "up_proj"],
        init_lora_weights=False,
    )  # fmt: skip
    adapted: torch.nn.Module = get_peft_model(llama(), config)
    return adapted


def vit() -> torch.nn.Module:
    """Patches of an image."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        image_size=16, patch_size=4, num_labels=5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return ViTForImageClassification(config)


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "llama": llama,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "mixtral": mixtral,
    "lora": lora,
    "vit": vit,
}


def batch(name: str, rows: int = 2, length: int = 9) -> dict[str, torch.Tensor]:
    """Inputs with labels."""
    if name == "vit":
        return {
            "pixel_values": torch.randn(rows, 3, 16, 16),
            "labels": torch.randint(0, 5, (rows,)),
        }
    ids = torch.randint(3, 61, (rows, length))
    return {"input_ids": ids, "labels": ids}
