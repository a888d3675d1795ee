from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_softmax(agrees, x, dim):
    agrees(lambda a: (F.softmax(a, dim), a.softmax(dim) * 2, F.log_softmax(a, dim)), x)


def test_log_softmax_survives_large_logits(agrees, x):
    agrees(lambda a: F.log_softmax(a, -1), x * 1e4)


def test_softmax_in_another_type(agrees, x):
    agrees(lambda a: F.softmax(a, -1, dtype=torch.float32), x.half(), single=True)


def test_rms_norm(agrees, x):
    def fn(a, g, h):
        return (
            F.rms_norm(a, (7,), g, 1e-3),
            F.rms_norm(a, (5, 7), h),
            F.rms_norm(a, a.shape, eps=0.1),
        )

    agrees(fn, x, torch.randn(7), torch.randn(5, 7), single=True)


def test_the_default_epsilon_is_that_of_torch():
    from mirage_py.frontend.torch import trace

    # A row so small that the epsilon decides.
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        a = torch.full((1, 8), 2.0**-12, dtype=kind)
        want = F.rms_norm(a, (8,)).float()
        program = trace(lambda a: F.rms_norm(a, (8,)), a)
        (eps,) = (n.attr for n in program.nodes if n.op == "const")
        torch.testing.assert_close(
            a.float() / (a.float().square().mean() + eps).sqrt(), want, rtol=1e-2, atol=1e-4
        )


def test_layer_norm(agrees, x):
    def fn(a, g, b):
        return F.layer_norm(a, (7,), g, b), F.layer_norm(a, (7,)), F.layer_norm(a, (5, 7), eps=0.1)

    agrees(fn, x, torch.randn(7), torch.randn(7))


def test_group_norm(agrees):
    agrees(lambda a, g: F.group_norm(a, 2, g), torch.randn(3, 4, 5), torch.randn(4))


def test_written_out(agrees, x):
    def fn(a, g):
        h = a.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (h * g).to(a.dtype)

    traced = agrees(fn, x.half(), torch.randn(7).half(), single=True)
    assert "cast" not in [n.op for n in traced.program.nodes]
    assert str(traced.program.outputs[0].tensor.dtype) == "f16"


def test_written_out_softmax(agrees, x):
    def fn(a):
        e = torch.exp(a - a.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    agrees(fn, x)
