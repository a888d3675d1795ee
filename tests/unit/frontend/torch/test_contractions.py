from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mirage_py.frontend.torch import trace
from mirage_py.runtime.eager.eager_source import torch_function

SHAPES = [
    ((5, 3), (3, 7)),
    ((2, 5, 3), (2, 3, 7)),
    ((2, 5, 3), (3, 7)),
    ((5, 3), (2, 3, 7)),
    ((4, 1, 5, 3), (2, 3, 7)),
    ((3,), (3, 7)),
    ((5, 3), (3,)),
    ((3,), (3,)),
    ((2, 5, 3), (3,)),
    ((3,), (2, 3, 7)),
    ((1, 3), (3, 1)),
    ((5, 1), (1, 7)),
    ((3, 3), (3, 3)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul(agrees, left, right):
    agrees(torch.matmul, torch.randn(left), torch.randn(right))


def test_with_itself(agrees):
    agrees(lambda x: (x @ x.T, x.T @ x, (x @ x.T) @ x, x @ x.T @ x @ x.T), torch.randn(4, 6))


def test_square_with_itself(agrees):
    agrees(lambda x: (x @ x, x @ x @ x, (x @ x).T @ x), torch.randn(5, 5))


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_linear(agrees, rank):
    x = torch.randn((2, 3, 4, 6)[4 - rank :])
    agrees(
        lambda x, w, b: (F.linear(x, w, b), F.linear(x, w)), x, torch.randn(5, 6), torch.randn(5)
    )


def test_with_addend(agrees):
    def fn(c, a, b, d):
        return (
            torch.addmm(c, a, b, beta=0.5, alpha=2),
            torch.addmm(d, a, b),
            torch.addmm(c, a, b, beta=0),
            torch.baddbmm(c[None], a[None], b[None]),
            torch.bmm(a[None], b[None]),
            torch.mm(a, b),
            torch.mv(a, d[:3]),
            torch.dot(d, d),
        )

    agrees(fn, torch.randn(4, 5), torch.randn(4, 3), torch.randn(3, 5), torch.randn(5))


EQUATIONS = [
    ("ij,jk->ik", (4, 3), (3, 5)),
    ("bij,bkj->bik", (2, 4, 3), (2, 5, 3)),
    ("ij,jk", (4, 3), (3, 5)),
    ("...i,ij->...j", (2, 4, 3), (3, 5)),
    ("...ij,...jk", (2, 4, 3), (3, 5)),
    ("ij->ji", (4, 3)),
    ("ij->", (4, 3)),
    ("ii->i", (4, 4)),
    ("i,j->ij", (4,), (4,)),
    ("bhsd,bhtd->bhst", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ij,jk,kl->il", (4, 3), (3, 5), (5, 2)),
    ("ij,ij->i", (4, 3), (4, 3)),
    ("ij,kj->i", (4, 3), (5, 3)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=[e[0] for e in EQUATIONS])
def test_einsum(agrees, case):
    equation, *shapes = case
    agrees(lambda *xs: torch.einsum(equation, *xs) * 1, *(torch.randn(s) for s in shapes))


def test_a_product_becomes_one_contraction(agrees):
    traced = agrees(lambda x, w: x @ w, torch.randn(4, 3), torch.randn(3, 5))
    assert [n.op for n in traced.program.nodes] == ["load", "load", "matmul"]


def test_dimensions_are_named_by_role(agrees):
    traced = agrees(lambda x, w: x @ w, torch.randn(4, 3), torch.randn(3, 5))
    assert {d.name: d.size for d in traced.program.dims} == {"m": 4, "k": 3, "n": 5}
    traced = agrees(lambda m, k: m @ k, torch.randn(4, 3), torch.randn(3, 5))
    assert [d.name for d in traced.program.dims] == ["rows", "inner", "n"]


def test_an_operand_of_a_matmul_is_not_rounded_twice():
    def attention(q, k, v):
        weights = torch.softmax(q @ k.mT, -1, dtype=torch.float32)
        return weights.to(v.dtype) @ v

    def scaled(q, k, v):
        return (torch.softmax(q @ k.mT, -1, dtype=torch.float32).to(v.dtype) * 2) @ v

    def mixed(q, k, v):
        return torch.softmax(q @ k.mT, -1, dtype=torch.float32).half().float() @ v.float()

    def casts(function, dtype):
        tensors = [torch.randn(2, 5, 3).to(dtype) for _ in range(3)]
        return [str(n.attr) for n in trace(function, *tensors).nodes if n.op == "cast"]

    assert casts(attention, torch.bfloat16) == []
    # What is done to the rounded numbers stays done to them, and so does what nobody rounds again.
    assert casts(scaled, torch.bfloat16) == ["bf16"]
    assert casts(mixed, torch.float32) == ["f16"]
    assert casts(mixed, torch.bfloat16) == ["f16"]


@pytest.mark.parametrize("factors", [{}, {"beta": 0.5, "alpha": 2}, {"beta": 0}])
def test_sums_with_products(agrees, factors):
    m, v, w = torch.randn(4, 3), torch.randn(3), torch.randn(4)
    agrees(lambda a, x, y: torch.addmv(a, x, y, **factors), w, m, v)
    agrees(lambda a, x, y: torch.addr(a, x, y, **factors), m, w, v)
    batch = torch.randn(2, 4, 5), torch.randn(2, 5, 3)
    agrees(lambda a, x, y: torch.addbmm(a, x, y, **factors), m, *batch)


@pytest.mark.parametrize("equation", ["i,j->ij", "i, j -> i j", "i,j", "...i,j->...ij"])
def test_products_of_elements_in_einsteins_notation_may_be_of_two_types(equation):
    """Angles of rotary embeddings."""
    at, frequencies = torch.arange(5), torch.rand(3)
    for a, b in (
        (at, frequencies),
        (frequencies.half(), frequencies),
        (at.int(), frequencies.half()),
    ):
        program = trace(lambda a, b: torch.einsum(equation, a, b), a, b)
        found = torch_function(program)(a, b)
        torch.testing.assert_close(found, torch.einsum(equation, a, b))
