"""Products of matrices as kernels in an ATen graph: what they take in, and that values stay."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.dynamo.networks.convolution_kernels import with_kernels
from mirage_py.dynamo.networks.product_kernels import product_matches
from mirage_py.search.networks.convolutions.tiles import ranked_tiles
from mirage_py.targets import target

F = torch.nn.functional
H200 = target("h200")


def _weights(*shape: int) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return (torch.randn(*shape) / 4).to(torch.bfloat16)


_IN, _UP, _DOWN = _weights(16, 48), _weights(64, 16), _weights(32, 64)
_VECTOR, _LAST = _weights(64), _weights(32, 32)


def _network(x: torch.Tensor) -> torch.Tensor:
    """A piece of a product is the operand of one with a vector and a GELU; a residual sum behind a
    view; a relu; a product that is read twice, by a weight that is seen through a transpose.
    """
    pieces = (x.view(-1, 16) @ _IN).split([16, 32], 1)
    up = F.gelu(F.linear(pieces[0], _UP, _VECTOR))
    down = x.repeat(1, 1, 2) + F.linear(up, _DOWN).view(2, 5, 32)
    last = down.view(-1, 32) @ _LAST
    return F.relu(last) * last


def test_what_is_around_a_product_is_in_its_kernel() -> None:
    x = _weights(2, 5, 16)
    module = make_fx(_network, tracing_mode="fake", _allow_non_fake_inputs=True)(x)
    found = product_matches(module, {})
    first, up, down, last = (m.spec for m in found)
    assert all(m.spec.is_matmul and m.spec.places == 10 for m in found)
    assert first.is_bare
    assert (up.pitch, up.offset, up.has_bias, up.gelu_after) == (48, 0, True, True)
    assert (down.has_residual, down.relu_after, down.has_bias) == (True, False, False)
    assert last.is_bare  # it is read as it is, too
    plans = {m.spec: ranked_tiles(m.spec, H200, 1)[0] for m in found}
    want = module(x)
    assert with_kernels(module, found, plans) == 4
    got = module(x)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.1)
    assert got.stride() == want.stride()
    left = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    assert not {"aten.mm.default", "aten.addmm.default", "aten.gelu.default"} & {*left}
    assert "aten.add.Tensor" not in left


def test_one_row_and_weights_that_change_are_left() -> None:
    x, w = _weights(1, 16), _weights(16, 48)
    alone = make_fx(lambda x: x @ _IN, tracing_mode="fake", _allow_non_fake_inputs=True)(x)
    assert not product_matches(alone, {})
    changing = make_fx(lambda x, w: x @ w, tracing_mode="fake")(_weights(4, 16), w)
    assert not product_matches(changing, {})
    assert len(product_matches(changing, {"w_1": w})) == 1
    turned = make_fx(lambda x: x.t() @ _IN, tracing_mode="fake", _allow_non_fake_inputs=True)
    assert not product_matches(turned(_weights(16, 4)), {})
