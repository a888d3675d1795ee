"""One pass over an exported graph gives what ExportedProgram.run_decompositions gives in two."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.export import ExportedProgram

from mirage_py.frontend.torch.capture.functional_graph import Decompositions, functional_graph
from mirage_py.frontend.torch.handlers import HANDLERS
from mirage_py.frontend.torch.trace import trace

X, Y = torch.randn(4, 6), torch.randn(4, 6)
DECOMPOSITIONS = Decompositions(HANDLERS.__contains__)


class _Module(torch.nn.Module):
    def __init__(self, fn: Callable[..., tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        self._fn = fn
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x, y):
        return self._fn(x, y * self.scale)


def writes(x, y):
    x.add_(1.0)
    x[:, 2:].mul_(y[:, 2:])
    return x, x.t() @ y, y


def writes_to_views(x, y):
    row = x.view(2, 2, 6)[1]
    row.copy_(y[:2].exp_())
    return x.sum(), row


def views_of_views(x, y):
    return x.mT, torch.cdist(x, y), torch.chunk(x.narrow(1, 0, 4) + 1, 2, dim=1)[0]


def of_losses(x, y):
    return F.smooth_l1_loss(x, y), F.hardsigmoid(x), torch.logaddexp(x, y)


def whole(x, y):
    attended = F.scaled_dot_product_attention(x[None], y[None], y[None])
    return F.gelu(attended.logit()), F.softmax(x, -1, dtype=torch.float64)


def _spelled(graph: torch.fx.Graph) -> list[tuple[object, ...]]:
    """Operators with arguments by number, shapes, strides, types and lines."""
    numbers = {node: f"%{n}" for n, node in enumerate(graph.nodes)}
    found = []
    for node in graph.nodes:
        args = torch.fx.node.map_arg((node.args, node.kwargs), numbers.__getitem__)
        value = node.meta.get("val")
        lies = (value.shape, value.stride(), value.dtype) if torch.is_tensor(value) else None
        target = None if node.op == "placeholder" else node.target
        found.append((target, str(args), lies, node.meta.get("stack_trace")))
    return found


@pytest.mark.parametrize("fn", [writes, writes_to_views, views_of_views, of_losses, whole])
def test_it_is_what_torch_makes_in_more_passes(fn):
    program = torch.export.export(_Module(fn), (X, Y), strict=False)
    graph, written = functional_graph(program.graph_module, DECOMPOSITIONS)
    more = program.run_decompositions({**DECOMPOSITIONS})
    more.graph.eliminate_dead_code()
    assert _spelled(graph) == _spelled(more.graph)
    names = [node.name for node in more.graph.find_nodes(op="placeholder")]
    mutated = more.graph_signature.user_inputs_to_mutate.values()
    assert [names[n] for n in written] == list(mutated)


def test_it_is_what_functions_are_traced_with(monkeypatch: pytest.MonkeyPatch):
    """Of 300 ms for a function that writes torch took 250 to register rules for operators."""

    def decomposed(*_: object) -> None:
        raise AssertionError("rules for all composite operators are registered")

    monkeypatch.setattr(ExportedProgram, "run_decompositions", decomposed)
    nodes = trace(lambda x, y: F.smooth_l1_loss(x.clone().mul_(2.0), y), X, Y).nodes
    assert [node.op for node in nodes].count("abs") == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.cosine_embedding_loss(x[0], x[1], torch.ones(4)),
        lambda x: F.poisson_nll_loss(x, x, full=True),
    ],
    ids=["cosine embedding", "poisson"],
)
def test_operators_that_write_to_what_they_made_are_decomposed_by_torch(
    agrees: Callable[..., None], fn: Callable[..., torch.Tensor]
):
    agrees(fn, torch.rand(3, 4, 5) + 0.5, single=True)
