"""The first k elements of long rows beside torch.topk, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import triton
from interpreted import in_interpreter
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError

from mirage_py.runtime.selection import first_k as calls
from mirage_py.runtime.selection import kernels, operator
from mirage_py.runtime.selection.operator import put_selections


def test_elements_in_order_and_their_places():
    in_interpreter(compare, "unit.runtime.selection.test_first_k")


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_kernels_compile(dtype):
    """The interpreter runs what the compiler refuses."""
    constants = {"COUNT": 3, "PADDED": 4, "BLOCK": 64, "HALF": dtype == "bf16", "LARGEST": True}
    pointers = {"value_ptr": "*i32", "place_ptr": "*i32"}
    parts = {
        "x_ptr": f"*{dtype}",
        **pointers,
        **dict.fromkeys(("n", "stride", "parts", "length"), "i32"),
    }
    all_parts = {**pointers, "out_ptr": f"*{dtype}", "index_ptr": "*i64", "found_in_parts": "i32"}
    for kernel, given in ((kernels.first_of_parts, parts), (kernels.first_of_all, all_parts)):
        signature = {**given, **dict.fromkeys(constants, "constexpr")}
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


def test_calls_of_long_rows_on_a_gpu_are_replaced():
    def replaced(shape, *given, device="cuda"):
        graph = Graph()
        x = graph.placeholder("x")
        with FakeTensorMode():
            x.meta["val"] = torch.empty(shape, device=device)
        graph.output(graph.call_function(torch.ops.aten.topk.default, (x, *given)))
        return put_selections(GraphModule({}, graph))

    assert replaced((2, 50000), 10) == replaced((2, 50000), 10, 1, False) == 1
    assert replaced((2, 50000), 10, 0) == replaced((2, 64), 10) == replaced((2, 50000), 100) == 0
    assert replaced((2, 50000), 10, device="cpu") == 0


def test_kernels_that_do_not_run_leave_it_to_torch(monkeypatch):
    monkeypatch.setattr(operator, "first_k", Mock(side_effect=CompilationError(None, None, None)))
    x = torch.randn(2, 5000)
    values, places = operator.selected(x, 3, True)
    torch.testing.assert_close(values, torch.topk(x, 3)[0], rtol=0, atol=0)
    torch.testing.assert_close(x.gather(-1, places), values, rtol=0, atol=0)


def _check(dtype, largest):
    x = torch.randn(2, 2, 1003).to(dtype)
    x[0, 0, 5:9], x[0, 0, 3], x[0, 0, 7] = torch.inf, torch.nan, -torch.inf
    x[1, 0, ::2], x[1, 0, 1::2], x[1, 1] = 0.0, -0.0, -torch.inf
    values, places = calls.first_k(x, 7, largest=largest)
    want = torch.topk(x, 7, -1, largest)[0]
    assert torch.equal(values.nan_to_num(7.0), want.nan_to_num(7.0))
    assert torch.equal(x.gather(-1, places).nan_to_num(7.0), want.nan_to_num(7.0))
    assert all(len(set(row)) == 7 for row in places.view(-1, 7).tolist())
    # Of equal ones those in front.
    assert places[1, 1].tolist() == places[1, 0].tolist() == list(range(7))


def compare(_task: Mapping[str, Any]) -> None:
    """In the interpreter, in parts that are shorter than on a GPU."""
    before, calls._BLOCK = calls._BLOCK, 256
    try:
        for chosen in product((torch.bfloat16, torch.float16, torch.float32), (True, False)):
            _check(*chosen)
    finally:
        calls._BLOCK = before
