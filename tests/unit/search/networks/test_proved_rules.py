"""Proved rules at places in networks: what they make, what they say, and what they leave alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage_py.axioms.substitutions.database import all_rules, proved_rules
from mirage_py.axioms.substitutions.expression import inputs
from mirage_py.axioms.substitutions.rule import PROVED, TESTED, Rule
from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.costs import NetworkCosts
from mirage_py.search.networks.egraph import EGraph
from mirage_py.search.networks.extraction.problem import reachable
from mirage_py.search.networks.optimize_network import optimize_network
from mirage_py.search.networks.program_egraph import add_program, problem_of
from mirage_py.search.networks.proved_rules import by_rules, substitutions_of
from mirage_py.search.networks.saturate import Limits, Saturation
from mirage_py.search.networks.substitution import Substitution
from mirage_py.search.substitutions.instances import drawn, graph_of
from mirage_py.targets import target
from mirage_py.ugraph.field import FIELDS, FieldOps


def saturated(program: Graph, *numbers: str) -> Saturation:
    """The network with the rules of these numbers, or with all, after one round."""
    egraph = EGraph()
    add_program(egraph, program)
    rules = substitutions_of([r for r in proved_rules() if r.name in numbers or not numbers])
    found = Saturation(egraph, rules, Limits(rounds=1, matches=20))
    found.run()
    return found


def made(program: Graph, found: Saturation) -> list[Graph]:
    """For each member of an output's class the program with that member as the output."""
    network = problem_of(program, found.graph, NetworkCosts(target("h200")))
    graphs = []
    for output in network.outputs:
        for number in range(len(network.members[output])):
            choice = {**dict.fromkeys(network.problem.options, 0), **network.problem.start}
            choice[output] = number
            selection = reachable(network.problem, choice)
            if selection is not None:
                graphs.append(network.graph_of(selection))
    return graphs


def assert_all_equal(program: Graph, graphs: list[Graph]) -> None:
    ops = FieldOps(FIELDS[0], seed=1)
    given = random_inputs(program, ops)
    want = over_field(program, given, ops)
    for graph in graphs:
        for one, other in zip(want, over_field(graph, given, ops), strict=True):
            assert np.array_equal(one.p, other.p)


def two_sums(*lead: int) -> Graph:
    """x a + y b, over leading axes."""
    b = GraphBuilder()
    x, y = b.input("x", (*lead, 3, 4)), b.input("y", (*lead, 3, 5))
    a, c = b.input("a", (4, 6), constant=True), b.input("c", (5, 6), constant=True)
    return b.build(b.apply("add", b.apply("matmul", x, a), b.apply("matmul", y, c)))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_a_rule_with_one_root_holds_for_rows_along_several_axes(lead: tuple[int, ...]):
    program = two_sums(*lead)
    found = saturated(program, "40")
    assert [a.substitution.name.split(":")[0] for a in found.applications] == ["rule 40"]
    graphs = made(program, found)
    assert any(n.operator == "concat" for g in graphs for n in g.nodes)
    assert_all_equal(program, graphs)


