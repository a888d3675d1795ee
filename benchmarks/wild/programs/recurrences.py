"""State-space models, linear recurrences and their steps; LSTM and GRU cells."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_STEP = {"B": (2, 64), "D": (8, 5120), "N": (4, 16)}
_GATES = {"B": (3, 64), "D": (8, 1024)}


@wild("state[B,D,N]:f32 x[B,D] dt[B,D] a[D,N] b[B,N] c[B,N] skip[D] z[B,D]", **_STEP)
def selective_step(
    state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor, z: Tensor
) -> Tensor:
    dt = F.softplus(dt)
    decay = torch.exp(dt[..., None] * -torch.exp(a.float()))
    state.copy_(state * decay + (dt * x)[..., None] * b[:, None, :])
    y = torch.einsum("bdn,bn->bd", state.to(x.dtype), c)
    return (y + skip * x) * F.silu(z)


@wild("x[B,T,D] a[B,T,D]:unit", B=(2, 4), T=(8, 32), D=(8, 2048))
def scan_by_loop(x: Tensor, a: Tensor) -> Tensor:
    h = torch.zeros_like(x[:, 0])
    found = []
    for t in range(x.shape[1]):
        h = a[:, t] * h + x[:, t]
        found.append(h)
    return torch.stack(found, 1)


@wild("log_a[B,H,T] x[B,H,T,E] b[B,H,T,N] c[B,H,T,N]",
      B=(1, 2), H=(2, 32), T=(8, 256), E=(4, 64), N=(4, 128))  # fmt: skip
def chunk_state_space(log_a: Tensor, x: Tensor, b: Tensor, c: Tensor) -> Tensor:
    total = torch.cumsum(-log_a.abs(), dim=-1)
    decay = total[..., :, None] - total[..., None, :]
    mask = torch.tril(torch.ones(decay.shape[-2:], dtype=torch.bool, device=x.device))
    decay = torch.exp(decay.masked_fill(~mask, -torch.inf))
    return (c @ b.mT * decay) @ x


@wild("x[B,D] cache[B,D,K] w[D,K] b[D]", B=(2, 64), D=(8, 5120), K=(4, 4))
def conv_state_update(x: Tensor, cache: Tensor, w: Tensor, b: Tensor) -> Tensor:
    cache.copy_(torch.roll(cache, shifts=-1, dims=-1))
    cache[:, :, -1] = x
    return F.silu(torch.sum(cache * w, dim=-1) + b)


@wild("x[B,T,D] w[D,1,K] b[D]", B=(2, 2), T=(8, 2048), D=(8, 4096), K=(4, 4))
def short_convolution(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    length = x.shape[1]
    y = F.conv1d(x.transpose(1, 2), w, b, padding=w.shape[-1] - 1, groups=w.shape[0])
    return F.silu(y[..., :length]).transpose(1, 2)


@wild("x[B,T,D] mix[D]:unit wr[D,D] wk[D,D]", B=(2, 2), T=(8, 1024), D=(8, 2048))
def token_shift_mix(x: Tensor, mix: Tensor, wr: Tensor, wk: Tensor) -> Tensor:
    before = F.pad(x, (0, 0, 1, -1))
    mixed = x * mix + before * (1 - mix)
    return torch.sigmoid(mixed @ wr) * torch.square(torch.relu(mixed @ wk))


@wild("q[B,H,T,E] k[B,H,T,E] v[B,H,T,E] gamma[H]:unit",
      B=(1, 2), H=(2, 16), T=(8, 1024), E=(4, 128))  # fmt: skip
def retention(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor) -> Tensor:
    place = torch.arange(q.shape[2], device=q.device)
    distance = (place[:, None] - place[None, :]).float()
    decay = torch.exp(distance * torch.log(gamma.float() * 0.5 + 0.25)[:, None, None])
    decay = torch.where(distance >= 0, decay, 0.0).to(q.dtype)
    return (q @ k.mT * decay) @ v


@wild("state[B,H,E,E]:f32 q[B,H,E] k[B,H,E] v[B,H,E] beta[B,H] g[B,H]",
      B=(2, 16), H=(2, 32), E=(4, 128))  # fmt: skip
def gated_delta_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor
) -> tuple[Tensor, Tensor]:
    k = F.normalize(k.float(), dim=-1)
    state = state * torch.exp(-F.softplus(g.float()))[..., None, None]
    seen = (state * k[..., None]).sum(-2)
    delta = (v - seen) * beta.sigmoid()[..., None]
    state = state + k[..., None] * delta[..., None, :]
    return (state * q.float()[..., None]).sum(-2).to(q.dtype), state


@wild("x[B,D] h[B,D] c[B,D] wi[G,D] wh[G,D] b[G]", **_GATES, G=(32, 4096))
def lstm_cell(
    x: Tensor, h: Tensor, c: Tensor, wi: Tensor, wh: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    i, f, g, o = (F.linear(x, wi, b) + F.linear(h, wh)).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@wild("x[B,D] h[B,D] wi[G,D] wh[G,D]", **_GATES, G=(24, 3072))
def gru_cell(x: Tensor, h: Tensor, wi: Tensor, wh: Tensor) -> Tensor:
    xr, xz, xn = F.linear(x, wi).chunk(3, 1)
    hr, hz, hn = F.linear(h, wh).chunk(3, 1)
    z = torch.sigmoid(xz + hz)
    return (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h


@wild("h[B,T,D] z[B,T,D]", B=(2, 4), T=(8, 1024), D=(8, 1024))
def parallel_min_gru(h: Tensor, z: Tensor) -> Tensor:
    log_a = torch.cumsum(-F.softplus(z), dim=1)
    log_x = -F.softplus(-z) + torch.where(h >= 0, (F.relu(h) + 0.5).log(), -F.softplus(-h))
    return torch.exp(log_a + torch.logcumsumexp(log_x - log_a, dim=1))


@wild("h[B,D] x[B,D] a[D] wr[D,D] wi[D,D]", **_GATES)
def gated_linear_unit_step(h: Tensor, x: Tensor, a: Tensor, wr: Tensor, wi: Tensor) -> Tensor:
    log_a = -8.0 * torch.sigmoid(x @ wr) * F.softplus(a)
    scale = torch.sqrt(1 - torch.exp(2 * log_a) + 1e-6)
    return torch.exp(log_a) * h + scale * torch.sigmoid(x @ wi) * x


@wild("x[B,T,H,P] a[B,T,H] b[B,T,H,N] c[B,T,H,N] L",
      B=(1, 1), T=(8, 1024), H=(2, 24), P=(4, 64), N=(4, 64), L=(4, 128))  # fmt: skip
def state_space_chunks(x: Tensor, a: Tensor, b: Tensor, c: Tensor, length: int) -> Tensor:
    x, b, c = (t.unflatten(1, (-1, length)) for t in (x, b, c))
    total = -F.softplus(a).unflatten(1, (-1, length)).permute(0, 3, 1, 2).cumsum(-1)
    seen = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~seen, -torch.inf).exp()
    return torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, decay, x).flatten(1, 2)


@wild("u[B,S,S]:unit v[B,S,S]:unit", B=(1, 4), S=(6, 512))
def reaction_diffusion(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    def laplace(x: Tensor) -> Tensor:
        near = x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2)
        far = x.roll((1, 1), (-2, -1)) + x.roll((-1, -1), (-2, -1))
        return 0.2 * near + 0.1 * far - x

    r = u * v * v
    return u + 0.16 * laplace(u) - r + 0.035 * (1 - u), v + 0.08 * laplace(v) + r - 0.1 * v
