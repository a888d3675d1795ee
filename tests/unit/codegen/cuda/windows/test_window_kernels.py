"""Kernels over windows: their values on a CPU against PyTorch, and what their text is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from nightly import NIGHTLY
from torch.nn import functional

import mirage_py
from mirage_py.codegen.cuda.kernel.module import emit_cuda, kernel_plans
from mirage_py.codegen.cuda.windows.linear import Comparison, Condition, Linear, at_least
from mirage_py.codegen.cuda.windows.scalars import Element, Scalar, ScalarGraph
from mirage_py.codegen.cuda.windows.shares import window_dims
from mirage_py.codegen.cuda.windows.vectors import vectors_of
from mirage_py.pipeline.joined.direct_convolutions import direct_convolutions
from mirage_py.pipeline.pipeline import normalise, partition_of
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.search.rank.window_choices import window_choices
from mirage_py.targets import target
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16 as BF16_TYPE
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, UGraph

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
LAST = torch.channels_last
needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")


def block_of(program: Program, tiles: Mapping[str, int] | None = None) -> BlockGraph:
    """The program as one kernel, all dimensions of its result in the grid."""
    block = BlockGraph.whole(program.name, program.nodes, program.outputs, program.dim_names)
    dims = dict.fromkeys(d for e in program.outputs[0].index for d in e.dims())
    return replace(block, grid=tuple(GridAxis(d, (tiles or {}).get(d)) for d in reversed(dims)))


def traced(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> Program:
    return normalise(mirage_py.trace(function, *args), seed=0)


def plans(program: Program, count: int) -> list[Plan]:
    """The likeliest plans, and the last of those that were looked at."""
    block = block_of(program)
    found = window_choices(UGraph(program, (block,)), block, (), target("h200"))
    some = [*found[:count], found[-1]]
    return [Plan(UGraph(program, (b,)), (o,), "cuda") for b, o, _ in some]


def emulated(plan: Plan, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
    program = plan.ugraph.program
    names = ["x", "w", "s", "b"]
    given = {n: a.float().numpy() for n, a in zip(names, args, strict=False)}
    arrays = {t.name: given[t.name] for t in program.inputs}
    found = run_emulated(plan, arrays)
    return torch.from_numpy(np.asarray(found[program.outputs[0].tensor.name], dtype=np.float64))


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = BF16, last: bool = False):
    made = [torch.randn(s).to(dtype) for s in shapes]
    return tuple(a.to(memory_format=LAST) if last and not n else a for n, a in enumerate(made))


CASES = {
    "depthwise": (
        lambda x, w: functional.conv2d(x, w, None, 1, 1, 1, 6),
        drawn((2, 6, 9, 24), (6, 1, 3, 3)),
    ),
    "depthwise of odd sizes": (
        lambda x, w: functional.conv2d(x, w, None, 1, 2, 1, 3),
        drawn((1, 3, 7, 13), (3, 1, 5, 5)),
    ),
    "with a stride": (
        lambda x, w: functional.conv2d(x, w, None, 2, 1, 1, 4),
        drawn((2, 4, 16, 32), (4, 1, 3, 3), dtype=F16),
    ),
    "dilated": (
        lambda x, w: functional.conv2d(x, w, None, 1, 4, 2, 4),
        drawn((1, 4, 10, 16), (4, 1, 5, 5), dtype=F32),
    ),
    "without padding": (
        lambda x, w: functional.conv2d(x, w, None, 1, 0, 1, 4),
        drawn((1, 4, 10, 20), (4, 1, 3, 7)),
    ),
    "channels last": (
        lambda x, w: functional.conv2d(x, w, None, 1, 1, 1, 16),
        drawn((2, 16, 6, 5), (16, 1, 3, 3), last=True),
    ),
    "channels last with a stride": (
        lambda x, w: functional.conv2d(x, w, None, 2, 3, 1, 8),
        drawn((1, 8, 9, 9), (8, 1, 7, 7), dtype=F32, last=True),
    ),
    "several results of a channel": (
        lambda x, w: functional.conv2d(x, w, None, 1, 1, 1, 4),
        drawn((1, 4, 6, 16), (12, 1, 3, 3)),
    ),
    "a few channels": (
        lambda x, w: functional.conv2d(x, w, None, 1, 1),
        drawn((1, 3, 6, 16), (4, 3, 3, 3)),
    ),
    "causal": (
        lambda x, w: functional.silu(functional.conv1d(x, w, None, 1, 3, 1, 8)[..., :70]),
        drawn((2, 8, 70), (8, 1, 4)),
    ),
    "of volumes": (
        lambda x, w: functional.conv3d(x, w, None, 1, 1, 1, 2),
        drawn((1, 2, 4, 5, 8), (2, 1, 3, 3, 3)),
    ),
    "transposed": (
        lambda x, w: functional.conv_transpose2d(x, w, None, 2, 1, 1, 4),
        drawn((1, 4, 5, 8), (4, 1, 3, 3)),
    ),
    "with what is around it": (
        lambda x, w, s, b: functional.hardtanh(
            functional.conv2d(functional.silu(x), w, None, 1, 1, 1, 4) * s[:, None, None]
            + b[:, None, None],
            0.0,
            6.0,
        ),
        drawn((2, 4, 8, 16), (4, 1, 3, 3), (4,), (4,)),
    ),
    "largest": (lambda x: functional.max_pool2d(x, 3, 2, 1), drawn((1, 2, 17, 33))),
    "largest of volumes": (
        lambda x: functional.max_pool3d(x, 3, 2, 1, 2),
        drawn((1, 2, 9, 10, 17), dtype=F32),
    ),
    "mean": (lambda x: functional.avg_pool2d(x, 3, 1, 1), drawn((1, 2, 9, 16))),
    "mean without padding": (
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        drawn((1, 2, 19, 32)),
    ),
    "mean of lines": (lambda x: functional.avg_pool1d(x, 8, 1, 4), drawn((2, 3, 65))),
}  # fmt: skip


def program_of(name: str) -> Program:
    """The program of a case: one sum over windows with what stands around it."""
    function, args = CASES[name]
    whole = partition_of(mirage_py.trace(function, *args), seed=0)
    if whole is None:
        return traced(function, *args)
    (part,) = direct_convolutions(whole).partition.parts
    return part


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_pytorch(name):
    function, args = CASES[name]
    program = program_of(name)
    want = function(*(a.double() for a in args))
    for plan in plans(program, 2 if NIGHTLY else 1):
        error = (emulated(plan, args) - want).abs().max() / want.abs().max()
        limit = {F32: 1e-6, F16: 2**-11, BF16: 2**-8}[args[0].dtype]
        assert error <= limit, plan


@pytest.mark.parametrize("name", ["depthwise", "channels last", "largest"])
def test_threads_divide_only_to_find_their_place(name):
    program = program_of(name)
    for plan in plans(program, 3):
        (kernel,) = emit_cuda(plan)
        assert kernel_plans(plan) == ()
        body = kernel.body[kernel.body.index("__launch_bounds__") :].splitlines()
        places = [line for line in body if "blockIdx" in line or "threadIdx" in line]
        rest = [line for line in body if line not in places]
        assert places
        assert not [line for line in rest if re.search(r"[%/]", line.split("//")[0])]


def test_rows_that_are_aligned_are_read_sixteen_bytes_at_a_time():
    program = traced(CASES["depthwise"][0], *drawn((2, 6, 32, 64), (6, 1, 3, 3)))
    (kernel,) = emit_cuda(plans(program, 1)[0])
    assert "= *reinterpret_cast<const uint4*>(x_at" in kernel.body
    assert "*reinterpret_cast<uint4*>(out_at" in kernel.body


def test_each_element_is_read_once_by_a_thread():
    program = traced(CASES["depthwise"][0], *drawn((2, 6, 32, 64), (6, 1, 3, 3)))
    for plan in plans(program, 3):
        (kernel,) = emit_cuda(plan)
        read = re.findall(r"const \w[\w ]*\*>\((\w+(?: [+-] \d+)?)\);", kernel.body)
        assert len(read) == len(set(read))


def test_padding_costs_the_inner_elements_nothing():
    # Only what is in the first or last columns, or in the rows at the edges, is asked about.
    program = traced(CASES["depthwise"][0], *drawn((1, 6, 64, 64), (6, 1, 3, 3)))
    plan = Plan(
        UGraph(program, (block_of(program, {"d": 64, "s": 16, "h": 1, "b": 1}),)),
        (LaunchConfig(num_warps=1),),
        "cuda",
    )
    (kernel,) = emit_cuda(plan)
    conditions = re.findall(r"const bool \w+ = (.*);", kernel.body)
    assert sorted(conditions) == [
        "d < 7", "d >= 1", "s < 15", "s < 15 && d < 7", "s < 15 && d >= 1",
        "s >= 1", "s >= 1 && d < 7", "s >= 1 && d >= 1",
    ]  # fmt: skip


def test_tiles_that_fall_into_no_equal_shares_are_no_windows():
    program = traced(CASES["depthwise"][0], *drawn((2, 6, 9, 24), (6, 1, 3, 3)))
    block = block_of(program, {"d": 8, "s": 1, "h": 1, "b": 1})
    assert window_dims(block, program.sizes, program.tensors)
    plan = Plan(UGraph(program, (block,)), (LaunchConfig(num_warps=4),), "cuda")
    assert len(kernel_plans(plan)) == 1


def test_an_address_under_two_guards_is_read_under_both():
    """Rows that lie side by side: the place behind one is the first of the next. It had been read
    once, and what waited for the other was never computed or stored.
    """
    place = Linear(((ix.dim("j"), 4),), 6)
    left, right = (
        at_least(Linear(((ix.dim("j"), f),)), b, {"j": 9}) for f, b in ((1, 1), (-1, -3))
    )
    elements = [Element("x", place, left), Element("x", place, right)]
    tensors = {"x": Tensor("x", (64,), BF16_TYPE)}
    found = vectors_of(elements, tensors, whole=False)
    assert [(v.members, v.guard) for v in found] == [((0,), left), ((1,), right)]


def test_a_sum_over_rows_is_no_window():
    program = traced(lambda x: x.sum(-1), torch.empty(64, 32))
    block = block_of(program)
    assert window_dims(block, program.sizes, program.tensors) == ()


@needs_compiler
def test_a_norm_over_groups_of_neighbours_is_no_window():
    """It has a result for each position of a group: the first of them alone had been written."""
    args = drawn((4, 32), (32,))
    program = traced(lambda x, w: functional.silu(functional.group_norm(x, 8, w)), *args)
    whole = BlockGraph.whole(program.name, program.nodes, program.outputs, program.dim_names)
    summed = {d for n in program.nodes if n.op == "sum" for d in n.reduced}
    grid = tuple(GridAxis(d, 4) for d in program.dim_names if d not in summed)
    assert len(grid) == 2
    block = replace(whole, grid=grid)
    assert window_dims(block, program.sizes, program.tensors) == ()
    plan = Plan(UGraph(program, (block,)), (LaunchConfig(num_warps=1),), "cuda")
    want = functional.silu(functional.group_norm(args[0].double(), 8, args[1].double()))
    assert (emulated(plan, args) - want).abs().max() <= 2**-8 * want.abs().max()


@pytest.mark.parametrize(("op", "is_joined"), [("relu", True), ("log", False), ("rsqrt", False)])
def test_a_selection_stays_where_its_value_is_no_number_outside(op: str, is_joined: bool):
    """Loads are 0 there, and 0 times the logarithm of 0 is NaN."""
    inside: Condition = (Comparison("ge", ((ix.dim("i"), 1),), 1),)
    graph = ScalarGraph()
    x, y = (graph.add(Scalar("load", element=Element(t, Linear(), inside))) for t in ("x", "y"))
    value = graph.add(Scalar(op, (x,)))
    chosen = graph.selected(graph.mask(inside), value, graph.const(0.0))
    made = graph.scalars[graph.product(chosen, y)]
    assert made.args == ((value, y) if is_joined else (chosen, y))
