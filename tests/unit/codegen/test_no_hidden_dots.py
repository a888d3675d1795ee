"""Triton may not make a dot of a product that is summed: it would be one in TF32, or a wrong one.

``x[:, :, None] * y[None, :, :]`` summed over its middle axis became a dot in triton 3.6, whose
results on an H200 were four times too large where that axis had 2 points.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.checks.differential_cases import F32, one_kernel, products, state
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compile import KernelSource, compiled_handle
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import Section


def multiplied() -> Plan:
    """A product and a sum as operators of their own, in a kernel that was given a matmul."""
    b = ProgramBuilder("multiplied")
    for dim, size in {"m": 32, "n": 4, "e": 64}.items():
        b.dim(dim, size)
    b.input("X", (32, 4), F32)
    b.input("V", (4, 64), F32)
    b.output("Y", b.matmul(b.load("X", "mn"), b.load("V", "ne"), "n"), "me", F32)
    plan = one_kernel(b.build(), {"m": 16})
    (kernel,) = plan.ugraph.kernels
    x, v, matmul, store = kernel.nodes
    product = Node("mul", (0, 1), None, ("m", "n", "e"))
    nodes = (x, v, product, Node("sum", (2,), ("n",), matmul.dims), replace(store, args=(3,)))
    kernel = replace(kernel, nodes=nodes, sections=(Section((0, 1, 2, 3, 4)),))
    return replace(plan, ugraph=replace(plan.ugraph, kernels=(kernel,)))


def of_groups() -> Plan:
    """Products of groups, whose axis is the last: with four axes a dot would have wrong ranks."""
    b = ProgramBuilder("of_groups")
    for dim, size in {"m": 16, "k": 16, "n": 16, "g": 4}.items():
        b.dim(dim, size)
    b.input("X", (16, 16, 4), F32)
    b.input("W", (16, 16, 4), F32)
    b.output("Y", b.matmul(b.load("X", "mkg"), b.load("W", "kng"), "k"), "mng", F32)
    return one_kernel(b.build(), {"m": 16})


PLANS = {
    "two points": state(F32, 31, 2, {"m": 16, "n": 2}).plan,
    "four points": state(F32, 31, 4, {"m": 16, "n": 4}).plan,
    "eight points": products(F32, 33, 127, {"h": 1, "m": 16, "n": 32, "k": 8}).plan,
    "multiplied": multiplied(),
    "of groups": of_groups(),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_product_that_is_summed_stays_one(plan):
    for kernel in emit_kernels(plan):
        asked = kernel.source.count("tl.dot(")
        made = compiled_handle(KernelSource.of(kernel), 90).asm["ttgir"]
        dots = made.count("tt.dot ") + made.count("warp_group_dot ")
        assert dots <= asked, kernel.source
