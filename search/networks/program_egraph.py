"""An operator graph in an e-graph, as an extraction problem, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.search.networks.costs import LibraryCall, NetworkCosts, is_packed, signature
from mirage_py.search.networks.egraph import INPUT, RESULT, EGraph, ENode
from mirage_py.search.networks.extraction.problem import Kind, Option, Problem, Selection


def add_program(egraph: EGraph, program: Graph) -> None:
    """Every value of a program becomes a class."""
    for _ in members_of(program, egraph):
        pass


def members_of(program: Graph, egraph: EGraph) -> Iterator[tuple[Value | None, ENode, int]]:
    """Members that a program has in an e-graph, operands first, each with its class.

    The value is None for an operator with several results, whose values follow.
    """
    classes: dict[Value, int] = {}
    for place, entry in enumerate(program.inputs):
        value, node = Value(INPUTS, place), ENode(INPUT, (("name", entry.name),), ())
        classes[value] = egraph.add(node, [entry.type])
        yield value, node, classes[value]
    for number, (made, types) in enumerate(zip(program.nodes, program.types, strict=True)):
        operands = tuple(classes[v] for v in made.inputs)
        node = ENode(made.operator, made.attributes, operands)
        class_ = egraph.add(node)
        if len(types) == 1:
            classes[Value(number)] = class_
            yield Value(number), node, class_
            continue
        yield None, node, class_
        for index in range(len(types)):
            value, part = Value(number, index), ENode(RESULT, (("index", index),), (class_,))
            classes[value] = egraph.add(part)
            yield value, part, classes[value]


def classes_of(program: Graph, egraph: EGraph) -> dict[Value, int]:
    """The class of each value."""
    return {v: c for v, _, c in members_of(program, egraph) if v is not None}


@dataclass(frozen=True)
class NetworkProblem:
    """An extraction problem with the member that each option stands for."""

    program: Graph
    problem: Problem
    members: Mapping[int, tuple[ENode, ...]]
    constant: Mapping[int, None] = field(default_factory=dict)

    def graph_of(self, selection: Selection) -> Graph:
        """The graph of a selection, with the program's inputs and outputs."""
        builder = GraphBuilder()
        names: dict[str, Value] = {}
        for entry in self.program.inputs:
            known = entry.name in self.program.constants
            names[entry.name] = builder.input(
                entry.name, entry.type.shape, entry.type.dtype, constant=known
            )
        made: dict[int, tuple[Value, ...]] = {}
        for class_, option in selection.items():
            node = self.members[class_][option]
            if node.operator == INPUT:
                made[class_] = (names[str(node.attribute("name"))],)
            elif node.operator == RESULT:
                made[class_] = (made[node.children[0]][int(node.attribute("index"))],)
            else:
                operands = [made[c][0] for c in node.children]
                made[class_] = builder.apply_all(node.operator, *operands, **dict(node.attributes))
        return builder.build(*(made[root][0] for root in self.outputs))

    @property
    def outputs(self) -> tuple[int, ...]:
        """The class of each output of the program."""
        return self.problem.outputs

    def used(self, selection: Selection) -> list[tuple[int, ENode]]:
        """The members of a selection, with their classes."""
        return [(class_, self.members[class_][option]) for class_, option in selection.items()]


def library_calls(program: Graph, egraph: EGraph, costs: NetworkCosts) -> list[LibraryCall]:
    """Every operator of the e-graph that a library would run at each call."""
    constant = constant_classes(egraph, program)
    found = []
    for class_, members in egraph.classes.items():
        for node in members if class_ not in constant else ():
            if costs.kind(node) is Kind.LIBRARY:
                operands = tuple(t for c in node.children for t in egraph.types[c])
                us = costs.library_us(node, operands, egraph.types[class_])
                found.append(LibraryCall(signature(node, operands), node, operands, us))
    return found


def problem_of(program: Graph, egraph: EGraph, costs: NetworkCosts) -> NetworkProblem:
    """What is to be extracted from an e-graph that a program was added to."""
    constant = constant_classes(egraph, program)
    fit = {c: tuple(m for m in ms if c not in m.children) for c, ms in egraph.classes.items()}
    options = {
        c: tuple(_option(egraph, costs, m, c, constant) for m in members)
        for c, members in fit.items()
    }
    start: dict[int, int] = {}
    # Where the program's own members became one class, the first of them computes it: a later one
    # may read the class itself.
    for _, node, class_ in members_of(program, egraph):
        if class_ not in start:
            start[class_] = fit[class_].index(egraph.canonical(node))
    moved = {c: 0.0 if c in constant else costs.moved_us(egraph.types[c]) for c in options}
    classes = classes_of(program, egraph)
    outputs = tuple(classes[v] for v in program.outputs)
    problem = Problem(options, moved, costs.launch_us, outputs, start)
    return NetworkProblem(program, problem, fit, constant)


def constant_classes(egraph: EGraph, program: Graph) -> dict[int, None]:
    """Classes whose value follows from weights alone: computed once, before the first call."""
    weights = dict.fromkeys(program.constants)
    constant: dict[int, None] = {}
    before = -1
    while before != len(constant):
        before = len(constant)
        for class_, members in egraph.classes.items():
            if class_ not in constant and any(_follows(m, weights, constant) for m in members):
                constant[class_] = None
    return constant


def _follows(node: ENode, weights: Mapping[str, None], constant: Mapping[int, None]) -> bool:
    if node.operator == INPUT:
        return node.attribute("name") in weights
    return all(child in constant for child in node.children)


def _option(
    egraph: EGraph, costs: NetworkCosts, node: ENode, class_: int, constant: Mapping[int, None]
) -> Option:
    kind, types = costs.kind(node), egraph.types[class_]
    if class_ in constant:
        return Option(node.children, Kind.FREE)
    if kind is not Kind.LIBRARY:
        is_strided = kind is Kind.VIEW and costs.is_strided(node)
        return Option(node.children, kind, is_strided=is_strided)
    operands = [t for c in node.children for t in egraph.types[c]]
    return Option(node.children, kind, costs.library_us(node, operands, types), is_packed(node))
