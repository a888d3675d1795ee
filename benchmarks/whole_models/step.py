"""One step of a model, again and again from the same state: a token with a cache, or images.

Every candidate has a cache of its own, with the same contents, and is rewound before each round:
all of them see the same context, and none runs out of its cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.whole_models.zoo import MARGIN, WholeModel

Function = Callable[..., torch.Tensor]


def cache_name() -> str:
    """What models of transformers call their cache: past_key_values up to version 5.23."""
    from transformers import LlamaForCausalLM

    known = inspect.signature(LlamaForCausalLM.forward).parameters
    return "cache" if "cache" in known else "past_key_values"


def step_function(module: Any) -> Function:
    """What is compiled: from a token and a cache, or from images, to logits."""
    name = cache_name()

    def token_step(ids: torch.Tensor, cache: Any) -> torch.Tensor:
        given = {name: cache}
        found: torch.Tensor = module(
            input_ids=ids, use_cache=True, logits_to_keep=1, **given
        ).logits
        return found

    def image_step(pixels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = module(pixel_values=pixels).logits
        return found

    return image_step if module.main_input_name == "pixel_values" else token_step


class Steps:
    """``function`` on inputs of ``model``, which are the same for every candidate.

    The cache is filled by the model itself, as in eager, to ``MARGIN`` below the context.
    """

    def __init__(
        self, model: WholeModel, module: Any, config: Any, batch: int, function: Function
    ) -> None:
        self._function = function
        self._module, self._config = module, config
        self._state: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._lengths: list[tuple[Any, int]] = []
        weight = next(module.parameters())
        random = torch.Generator(weight.device).manual_seed(1)
        if not model.context:
            pixels = torch.randn(
                (batch, config.num_channels, config.image_size, config.image_size),
                generator=random,
                device=weight.device,
                dtype=weight.dtype,
            )
            self._inputs: tuple[Any, ...] = (pixels,)
            return
        from transformers import StaticCache

        shape = (batch, model.context - MARGIN + 1)
        ids = torch.randint(config.vocab_size, shape, generator=random, device=weight.device)
        cache: Any = StaticCache(config=config, max_cache_len=model.context)
        given = {cache_name(): cache}
        module(input_ids=ids[:, :-1], use_cache=True, logits_to_keep=1, **given)
        self._inputs = (ids[:, -1:].contiguous(), cache)
        for layer in cache.layers:
            held = (layer.keys, layer.values, layer.cumulative_length)
            self._state += [(tensor, tensor.clone()) for tensor in held]
            if layer.is_sliding:
                self._lengths.append((layer, layer.cumulative_length_int))

    @property
    def read_bytes(self) -> int | None:
        """What a step of a token reads at least: weights, of the embedding a row, and the cache.
        None where it depends on data, as which experts do.
        """
        module, config = self._module, self._config
        if not self._state or getattr(config, "num_local_experts", 0):
            return None
        weights = sum(p.numel() * p.element_size() for p in module.parameters())
        embedding = module.get_input_embeddings().weight
        if module.get_output_embeddings().weight is not embedding:
            weights -= embedding.numel() * embedding.element_size()
        return weights + sum(t.numel() * t.element_size() for t, _ in self._state)

    def to_float32(self) -> None:
        """From now on with inputs and a cache of float32, which hold the same numbers."""
        self._inputs = tuple(_in_float32(value) for value in self._inputs)
        self._state = []
        for layer in getattr(self._inputs[-1], "layers", ()):
            layer.keys, layer.values = layer.keys.float(), layer.values.float()
            held = (layer.keys, layer.values, layer.cumulative_length)
            self._state += [(tensor, tensor.clone()) for tensor in held]

    def rewind(self) -> None:
        """Back to the state that the prompt left; the tensors stay where they are."""
        for tensor, kept in self._state:
            tensor.copy_(kept)

    def __call__(self) -> torch.Tensor:
        """The logits of the next token, or of the images; the next call may overwrite them."""
        # A window's cache counts in Python. Compiled code is for one number: it would be compiled
        # again, and captured again, for every token.
        for layer, length in self._lengths:
            layer.cumulative_length_int = length
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._function(*self._inputs)


def _in_float32(value: Any) -> Any:
    is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.float() if is_real else value
