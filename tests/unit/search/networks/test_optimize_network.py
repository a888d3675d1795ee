"""The graph level as a whole: what it finds, what it leaves, and that values stay."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from unit.search.networks.network_programs import (
    branches,
    low_rank,
    normed_convolution,
    three_products,
)

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.pipeline.networks import network_evidence
from mirage_py.pipeline.networks.network_evidence import check_parts
from mirage_py.search.networks.costs import LibraryCall
from mirage_py.search.networks.egraph import EGraph, PatternNode
from mirage_py.search.networks.extraction import extract as extraction
from mirage_py.search.networks.optimize_network import NetworkResult, optimize_network
from mirage_py.search.networks.parts import ChangedPart, changed_parts
from mirage_py.search.networks.program_egraph import add_program
from mirage_py.search.networks.saturate import Limits, Saturation
from mirage_py.search.networks.substitution import Substitution
from mirage_py.targets import target
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.ir.dtypes import BF16
from mirage_py.verify.field_test.programs import compare_programs


def optimized(program: Graph, **given: object) -> NetworkResult:
    return optimize_network(program, target("h200"), **given)  # type: ignore[arg-type]


def operators(graph: Graph, *, constant: bool = False) -> Counter[str]:
    """Operators that run at each call."""
    nodes = zip(graph.nodes, graph.is_constant, strict=True)
    return Counter(node.operator for node, known in nodes if known == constant)


def assert_same_values(result: NetworkResult) -> None:
    """Of random elements of two fields."""
    for seed, field in enumerate(FIELDS[:2]):
        ops = FieldOps(field, seed=seed)
        inputs = random_inputs(result.program, ops)
        before, after = (over_field(g, inputs, ops) for g in (result.program, result.graph))
        for one, other in zip(before, after, strict=True):
            assert np.array_equal(one.p, other.p)


def test_products_of_one_operand_are_one_product():
    result = optimized(three_products())
    assert operators(result.graph)["matmul"] == 1
    assert operators(result.graph, constant=True) == {"concat": 1}
    assert result.after_us < result.before_us
    assert "3 products of one operand as one" in [s.rule for s in result.steps]
    assert_same_values(result)


def test_weights_that_may_change_are_not_put_together_at_each_call():
    result = optimized(three_products(constant=False, width=4096))
    assert result.graph == result.program
    assert result.steps == ()
    assert result.parts == ()


def test_a_batch_norm_goes_into_constant_weights():
    result = optimized(normed_convolution())
    assert operators(result.graph) == {"conv2d": 1, "add": 1, "relu": 1}
    assert_same_values(result)


def test_a_batch_norm_stays_where_weights_may_change():
    result = optimized(normed_convolution(constant=False))
    assert operators(result.graph) == operators(result.program)


@pytest.mark.parametrize("kernels", [(1, 1, 1), (1, 3)])
def test_convolutions_of_one_operand_are_one(kernels: tuple[int, ...]):
    result = optimized(branches(kernels))
    assert operators(result.graph)["conv2d"] == 1
    assert_same_values(result)


def test_a_low_rank_adapter_becomes_part_of_a_constant_weight():
    result = optimized(low_rank())
    assert operators(result.graph) == {"matmul": 1}
    assert_same_values(result)


def test_measured_times_decide_where_there_are_any():
    program = branches((1, 1))
    own = "conv2d(f32[1, 8, 6, 6], f32[4, 8, 1, 1]; stride=(1, 1), padding=(0, 0), "

    def slow(calls: Sequence[LibraryCall]) -> dict[str, float]:
        return {c.signature: 1000.0 for c in calls if not c.signature.startswith(own)}

    assert operators(optimized(program, measure=slow).graph)["conv2d"] == 2
    assert operators(optimized(program).graph)["conv2d"] == 1


def test_without_the_solver_greedy_serves_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extraction, "is_available", lambda: False)
    result = optimized(three_products())
    assert result.extraction == "greedy (OR-tools is not installed)"
    assert operators(result.graph)["matmul"] == 1


def test_the_exact_extraction_says_that_it_is_one():
    assert optimized(low_rank()).extraction == "exact, proved within 0.1 %"


def test_bounds_are_kept_and_named():
    assert optimized(low_rank(), limits=Limits(nodes=8)).bound == "nodes"
    assert optimized(low_rank(), limits=Limits(rounds=1)).bound == "rounds"


def test_it_may_be_stopped_at_any_time():
    for steps in (0, 3, 30):
        left = iter(range(steps))
        result = optimized(three_products(), should_stop=lambda left=left: next(left, None) is None)
        assert result.bound == ("time" if steps < 30 else "none")
        assert result.after_us <= result.before_us


def test_equal_programs_have_equal_results():
    assert optimized(branches((1, 3))) == optimized(branches((1, 3)))


def test_values_that_a_wrong_rule_makes_one_are_compared():
    """x y and y x as one class: whichever is kept is also a value of the program."""
    wrong = Substitution(
        "products commute",
        (PatternNode("matmul", ("x", "y"), ("z",)),),
        ("z",),
        lambda place: place.add("matmul", [place.value("y"), place.value("x")]),
        "planted",
        "none",
    )
    builder = GraphBuilder()
    x, y = (builder.input(name, (8, 8)) for name in "xy")
    product = builder.apply("matmul", x, y)
    program = builder.build(product, builder.apply("matmul", y, x))
    egraph = EGraph()
    add_program(egraph, program)
    Saturation(egraph, (wrong,), Limits(), lambda: False, lambda _: {}).run()
    parts = changed_parts(program, builder.build(product, product), egraph, {})
    assert len(parts) == 1
    assert not check_parts(parts).equal


def _steps(count: int, products: int) -> Graph:
    """A recurrence: each state is a sum of products of the one before by the same weights."""
    b = GraphBuilder()
    state = b.input("x", (1, 512), BF16)
    weights = [b.input(f"w{n}", (512, 512), BF16, constant=True) for n in range(products)]
    for _ in range(count):
        each = [b.apply("tanh", b.apply("matmul", state, w)) for w in weights]
        state = functools.reduce(lambda x, y: b.apply("add", x, y), each)
    return b.build(state)


def _renamed(part: ChangedPart, first: int) -> ChangedPart:
    """The same part with its inputs in another order, and of other names."""
    order = [(n + first) % len(part.before.inputs) for n in range(len(part.before.inputs))]

    def renamed(graph: Graph) -> Graph:
        b = GraphBuilder()
        place = {}
        for n in order:
            entry = graph.inputs[n]
            constant = entry.name in graph.constants
            shape, kind = entry.type.shape, entry.type.dtype
            place[Value(INPUTS, n)] = b.input(f"u{n}_{first}", shape, kind, constant=constant)
        place = b.copied(graph, place)
        return b.build(*(place[v] for v in graph.outputs))

    return ChangedPart(renamed(part.before), renamed(part.after))


def test_steps_that_are_equal_are_compared_once(monkeypatch: pytest.MonkeyPatch):
    found = optimized(_steps(4, 3), substitutions=())
    assert "3 products of one operand as one" in {s.rule for s in found.steps}
    parts = [_renamed(part, n) for n in range(4) for part in found.parts]
    compared: list[object] = []

    def counted(*programs: object, **given: object) -> object:
        compared.append(programs)
        return compare_programs(*programs, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(network_evidence, "compare_programs", counted)
    evidence = check_parts(parts)
    assert evidence.tested == evidence.parts == 4 * len(found.parts)
    assert len(compared) == 1


def test_products_that_are_one_are_one_comparison():
    """Alone, each would have all other weights as outputs: too many dimensions for a program."""
    found = optimized(_steps(1, 20), substitutions=())
    assert "20 products of one operand as one" in {s.rule for s in found.steps}
    evidence = check_parts(found.parts)
    assert evidence.equal
    assert evidence.tested == evidence.parts == 1


def test_no_part_has_more_outputs_than_programs_have_dimensions():
    b = GraphBuilder()
    rows = [b.input(f"x{n}", (1, 512), BF16) for n in range(5)]
    weights = [b.input(f"w{n}", (512, 512), BF16, constant=True) for n in range(8)]
    found = optimized(b.build(*(b.apply("matmul", x, w) for x in rows for w in weights)))
    assert "5 products by one weight as one" in {s.rule for s in found.steps}
    assert sum(len(part.before.outputs) for part in found.parts) == 40
    evidence = check_parts(found.parts)
    assert evidence.equal
    assert evidence.tested == evidence.parts == 2


def test_a_wrong_part_is_found_behind_right_ones_that_are_equal():
    b = GraphBuilder()
    x, w = b.input("x", (4, 8), BF16), b.input("w", (8, 8), BF16)
    right = b.build(b.apply("matmul", x, w))
    wrong = b.build(b.apply("neg", b.apply("matmul", x, w)))
    same = ChangedPart(right, right)
    assert not check_parts([same, same, ChangedPart(right, wrong)]).equal
