"""The models of the graph benchmark with their inputs, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.graphs import image_networks as images
from benchmarks.graphs import sequence_networks as sequences
from benchmarks.graphs.blocks import draw_statistics

BATCHES = (1, 16)


@dataclass(frozen=True, slots=True)
class Model:
    """``shapes`` of the inputs for a batch."""

    make: Callable[[], nn.Module]
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]


MODELS = {
    "resnet50": Model(images.resnet50, lambda n: ((n, 3, 224, 224),)),
    "resnext50": Model(images.resnext50, lambda n: ((n, 3, 224, 224),)),
    "nasnet_a": Model(images.NasNetA, lambda n: ((n, 3, 224, 224),)),
    "inception_v3": Model(images.inception_v3, lambda n: ((n, 3, 299, 299),)),
    "nas_rnn": Model(sequences.NasRnn, lambda n: ((10, n, 512),)),
    "csrnet": Model(images.csrnet, lambda n: ((n, 3, 512, 512),)),
    "resnet3d18": Model(images.resnet3d18, lambda n: ((n, 3, 16, 112, 112),)),
    "bert": Model(sequences.Bert, lambda n: ((n, 128, 768),)),
    "llama_lora": Model(
        sequences.LlamaLora, lambda n: ((n, 1, 4096), (n, 8, 1023, 128), (n, 8, 1023, 128))
    ),
    "latent_attention": Model(sequences.LatentAttention, lambda n: ((n, 1, 2048), (n, 1023, 512))),
}

# Two convolutions of one operand and a product: what runs through all of it in seconds.
REHEARSAL = "rehearsal"
_REHEARSAL = Model(images.rehearsal, lambda n: ((n, 3, 12, 12),))


def model_at(
    name: str, batch: int, device: torch.device | str
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model in bf16 for inference with its inputs, images with channels last; equal on every
    machine. On the device ``meta`` nothing has data.
    """
    torch.manual_seed(0)
    entry = _REHEARSAL if name == REHEARSAL else MODELS[name]
    with torch.device(device):
        model = draw_statistics(entry.make().eval()).to(torch.bfloat16)
        inputs = tuple(torch.randn(shape).to(torch.bfloat16) for shape in entry.shapes(batch))
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    rank = inputs[0].dim()
    if rank in layouts:
        model = model.to(memory_format=layouts[rank])
        inputs = tuple(x.contiguous(memory_format=layouts[rank]) for x in inputs)
    return model.requires_grad_(False), inputs
