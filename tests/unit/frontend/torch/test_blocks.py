"""Layers as people write them, with parameters and with helpers."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirage_py.frontend.spec import parse_file
from mirage_py.frontend.torch import trace


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (a.view(batch, length, self.heads, -1).transpose(1, 2) for a in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    """One block of a vision transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def test_transformer_block(agrees):
    torch.manual_seed(4)
    block = Block(12, 3).eval()
    traced = agrees(block, torch.randn(2, 5, 12), single=True)
    names = [t.name for t in traced.program.inputs]
    assert names[0] == "x"
    assert "attention_qkv_weight" in names
    assert len(names) == 1 + len(list(block.parameters()))


def test_block_in_double(agrees):
    torch.manual_seed(4)
    block = Block(12, 3).eval()
    parameters = dict(block.named_parameters())

    def fn(x, parameters):
        return torch.func.functional_call(block, parameters, (x,))

    traced = agrees(fn, torch.randn(1, 5, 12), parameters)
    assert "parameters_mlp_3_bias" in [t.name for t in traced.program.inputs]


def test_written_out_attention(agrees):
    def fn(x, wq, wk, wv, wo):
        b, s, d = x.shape
        q = (x @ wq).view(b, s, 4, 3).permute(0, 2, 1, 3)
        k = (x @ wk).view(b, s, 2, 3).permute(0, 2, 3, 1).repeat_interleave(2, 1)
        v = (x @ wv).view(b, s, 2, 3).transpose(1, 2).repeat_interleave(2, 1)
        p = torch.softmax((q @ k) / 3**0.5, dim=-1)
        return (p @ v).transpose(1, 2).reshape(b, s, d) @ wo

    shapes = [(2, 5, 12), (12, 12), (12, 6), (12, 6), (12, 12)]
    agrees(fn, *(torch.randn(s) for s in shapes))


def test_gated_mlp(agrees):
    def fn(x, gate, up, down):
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    agrees(fn, torch.randn(3, 5), torch.randn(9, 5), torch.randn(9, 5), torch.randn(5, 9))


def test_a_block_without_gradients(agrees):
    def fn(x):
        with torch.no_grad():
            y = x * 2
        return y + torch.relu(x)

    agrees(fn, torch.randn(3, 5))


def test_lora(agrees):
    agrees(
        lambda x, w, a, b: x @ w + (x @ a) @ b * 0.5,
        *(torch.randn(s) for s in [(7, 6), (6, 5), (6, 2), (2, 5)]),
    )


def test_normalised_transformer(agrees):
    """nGPT's update: a step towards the block's output on the sphere."""

    def unit(x):
        return x / x.norm(dim=-1, keepdim=True)

    agrees(
        lambda x, h, a: unit(x + a * (unit(h) - x)),
        torch.randn(3, 8),
        torch.randn(3, 8),
        torch.rand(8),
    )


def test_layer_norm_and_linear(agrees):
    agrees(
        lambda x, g, b, w: F.linear(F.layer_norm(x, (6,), g, b), w),
        *(torch.randn(s) for s in [(2, 3, 6), (6,), (6,), (4, 6)]),
    )


EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_the_examples(path):
    """The torch functions of the examples, at their own sizes, have the signature of the specs."""
    example = runpy.run_path(str(path))
    program = trace(example[path.stem], *example["example_inputs"]("meta"))
    spec = parse_file(path.with_suffix(".math"))
    assert program.name == path.stem
    assert [(t.shape, t.dtype) for t in program.inputs] == [(t.shape, t.dtype) for t in spec.inputs]
    assert [o.tensor.shape for o in program.outputs] == [o.tensor.shape for o in spec.outputs]
    ours, theirs = ([n.op for n in p.nodes] for p in (program, spec))
    assert ours.count("matmul") == theirs.count("matmul")


@pytest.mark.parametrize(("layer", "gates"), [(torch.rnn_tanh, 1), (torch.gru, 3)])
def test_a_recurrent_layer_of_a_few_steps_is_written_out(agrees, layer, gates):
    agrees(
        lambda x, h, *weights: layer(x, h, weights, False, 1, 0.0, False, False, False)[0],
        torch.randn(3, 2, 4),
        torch.randn(1, 2, 3),
        torch.randn(3 * gates, 4),
        torch.randn(3 * gates, 3),
    )
