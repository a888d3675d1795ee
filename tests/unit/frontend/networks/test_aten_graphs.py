"""ATen graphs as operator graphs and back: values, strides, memory, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.networks.aten_emit import emitted_network
from mirage_py.frontend.networks.aten_import import imported_network

F = torch.nn.functional


def aten(fn: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    module = make_fx(fn, tracing_mode="fake")(*inputs)
    assert isinstance(module, torch.fx.GraphModule)
    return module


def operators(fn: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    return [n.operator for n in imported_network(aten(fn, *inputs)).graph.nodes]


def there_and_back(fn: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    """The function imported and emitted again; values and strides are compared."""
    module = aten(fn, *inputs)
    again = _emitted(module)
    for one, other in zip(_flat(fn(*inputs)), _flat(again(*inputs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        assert one.stride() == other.stride()
    return again


def _flat(results: Any) -> list[torch.Tensor]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


X = torch.arange(2.0 * 4 * 6 * 6).reshape(2, 4, 6, 6) / 100
M = torch.arange(24.0).reshape(4, 6) / 10
W = torch.arange(3.0 * 4 * 3 * 3).reshape(3, 4, 3, 3) / 50
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "bias": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (X, W, torch.ones(3))),
    "stride": (lambda x, w: F.conv2d(x, w, stride=2, dilation=2), (X, W)),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), (X, torch.ones(6, 2, 3, 3))),
    "turned": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (X, torch.ones(4, 2, 3, 3))),
    "norm": (
        lambda x, m, v, g, b: F.batch_norm(x, m, v, g, b, eps=1e-3),
        (X, *(torch.full((4,), n) for n in (1.0, 2.0, 3.0, 4.0))),
    ),
    "pools": (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
            F.adaptive_avg_pool2d(x, 2),
        ),
        (X,),
    ),
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (M, torch.ones(5, 6), torch.ones(5))),
    "numbers": (lambda x: (x + 2) * 3 - x / 4 + (1 - x), (M,)),
    "pieces": (lambda x: torch.cat([*x.chunk(4, 1)[::-1], x[:, 1:3]], 1) * 1.0, (M,)),
    "views": (lambda x: (x.view(2, 2, 6).transpose(0, 1) + x[0]).flatten(1).sum(0), (M,)),
    "softmax": (lambda x: x.softmax(-1).mean(1, keepdim=True), (M,)),
    "lasting": (lambda x: F.relu(x) + 1, (X.to(memory_format=torch.channels_last),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_strides_stay(name: str):
    fn, inputs = FUNCTIONS[name]
    assert "opaque" not in operators(fn, *inputs)
    there_and_back(fn, *inputs)


def test_what_is_not_known_stays_as_it_is():
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.sort(torch.relu(x))
        return values + 1, torch.gather(x, 1, places)

    again = there_and_back(fn, M.sin())
    assert [str(n.target) for n in again.graph.nodes].count("aten.sort.default") == 1


def test_attention_is_random_with_dropout_only():
    q = torch.ones(1, 2, 4, 8)
    there_and_back(lambda x: F.scaled_dot_product_attention(x, x, x) + 1, q)
    module = aten(lambda x: torch.ops.aten.scaled_dot_product_attention(x, x, x), q)
    (attention,) = [n for n in module.graph.nodes if "attention" in str(n.target)]
    attention.kwargs = {"dropout_p": 0.5}
    with pytest.raises(UnsupportedError, match="random"):
        imported_network(module)


def test_equal_computations_are_one():
    again = there_and_back(lambda x: (torch.sin(x * 2) + torch.sin(x * 2), x), M)
    called = [str(n.target) for n in again.graph.nodes if n.op == "call_function"]
    assert called.count("aten.sin.default") == 1


def test_what_nobody_reads_is_left_out():
    assert operators(lambda x: (torch.relu(x), x @ x.t())[0], M) == ["relu"]


def test_outputs_share_no_memory_that_they_did_not_share():
    """One value for two results, or a result that is an input after all, is a copy."""
    again = there_and_back(lambda x: (x * 1.5, x * 1.5, x.clone()), M)
    one, other, copy = again(M)
    assert len({t.untyped_storage().data_ptr() for t in (one, other, copy, M)}) == 4


def test_a_view_of_an_input_stays_one():
    again = there_and_back(lambda x: (x[1:, 2:], x.t(), x * 2), M)
    row, turned, made = again(M)
    home = M.untyped_storage().data_ptr()
    assert row.untyped_storage().data_ptr() == turned.untyped_storage().data_ptr() == home
    assert made.untyped_storage().data_ptr() != home


def _emitted(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    network = imported_network(module)
    return emitted_network(network, network.graph, module, {})


def _with_a_part(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    return y, y[0]


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: x.mul_(2), "writes"),
        (lambda x: x * torch.rand(6), "random"),
        (_with_a_part, "share memory"),
        (lambda x: x[:0] * 2, "empty"),
    ],
)
def test_what_is_refused_says_why(fn: Callable[..., Any], why: str):
    module = aten(fn, M.clone())
    with pytest.raises(UnsupportedError, match=why):
        _emitted(module)


def test_sizes_that_change_are_refused():
    module = make_fx(torch.relu, tracing_mode="symbolic")(M)
    with pytest.raises(UnsupportedError, match="change from call to call"):
        imported_network(module)


def test_gradients_go_through_what_is_emitted():
    again = there_and_back(lambda x: torch.relu(x - 1) @ x.t(), M)
    one, other = (M.clone().requires_grad_() for _ in range(2))
    (torch.relu(one - 1) @ one.t()).sum().backward()
    again(other).sum().backward()
    torch.testing.assert_close(one.grad, other.grad)


def test_weights_are_folded_once_in_float64_and_lie_as_before():
    weight = W.to(memory_format=torch.channels_last)
    module = aten(lambda x, w: F.conv2d(x, w * 3), X, weight)
    (name,) = [n.name for n in module.graph.find_nodes(op="placeholder")][1:]
    network = imported_network(module, {name: None})
    again = emitted_network(network, network.graph, module, {name: weight})
    called = [str(n.target) for n in again.graph.nodes if n.op == "call_function"]
    assert called == ["aten.convolution.default"]
    (held,) = again.buffers() if list(again.buffers()) else [again._tensor_constant0]
    assert held.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(again(X, weight), F.conv2d(X, weight * 3))


@pytest.mark.parametrize("is_linear", [True, False])
def test_folded_weights_of_linear_layers_keep_their_columns_in_rows(is_linear):
    def joined(x, a, b):
        return x @ torch.cat([a.t(), b.t()] if is_linear else [a, b], 1)

    x, *weights = torch.randn(1, 6), torch.randn(6, 6), torch.randn(6, 6)
    module = aten(joined, x, *weights)
    names = [n.name for n in module.graph.find_nodes(op="placeholder")][1:]
    network = imported_network(module, dict.fromkeys(names))
    held = dict(zip(names, weights, strict=True))
    again = emitted_network(network, network.graph, module, held)
    weight = again._tensor_constant0
    assert weight.shape == (6, 12)
    assert (weight.mT if is_linear else weight).is_contiguous()
    torch.testing.assert_close(again(x, *weights), joined(x, *weights))
