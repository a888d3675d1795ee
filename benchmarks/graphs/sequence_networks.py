"""Networks of sequences: NasRNN, BERT, a layer of Llama with LoRA, latent attention."""

from __future__ import annotations

import torch
from torch import nn

F = nn.functional


class NasRnn(nn.Module):
    """The cell that NAS found for language models, unrolled over ten steps."""

    def __init__(self, width: int = 512, steps: int = 10) -> None:
        super().__init__()
        self.steps = steps
        self.inner = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(8))
        self.outer = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[0])
        acts = (torch.relu, torch.sigmoid)
        for step in range(self.steps):
            pairs = zip(self.inner, self.outer, strict=True)
            sums = [a(x[step]) + b(h) for a, b in pairs]
            tops = [acts[n % 2](s) for n, s in enumerate(sums)]
            first = [torch.tanh(tops[n] * tops[n + 1]) for n in range(0, 8, 2)]
            second = [torch.sigmoid(first[0] + first[1]), torch.tanh(first[2] * first[3])]
            h = torch.tanh(second[0] * second[1])
        return h


class Bert(nn.Module):
    """Encoder layers of BERT with softmax attention, spelled out."""

    def __init__(self, layers: int = 4, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_BertLayer(width, heads) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        seen = F.scaled_dot_product_attention(q, k, v)
        x = self.first(x + self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return self.second(x + self.down(F.gelu(self.up(x))))


class _Adapted(nn.Module):
    """A linear layer with a low-rank adapter beside it, as peft leaves one that is not merged."""

    def __init__(self, inputs: int, outputs: int, rank: int = 16) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False)
        self.down, self.up = (
            nn.Linear(inputs, rank, bias=False),
            nn.Linear(rank, outputs, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x)) * 2.0


class LlamaLora(nn.Module):
    """A decoder layer of Llama-3-8B at one position a sequence, with LoRA on every projection."""

    def __init__(
        self, width: int = 4096, heads: int = 32, groups: int = 8, hidden: int = 14336
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query, self.out = _Adapted(width, width), _Adapted(width, width)
        self.key, self.value = (_Adapted(width, groups * self.size) for _ in range(2))
        self.gate, self.up = _Adapted(width, hidden), _Adapted(width, hidden)
        self.down = _Adapted(hidden, width)
        self.first, self.second = (nn.Parameter(torch.ones(width)) for _ in range(2))

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        h = F.rms_norm(x, (x.shape[-1],)) * self.first
        q = self.query(h).view(-1, self.heads, 1, self.size)
        k = torch.cat([keys, self.key(h).view(-1, self.groups, 1, self.size)], 2)
        v = torch.cat([values, self.value(h).view(-1, self.groups, 1, self.size)], 2)
        seen = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        x = x + self.out(seen.reshape(x.shape))
        h = F.rms_norm(x, (x.shape[-1],)) * self.second
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LatentAttention(nn.Module):
    """Attention with latent keys and values as in DeepSeek, without its rotary part: queries go
    through a low rank, keys and values are expanded from a cache of latents.
    """

    def __init__(
        self, width: int = 2048, heads: int = 16, size: int = 128, latent: int = 512
    ) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.query_down, self.query_up = (
            nn.Linear(width, 768, bias=False),
            nn.Linear(768, heads * size, bias=False),
        )
        self.down = nn.Linear(width, latent, bias=False)
        self.keys, self.values = (nn.Linear(latent, heads * size, bias=False) for _ in range(2))
        self.out = nn.Linear(heads * size, width, bias=False)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        latent = torch.cat([cache, self.down(x)], 1)

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, -1, self.heads, self.size).transpose(1, 2)

        q = split(self.query_up(self.query_down(x)))
        k, v = split(self.keys(latent)), split(self.values(latent))
        scores = (q @ k.transpose(2, 3)) * self.size**-0.5
        seen = scores.softmax(-1) @ v
        return self.out(seen.transpose(1, 2).reshape(batch, -1, self.heads * self.size))
