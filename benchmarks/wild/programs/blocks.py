"""Whole blocks of language models, embeddings, adapters, pooling of sentences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_ROWS = {"B": (2, 2), "T": (8, 1024), "D": (16, 2048)}


def _norm(x: Tensor, g: Tensor) -> Tensor:
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * g


@wild("x[B,T,D] g[D] w1[D,F] w2[D,F] w3[F,D]", **_ROWS, F=(32, 8192))
def llama_mlp_block(x: Tensor, g: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    h = _norm(x, g)
    return x + (F.silu(h @ w1) * (h @ w2)) @ w3


@wild("x[B,T,D] g[D] w[D,E] wo[D,D] cos[T,K] sin[T,K] H",
      **_ROWS, E=(48, 6144), K=(4, 64), H=(4, 32))  # fmt: skip
def llama_attention_block(
    x: Tensor, g: Tensor, w: Tensor, wo: Tensor, cos: Tensor, sin: Tensor, heads: int
) -> Tensor:
    batch, length, width = x.shape
    qkv = (_norm(x, g) @ w).view(batch, length, 3, heads, -1)
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))

    def turn(t: Tensor) -> Tensor:
        a, b = t.chunk(2, -1)
        return t * cos + torch.cat((-b, a), -1) * sin

    out = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
    return x + out.transpose(1, 2).reshape(batch, length, width) @ wo


@wild("x[B,T,D] g[D] b[D] w1[D,F] w2[F,D] a[B,T,D]", **_ROWS, F=(32, 8192))
def parallel_block(x: Tensor, g: Tensor, b: Tensor, w1: Tensor, w2: Tensor, a: Tensor) -> Tensor:
    h = F.layer_norm(x, (x.shape[-1],), g, b)
    return x + a + F.gelu(h @ w1, approximate="tanh") @ w2


@wild("x[B,T,D] w1[F,D] b1[F] w2[D,F] b2[D] g[D] b[D]",
      B=(2, 32), T=(8, 512), D=(16, 768), F=(32, 3072))  # fmt: skip
def bert_output_block(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, g: Tensor, b: Tensor
) -> Tensor:
    h = F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)
    return F.layer_norm(F.dropout(h, 0.1, training=False) + x, g.shape, g, b, 1e-12)


@wild("ids[B,T]:int<V> kind[B,T]:int<2> words[V,D] kinds[2,D] places[T,D] g[D] b[D]",
      B=(2, 32), T=(8, 512), V=(30, 30522), D=(16, 768))  # fmt: skip
def bert_embeddings(
    ids: Tensor, kind: Tensor, words: Tensor, kinds: Tensor, places: Tensor, g: Tensor, b: Tensor
) -> Tensor:
    x = F.embedding(ids, words, padding_idx=0) + kinds[kind] + places[: ids.shape[1]]
    return F.layer_norm(x, g.shape, g, b, 1e-12)


@wild("ids[B,T]:int<V> words[V,D] g[D]", **_ROWS, V=(30, 256000))
def scaled_embeddings(ids: Tensor, words: Tensor, g: Tensor) -> Tensor:
    x = F.embedding(ids, words) * torch.tensor(words.shape[1] ** 0.5, dtype=words.dtype)
    return _norm(x, 1 + g)


@wild("x[B,T,D] g[D] w[V,D]", B=(2, 16), T=(8, 256), D=(16, 4096), V=(40, 128256))
def last_token_head(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    logits = F.linear(_norm(x[:, -1:, :], g), w).float()
    return torch.tanh(logits / 30.0) * 30.0


@wild("x[B,T,D] mask[B,T]:bool", B=(2, 64), T=(8, 512), D=(16, 768))
def mean_pooling(x: Tensor, mask: Tensor) -> Tensor:
    m = mask.unsqueeze(-1).expand(x.size()).float()
    return F.normalize(torch.sum(x * m, 1) / torch.clamp(m.sum(1), min=1e-9), p=2, dim=1)


@wild("x[B,T,D] mask[B,T]:bool", B=(2, 64), T=(8, 512), D=(16, 768))
def last_token_pooling(x: Tensor, mask: Tensor) -> Tensor:
    last = mask.sum(dim=1) - 1
    return x[torch.arange(x.shape[0], device=x.device), last]


@wild("x[B,T,D] mask[B,T]:bool w[D]", B=(2, 64), T=(8, 512), D=(16, 768))
def weighted_pooling(x: Tensor, mask: Tensor, w: Tensor) -> Tensor:
    score = (x @ w).masked_fill(mask == 0, -1e4)
    return torch.bmm(score.softmax(1).unsqueeze(1), x).squeeze(1)


@wild("x[B,T,D] w[D,D] b[D]", B=(2, 64), T=(8, 512), D=(16, 768))
def class_pooler(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(F.linear(x[:, 0], w, b))


@wild("x[B,T,D] w[D,D] a[R,D] b[D,R]", **_ROWS, R=(2, 16))
def lora_linear(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w) + F.linear(F.linear(x, a), b) * 2.0


@wild("x[B,T,D] w[F,D] a[R,D] b[F,R] m[F]", **_ROWS, F=(8, 2048), R=(2, 16))
def dora_linear(x: Tensor, w: Tensor, a: Tensor, b: Tensor, m: Tensor) -> Tensor:
    full = w + b @ a
    return F.linear(x, full * (m / full.norm(dim=1))[:, None])


@wild("x[B,T,D] g[D] down[D,R] up[R,D]", **_ROWS, R=(4, 64))
def bottleneck_adapter(x: Tensor, g: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return x + F.relu(F.layer_norm(x, g.shape, g) @ down) @ up


@wild("p[N] grad[N] m[N] v[N]:positive", N=(32, 4194304))
def adam_step(p: Tensor, grad: Tensor, m: Tensor, v: Tensor) -> None:
    p.mul_(1 - 1e-3 * 0.1)
    m.lerp_(grad, 0.1)
    v.mul_(0.95).addcmul_(grad, grad, value=0.05)
    p.addcdiv_(m / 0.1, (v / 0.05).sqrt().add_(1e-8), value=-1e-3)


@wild("mean[N] x[N]", N=(32, 4194304))
def moving_average(mean: Tensor, x: Tensor) -> Tensor:
    mean.mul_(0.999).add_(x, alpha=0.001)
    return mean


@wild("a[N] b[N]", N=(32, 4194304))
def clipped_gradients(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = torch.stack([a.norm(), b.norm()]).norm()
    scale = torch.clamp(1.0 / (total + 1e-6), max=1.0)
    return a * scale, b * scale


@wild("g[M,N]", M=(8, 1024), N=(8, 1024))
def newton_schulz(g: Tensor) -> Tensor:
    size: Tensor = g.norm()
    x = g / (size + 1e-7)
    for _ in range(2):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x
