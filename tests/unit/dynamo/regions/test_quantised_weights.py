"""Quantised weights as libraries spell them: one region with their product, and eager's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.regions.regions import left_alone
from mirage_py.dynamo.serve.options import backend_options
from mirage_py.targets import target

ROWS, COLUMNS, OUTPUTS, GROUP = 3, 256, 48, 32
GROUPS = COLUMNS // GROUP
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def grouped(x: Tensor, q: Tensor, s: Tensor) -> Tensor:
    return F.linear(x, (q.view(OUTPUTS, GROUPS, GROUP).to(x.dtype) * s[..., None]).view_as(q))


def stacked(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    q = torch.stack((w & 0xF, (w >> 4) & 0xF), -1).reshape(OUTPUTS, COLUMNS).to(torch.int8) - 8
    return grouped(x, q, s)


def signs_chosen(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    q = torch.stack((w & 0xF, w >> 4), -1).reshape(OUTPUTS, COLUMNS).to(torch.int8)
    return grouped(x, torch.where(q > 7, q - 16, q), s)


def sign_extended(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return grouped(x, torch.stack(((w << 4) >> 4, w >> 4), -1).reshape(OUTPUTS, COLUMNS), s)


def filled(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    q = torch.empty(OUTPUTS, COLUMNS, dtype=torch.int8)
    q[:, ::2], q[:, 1::2] = (w & 0xF).to(torch.int8), (w >> 4).to(torch.int8)
    return grouped(x, q - 8, s)


def by_table(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    table = torch.tensor(E2M1, dtype=x.dtype)
    return grouped(x, table[torch.stack((w & 15, w >> 4), -1).flatten(-2).int()], s)


def table_into_halves(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    table = torch.tensor(E2M1, dtype=x.dtype)
    q = torch.empty(OUTPUTS, COLUMNS, dtype=x.dtype)
    q[:, 0::2], q[:, 1::2] = table[(w & 15).to(torch.long)], table[(w >> 4).to(torch.long)]
    return grouped(x, q, s)


def drawn() -> list[Tensor]:
    w = torch.randint(0, 256, (OUTPUTS, COLUMNS // 2), dtype=torch.uint8)
    return [torch.randn(ROWS, COLUMNS), w, torch.rand(OUTPUTS, GROUPS)]


def signed() -> list[Tensor]:
    x, w, s = drawn()
    return [x, w.view(torch.int8), s]


def in_words(x: Tensor, words: Tensor, zeros: Tensor, s: Tensor) -> Tensor:
    """GPTQ: words down the columns."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    z = torch.bitwise_right_shift(zeros.unsqueeze(2), shifts.view(1, 1, 8)).to(torch.int8) & 15
    w = torch.bitwise_right_shift(words.unsqueeze(1), shifts.view(1, 8, 1)).to(torch.int8) & 15
    w, z = w.reshape(GROUPS, GROUP, OUTPUTS), (z + 1).reshape(GROUPS, 1, OUTPUTS)
    return x @ (s.reshape(GROUPS, 1, OUTPUTS) * (w - z)).reshape(COLUMNS, OUTPUTS)


def in_words_out_of_order(x: Tensor, words: Tensor, zeros: Tensor, s: Tensor) -> Tensor:
    """AWQ: words along the rows, whose codes are interleaved."""
    words = words.reshape(COLUMNS, -1)
    shifts = torch.arange(0, 32, 4)
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    w = ((words[:, :, None] >> shifts).to(torch.int8)[:, :, order] & 15).reshape(COLUMNS, OUTPUTS)
    z = ((zeros[:, :, None] >> shifts).to(torch.int8)[:, :, order] & 15).reshape(GROUPS, OUTPUTS)
    full = (w.view(GROUPS, GROUP, OUTPUTS) - z[:, None]) * s[:, None]
    return x @ full.reshape(COLUMNS, OUTPUTS)


def words() -> list[Tensor]:
    def draw(*shape: int) -> Tensor:
        return torch.randint(-(2**31), 2**31, shape, dtype=torch.int64).to(torch.int32)

    of_rows, of_groups = draw(COLUMNS // 8, OUTPUTS), draw(GROUPS, OUTPUTS // 8)
    return [torch.randn(ROWS, COLUMNS), of_rows, of_groups, torch.rand(GROUPS, OUTPUTS)]


def quantised_rows(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    a = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    q = (x / a).round().clamp(-128, 127).to(torch.int8)
    return torch._int_mm(q, w.t()).to(x.dtype) * a * s


def bytes_() -> list[Tensor]:
    w = torch.randint(-128, 128, (OUTPUTS, COLUMNS), dtype=torch.int8)
    return [torch.randn(32, COLUMNS), w, torch.rand(OUTPUTS)]


def quantised_rows_of_floats(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    a = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448
    q = (x / a).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (q.float() @ w.float().t()) * a * s


def floats() -> list[Tensor]:
    x, _, s = bytes_()
    return [x, torch.randn(OUTPUTS, COLUMNS).to(torch.float8_e4m3fn), s]


CASES = {
    drawn: (stacked, signs_chosen, filled, by_table, table_into_halves),
    signed: (sign_extended,),
    words: (in_words, in_words_out_of_order),
    bytes_: (quantised_rows,),
    floats: (quantised_rows_of_floats,),
}


@pytest.mark.parametrize(
    ("fn", "draw"),
    [(fn, draw) for draw, fns in CASES.items() for fn in fns],
    ids=lambda f: f.__name__,
)
def test_all_of_it_is_one_region(fn: Callable[..., Tensor], draw: Callable[[], list[Tensor]]):
    torch.manual_seed(3)
    given = draw()
    compiler = GraphCompiler(
        backend_options(None, {"rest": "eager", "on_cpu": "reference", "target": "h200"}),
        target("h200"),
    )

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        def compile_(graph: torch.fx.GraphModule, example: Any) -> Any:
            return compiler.compile("inference", graph, example)

        return aot_autograd(fw_compiler=compile_, decompositions=decompositions())(module, inputs)

    with torch.no_grad():
        got = torch.compile(fn, backend=backend, dynamic=False)(*given)
    (plan,) = compiler.plans
    assert left_alone(plan.cut) == []
    assert len(plan.served) == 1
    torch.testing.assert_close(got, fn(*given), rtol=1e-4, atol=1e-3)


def test_a_table_that_is_larger_or_is_written_later_stays_an_input(traced: Any):
    from mirage_py.dynamo.regions.nodes import CONSTANT, classify

    def kinds(table: Tensor) -> list[str]:
        graph = traced(lambda x: x + torch.tensor(table.tolist()), torch.zeros(len(table))).graph
        facts = classify(graph)
        return [facts[n].kind for n in graph.nodes if n.op == "get_attr"]

    assert kinds(torch.arange(16.0)) == [CONSTANT]
    assert kinds(torch.arange(17.0)) != [CONSTANT]
