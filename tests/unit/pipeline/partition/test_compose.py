"""Plans of parts in sequence as one plan of the whole program."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from several_kernels import over
from unit.partition.samples import inputs_of, spec

from mirage_py.errors import InputError, UnsupportedError
from mirage_py.pipeline.partition.compose import compose, own_dims
from mirage_py.pipeline.partition.limits import PartitionLimits
from mirage_py.pipeline.partition.partition import Partition, partition
from mirage_py.runtime.base.emission import emit_steps
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.interpret.ugraph import evaluate_ugraph
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, Section, UGraph
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.ugraph.text.json_form import dump_text, load_text
from mirage_py.ugraph.text.printing import format_ugraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.samples.sampled_test import sampled_test

TWO_PRODUCTS = """
B = 16, D = 64, F = 32
X[B, D], V[D, F], W[F, D] : f16
Y[b, m] = sum[f](silu(sum[d](X[b, d] * V[d, f])) * W[f, m])
"""
# Both parts split the dimension that they reduce, and have an intermediate of the same name.
SPLIT = """
tensor P0[2, 16, {n}] : f32
kernel k {{
  grid {part} by 1
  loop {d} by 16 {{
    %0 = load {x}[b, {part} * {inner} + {d}]
    %1 = load {w}[{part} * {inner} + {d}, {f}]
    %2 = matmul[{d}] %0, %1
    %3 = accum_sum %2
  }}
  store P0[{part}, b, {f}] = %3
}}
kernel last {{
  grid b by 8
  %0 = load P0[{part}, b, {f}]
  %1 = sum[{part}] %0
{end}
}}
"""


@cache
def halves() -> Partition:
    found = partition(spec(TWO_PRODUCTS), PartitionLimits(operators=2, reduced_dims=1))
    assert [t.name for t in found.cuts] == ["T1"]
    return found


def whole_kernel(program: Program, name: str = "k") -> Plan:
    """A part as one kernel of one block."""
    nodes = list(program.nodes)
    for result in program.outputs:
        dims = program.order(frozenset(d for e in result.index for d in e.dims()))
        nodes.append(Node("store", (result.node,), Access(result.tensor.name, result.index), dims))
    block = BlockGraph(name, (), tuple(nodes), (Section(tuple(range(len(nodes)))),))
    return Plan(UGraph(program, (with_threads(block),)), (LaunchConfig(),))


def split_plan(part: Program, dim: str, text: str) -> Plan:
    program = split_dim(part, dim, 2)
    return Plan(over(program, text), (LaunchConfig(num_warps=2), LaunchConfig()))


@cache
def split_plans() -> tuple[Plan, Plan]:
    first, second = halves().parts
    into = SPLIT.format(
        n=32, part="d_part", inner=32, d="d", x="X", w="V", f="f",
        end="  %2 = silu %1\n  store T1[b, f] = %2",
    )  # fmt: skip
    out = SPLIT.format(
        n=64, part="f_part", inner=16, d="f", x="T1", w="W", f="m",
        end="  store Y[b, m] = %1",
    )  # fmt: skip
    return split_plan(first, "d", into), split_plan(second, "f", out)


def check_value(plan: Plan, program: Program) -> None:
    inputs = inputs_of(program)
    expected = evaluate_program(program, inputs, FloatMeaning())
    got = evaluate_ugraph(plan.ugraph, inputs, FloatMeaning())
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-12)


def test_kernels_follow_one_another_and_the_cut_is_an_intermediate():
    found = halves()
    plan = compose(found, [whole_kernel(part) for part in found.parts])
    assert plan.ugraph.program == found.program
    assert [k.name for k in plan.ugraph.kernels] == ["k", "k_1"]
    assert plan.ugraph.intermediates == found.cuts
    assert own_dims(found, plan) == ()
    check_value(plan, found.program)


def test_split_dimensions_of_parts_are_renamed_apart():
    found = halves()
    plan = compose(found, split_plans())
    program = plan.ugraph.program
    assert own_dims(found, plan) == ("d_1_part", "d_1", "f_1_part", "f_1")
    assert program.sizes["d"] == 64
    assert (program.sizes["d_1_part"], program.sizes["d_1"]) == (2, 32)
    assert [t.name for t in plan.ugraph.intermediates] == ["T1", "P0", "P0_1"]
    assert [o.num_warps for o in plan.options] == [2, 4, 2, 4]
    check_value(plan, found.program)


def test_a_composite_prints_reads_back_and_is_emitted():
    plan = compose(halves(), split_plans())
    assert load_text(dump_text(plan), "plan.json") == plan
    assert parse_ugraph(format_ugraph(plan.ugraph)).digest == plan.ugraph.digest
    assert [s.name for s in emit_steps(plan)] == [k.name for k in plan.ugraph.kernels]


def test_without_own_dimensions_it_is_tested_whole_else_at_its_sizes():
    found = halves()
    plain = compose(found, [whole_kernel(part) for part in found.parts])
    assert field_test(found.program, plain.ugraph, seed=0).equal
    split = compose(found, split_plans())
    with pytest.raises(UnsupportedError, match="d_1_part, d_1"):
        field_test(found.program, split.ugraph, seed=0)
    assert sampled_test(found.program, split.ugraph, seed=0).equal
    # Read with the part and the position in it mixed up.
    first = split.ugraph.kernels[0]
    nodes = list(first.nodes)
    load = next(n for n, node in enumerate(nodes) if node.op == "load")
    row, _ = nodes[load].access.index
    wrong = Access("X", (row, ix.dim("d_1") * 2 + ix.dim("d_1_part")))
    nodes[load] = replace(nodes[load], attr=wrong)
    kernels = (replace(first, nodes=tuple(nodes)), *split.ugraph.kernels[1:])
    broken = replace(split.ugraph, kernels=kernels)
    assert not sampled_test(found.program, broken, seed=0).equal


def test_library_calls_are_renamed_too():
    found = partition(spec(TWO_PRODUCTS), PartitionLimits(operators=1, reduced_dims=1))
    plans = [whole_kernel(part) for part in found.parts]
    first = found.parts[0]
    call = LibraryCall("product", "matmul", ("X", "V"), first.outputs[0].tensor.name)
    plans[0] = Plan(UGraph(first, (call,)), (LaunchConfig(),))
    plan = compose(found, plans)
    assert isinstance(plan.ugraph.kernels[0], LibraryCall)
    check_value(plan, found.program)


def test_the_composite_runs_in_the_interpreter():
    pytest.importorskip("triton")
    from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

    found = halves()
    inputs = inputs_of(found.program)
    inputs = {n: x.astype(np.float16).astype(np.float64) for n, x in inputs.items()}
    expected = evaluate_program(found.program, inputs, FloatMeaning())["Y"]
    got = run_interpreted(compose(found, split_plans()), inputs)["Y"]
    np.testing.assert_allclose(got, expected, rtol=2e-2, atol=0.3)


def test_a_plan_of_another_part_is_refused():
    found = halves()
    plans = [whole_kernel(part) for part in found.parts]
    with pytest.raises(InputError, match="its inputs or outputs are others"):
        compose(found, plans[::-1])
    with pytest.raises(InputError, match="1 plans for 2 parts"):
        compose(found, plans[:1])
    other = replace(plans[1], backend="cuda")
    with pytest.raises(InputError, match="back ends"):
        compose(found, [plans[0], other])
