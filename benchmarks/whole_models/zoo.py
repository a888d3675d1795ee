"""Models of ``transformers`` at the sizes of published ones, with few layers and random weights.

Nothing is downloaded. Every layer of a kind is the same to a compiler, so a few stand for all;
embedding and head are whole, and weigh more than they do in the published model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Json = Mapping[str, Any]

# Of the cache, so many tokens are left free: what is timed between two rewinds writes them.
MARGIN = 32
_WINDOW_EVERY = 6
_BATCHES = (1, 4, 16)


@dataclass(frozen=True, slots=True)
class WholeModel:
    """``context``: tokens in the cache of a decode step; 0: a forward pass over images.

    ``config(sizes)`` makes the configuration; ``sizes`` are the published ones, ``layers`` and
    ``batches`` those that are measured.
    """

    name: str
    words: str
    batches: tuple[int, ...]
    layers: int
    context: int
    sizes: Json
    config: Callable[[Json, int], Any]
    make: Callable[[Any], torch.nn.Module]


_LLAMA_8B = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
}  # fmt: skip
_LLAMA_1B = {
    **_LLAMA_8B, "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64,
    "max_position_embeddings": 131072, "tie_word_embeddings": True, "rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
_QWEN2_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768,
}  # fmt: skip
_PHI4_MINI = {
    "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
    "num_key_value_heads": 8, "vocab_size": 200064, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75, "tie_word_embeddings": True, "pad_token_id": 0,
}  # fmt: skip
_GEMMA2_9B = {
    "hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000, "sliding_window": 4096,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "max_position_embeddings": 8192,
}  # fmt: skip
_OLMO2_7B = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "num_key_value_heads": 32, "vocab_size": 100352, "rope_theta": 500000.0, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
}  # fmt: skip
_QWEN3_8B = {
    **_LLAMA_8B, "intermediate_size": 12288, "vocab_size": 151936, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
}  # fmt: skip
_GEMMA3_12B = {
    "hidden_size": 3840, "intermediate_size": 15360, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 262208, "sliding_window": 1024,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "max_position_embeddings": 8192,
}  # fmt: skip
_MIXTRAL_8X7B = {
    **_LLAMA_8B, "vocab_size": 32000, "rope_theta": 1e6, "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip
_VIT_L = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "image_size": 224,
    "patch_size": 16, "num_labels": 1000, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
# What the sizes become where nothing is measured.
_TINY = {
    "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "vocab_size": 61, "sliding_window": 8, "query_pre_attn_scalar": 8,
    "num_local_experts": 4, "image_size": 16, "patch_size": 4, "num_labels": 5,
}  # fmt: skip


def _config(kind: str, sizes: Json, layers: int) -> Any:
    import transformers

    return getattr(transformers, kind)(**sizes, num_hidden_layers=layers)


def _module(kind: str, config: Any) -> torch.nn.Module:
    import transformers

    module: torch.nn.Module = getattr(transformers, kind)(config)
    return module


def _gemma3_config(sizes: Json, layers: int) -> Any:
    # Five layers see a window and one sees all, and the last here always does.
    kinds = [
        "full_attention" if n % _WINDOW_EVERY == 0 or n == layers else "sliding_attention"
        for n in range(1, layers + 1)
    ]
    return _config("Gemma3TextConfig", {**sizes, "layer_types": kinds}, layers)


def _lora(config: Any) -> torch.nn.Module:
    from peft import LoraConfig, get_peft_model

    adapters = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.0, target_modules=["q_proj", "v_proj", "up_proj"],
        init_lora_weights=False,
    )  # fmt: skip
    # Float32 adapters are for training.
    adapted: torch.nn.Module = get_peft_model(
        _module("LlamaForCausalLM", config), adapters, autocast_adapter_dtype=False
    )
    return adapted


# Where the classes of transformers are all there is to it.
_LLAMA = partial(_config, "LlamaConfig"), partial(_module, "LlamaForCausalLM")
_QWEN3 = partial(_config, "Qwen3Config"), partial(_module, "Qwen3ForCausalLM")
_MIXTRAL = partial(_config, "MixtralConfig"), partial(_module, "MixtralForCausalLM")
_VIT = partial(_config, "ViTConfig"), partial(_module, "ViTForImageClassification")
_QWEN2 = partial(_config, "Qwen2Config"), partial(_module, "Qwen2ForCausalLM")
_PHI3 = partial(_config, "Phi3Config"), partial(_module, "Phi3ForCausalLM")
_GEMMA2 = partial(_config, "Gemma2Config"), partial(_module, "Gemma2ForCausalLM")
_OLMO2 = partial(_config, "Olmo2Config"), partial(_module, "Olmo2ForCausalLM")
_GEMMA3 = _gemma3_config, partial(_module, "Gemma3ForCausalLM")

_ALL = (
    WholeModel("llama8b", "Llama-3-8B", _BATCHES, 8, 1024, _LLAMA_8B, *_LLAMA),
    WholeModel("qwen3", "Qwen3-8B", _BATCHES, 2, 1024, _QWEN3_8B, *_QWEN3),
    WholeModel("gemma3", "Gemma-3-12B", _BATCHES, 2, 2048, _GEMMA3_12B, *_GEMMA3),
    WholeModel("mixtral", "Mixtral-8x7B", _BATCHES, 2, 1024, _MIXTRAL_8X7B, *_MIXTRAL),
    WholeModel("lora", "Llama-3-8B, LoRA", _BATCHES, 2, 1024, _LLAMA_8B, _LLAMA[0], _lora),
    WholeModel("llama1b", "Llama-3.2-1B", (1,), 16, 256, _LLAMA_1B, *_LLAMA),
    WholeModel("qwen2", "Qwen2.5-7B", _BATCHES, 2, 1024, _QWEN2_7B, *_QWEN2),
    WholeModel("phi4", "Phi-4-mini", _BATCHES, 2, 1024, _PHI4_MINI, *_PHI3),
    WholeModel("gemma2", "Gemma-2-9B", _BATCHES, 2, 1024, _GEMMA2_9B, *_GEMMA2),
    WholeModel("olmo2", "OLMo-2-7B", _BATCHES, 2, 1024, _OLMO2_7B, *_OLMO2),
    WholeModel("vit", "ViT-L/16", _BATCHES, 4, 0, _VIT_L, *_VIT),
)
WHOLE_MODELS = {model.name: model for model in _ALL}


def built(model: WholeModel, layers: int, device: str, *, tiny: bool) -> tuple[Any, Any]:
    """The model for inference, in bfloat16, and its configuration; ``tiny``: in float32."""
    import torch

    sizes = {name: _TINY.get(name, size) for name, size in model.sizes.items()}
    config = model.config(sizes if tiny else model.sizes, layers)
    torch.manual_seed(0)
    with _default_dtype(torch.float32 if tiny else torch.bfloat16), torch.device(device):
        return model.make(config).eval().requires_grad_(False), config


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
