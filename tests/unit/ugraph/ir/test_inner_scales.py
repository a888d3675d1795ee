"""Scales of matmuls that move into an operand."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.inner_scales import with_inner_scales
from mirage_py.verify.field_test.programs import compare_programs

HEAD = "B = 4, D = 8, N = 16\nX[B, D], W[D, N] : f32\n"
NORM = "let r[b] = sqrt(mean[d](X[b, d]^2))\n"


def products(program: Program) -> list[list[str]]:
    """The operators of the operands of each product."""
    nodes = program.nodes
    return [sorted(nodes[a].op for a in n.args) for n in nodes if n.op == "matmul"]


@pytest.mark.parametrize(
    ("body", "operands"),
    [
        ("Y[b, n] = sum[d](X[b, d] * W[d, n]) / r[b]", ["div", "load"]),
        ("Y[b, n] = r[b] * sum[d](X[b, d] * W[d, n])", ["load", "mul"]),
    ],
)
def test_a_norm_after_a_matmul_moves_before_it(body: str, operands: list[str]) -> None:
    program = parse(HEAD + NORM + body)
    found = with_inner_scales(program)
    assert products(found) == [operands]
    assert compare_programs(program, found, trials=1, seed=0).equal


@pytest.mark.parametrize(
    "body",
    [
        "Y[b, n] = sum[d](X[b, d] * W[d, n]) / 8",
        NORM + "Y[b, n] = r[b] / sum[d](X[b, d] * W[d, n])",
        NORM + "let p[b, n] = sum[d](X[b, d] * W[d, n])\nY[b, n] = p[b, n] / r[b] + p[b, n]",
    ],
)
def test_all_else_stays(body: str) -> None:
    program = parse(HEAD + body)
    assert with_inner_scales(program) == program