def convolutions(*padding: int, kernel: int = 3) -> Graph:
    """Two convolutions of one image, with two spatial axes."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 7, 6))
    weights = [b.input(n, (3, 4, kernel, 3), constant=True) for n in "vw"]
    pairs = zip(weights, padding, strict=True)
    parts = [b.apply("conv2d", x, w, padding=p, stride=2) for w, p in pairs]
    return b.build(*parts)


def test_a_rule_with_two_roots_merges_convolutions_at_two_spatial_axes():
    program = convolutions(1, 1)
    found = saturated(program, "84")
    assert [a.substitution.name for a in found.applications] == [
        "rule 84: conv2d, conv2d as concat, conv2d, split"
    ]
    graphs = made(program, found)
    assert any(n.operator == "split" for g in graphs for n in g.nodes)
    assert_all_equal(program, graphs)


def test_windows_that_differ_are_no_match():
    assert saturated(convolutions(1, 0), "84").applications == []


def test_a_pair_is_merged_by_the_proved_rule_and_its_weight_is_made_once():
    b = GraphBuilder()
    x = b.input("x", (16, 1024))
    weights = [b.input(n, (1024, 1024), constant=True) for n in "vw"]
    program = b.build(b.apply("mul", *(b.apply("matmul", x, w) for w in weights)))
    result = optimize_network(program, target("h200"))
    (step,) = result.steps
    assert step.rule == "rule 46: matmul, matmul as concat, matmul, split"
    assert step.proof == "proved for all sizes, certificate 46 of the rules"
    nodes = list(zip(result.graph.nodes, result.graph.is_constant, strict=True))
    assert [n.operator for n, known in nodes if known] == ["concat"]
    assert sum(n.operator == "matmul" for n, _ in nodes) == 1
    assert_all_equal(program, [result.graph])


def test_a_number_is_a_scalar_of_a_rule():
    b = GraphBuilder()
    x, w = b.input("x", (2, 3)), b.input("w", (3, 4))
    program = b.build(b.apply("scale", b.apply("matmul", x, w), factor=2.0))
    found = saturated(program, "48", "49")
    assert found.applications
    assert_all_equal(program, made(program, found))


def test_extents_that_broadcast_are_no_match():
    """x * (y + z) with one row of y and z: the rule is about equal shapes."""
    b = GraphBuilder()
    x, y, z = b.input("x", (3, 4)), b.input("y", (4,)), b.input("z", (4,))
    program = b.build(b.apply("mul", x, b.apply("add", y, z)))
    assert saturated(program, "6").applications == []


def test_a_mean_that_does_not_count_padding_is_no_match():
    def program(count_padding: int) -> Graph:
        b = GraphBuilder()
        x, y = b.input("x", (1, 2, 6, 6)), b.input("y", (1, 2, 6, 6))
        pooled = [
            b.apply("avg_pool2d", v, kernel=3, stride=2, padding=1, count_padding=count_padding)
            for v in (x, y)
        ]
        return b.build(b.apply("add", *pooled))

    assert saturated(program(0), "109").applications == []
    assert saturated(program(1), "109").applications != []


def without_parts() -> list[Rule]:
    """Rules of which no input has an axis of parts: a tensor does not say where its parts are."""
    return [
        r
        for r in proved_rules()
        if all(len(axis) == 1 for x in inputs(*r.left, *r.right) for axis in x.type)
    ]


def test_only_proved_rules_do_anything():
    rules = all_rules()
    assert {s.proof for s in substitutions_of(rules)} == {
        f"proved for all sizes, certificate {r.name} of the rules" for r in without_parts()
    }
    assert len(proved_rules()) - len(without_parts()) == 1
    x_plus_y = next(r for r in rules if r.name == "1")
    wrong = replace(x_plus_y, name="wrong", right=x_plus_y.left[0].args[:1], status=TESTED)
    assert substitutions_of([wrong]) == ()
    assert substitutions_of([replace(wrong, status=PROVED)]) != ()
    b = GraphBuilder()
    program = b.build(b.apply("add", b.input("x", (2,)), b.input("y", (2,))))
    assert all("wrong" not in s.name for s in by_rules(program))


def test_rules_about_operators_that_a_network_lacks_are_not_looked_for():
    b = GraphBuilder()
    program = b.build(b.apply("matmul", b.input("x", (2, 3)), b.input("w", (3, 4))))
    names: list[Substitution] = list(by_rules(program))
    assert names
    assert not any("conv" in s.name or "pool" in s.name for s in names)


def test_all_rules_on_a_network_of_200_operators_stay_within_the_bounds():
    b = GraphBuilder()
    y = b.input("x", (4, 8))
    for n in range(40):
        v, w = (b.input(f"{c}{n}", (8, 8), constant=True) for c in "vw")
        one, other = b.apply("matmul", y, v), b.apply("matmul", y, w)
        y = b.apply("relu", b.apply("add", one, b.apply("mul", other, y)))
    program = b.build(y)
    assert len(program.nodes) == 200
    rules = substitutions_of(proved_rules())
    assert len({rule.proof for rule in rules}) == len(without_parts())
    result = optimize_network(
        program, target("h200"), substitutions=rules, limits=Limits(solver=0.3)
    )
    assert result.bound == "none"
    assert result.nodes < 1_000
    assert result.after_us < result.before_us


@pytest.mark.parametrize("forward", [True, False])
def test_what_every_rule_makes_of_its_own_graph_has_the_same_values(forward: bool):
    done, rules = 0, [rule for rule in without_parts() if rule.applies(forward=forward)]
    together = 0
    for rule in rules:
        side = rule.left if forward else rule.right
        order = inputs(*side)
        # Roots that share no tensor are not looked for: pairs of relus, transposes, pools.
        shared = len(side) == 1 or bool({*inputs(side[0])} & {*inputs(side[1])})
        together += shared
        for seed in range(30 if shared else 3):
            try:
                program = graph_of(side, drawn((*rule.left, *rule.right), seed), order)
            except InputError:
                continue
            found = saturated(program, rule.name)
            graphs = made(program, found)
            assert_all_equal(program, graphs)
            if found.applications:
                done += 1
                break
    assert together > 40
    assert done >= 0.9 * together, (done, together)
