"""The enumerator against a plain one, and what it builds on."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from completeness.audit import belongs, brute_force, candidates
from completeness.containment import spelling
from completeness.draws import drawn
from completeness.graphs import Graph, Step
from completeness.kernels import ugraph_of
from completeness.kinds import HAND, Configuration, Kind, Operation, meet, operations, result_kind
from completeness.programs import Subject

from mirage_py.ugraph.field import DivisionByZero
from mirage_py.ugraph.ir.ugraph import BlockGraph

ORDER = ("b", "d", "n")
ONE = Configuration(ORDER, (("d",),))


class Plain:
    """All sets of up to some operators that are closed under operands, by the definition.

    A term is a number; ``steps`` has its operator, with terms as operands.
    """

    def __init__(self, subject):
        self.most = subject.most
        self.configuration = subject.configuration
        self.draw, self.outputs = drawn(subject.program, subject.configuration, 1)
        self.vocabulary = [o for o in subject.vocabulary if not o.swapped]
        self.steps = list(self.draw.leaves)
        self.numbers = {}

    def run(self):
        found, sets = {}, {frozenset()}
        for _ in range(self.most):
            sets = {terms | {t} for terms in sets for t in self.extensions(terms)}
            for terms in sets:
                for roots in product(terms, repeat=len(self.outputs)):
                    graph = self.graph(roots)
                    if graph.operators == len(terms) and gives(graph, self.draw, self.outputs):
                        found[spelling(graph)] = graph
        return found

    def extensions(self, terms):
        known = [*range(len(self.draw.leaves)), *sorted(terms)]
        for operation in self.vocabulary:
            for args in product(known, repeat=operation.arity):
                if operation.commutative and args != tuple(sorted(args)):
                    continue
                if operation.alone and args[0] == args[-1]:
                    continue
                if operation.op == HAND and args[0] < len(self.draw.leaves):
                    continue
                kinds = [self.steps[a].kind for a in args]
                kind = result_kind(operation, kinds, self.configuration)
                if kind is not None:
                    term = self.number(Step(operation.op, args, operation.attr, kind))
                    if term not in terms:
                        yield term

    def number(self, step):
        if step not in self.numbers:
            self.numbers[step] = len(self.steps)
            self.steps.append(step)
        return self.numbers[step]

    def graph(self, roots):
        kept, todo = set(), list(roots)
        while todo:
            term = todo.pop()
            kept.add(term)
            todo.extend(self.steps[term].args)
        place = {term: n for n, term in enumerate(sorted(kept))}
        steps = [self.steps[term] for term in place]
        steps = [replace(s, args=tuple(place[a] for a in s.args)) for s in steps]
        return Graph(tuple(steps), tuple(place[r] for r in roots))


def gives(graph, draw, expected):
    outputs = draw.program.outputs
    for root, output in zip(graph.outputs, outputs, strict=True):
        kind = graph.steps[root].kind
        if kind.dims != draw.program.nodes[output.node].dims:
            return False
        if kind.looped is not None and kind.looped not in kind.dims:
            return False
    try:
        values = draw.values(graph)
    except DivisionByZero:
        return False
    pairs = zip(graph.outputs, expected, strict=True)
    return all(draw.ops.equal(values[o], e) for o, e in pairs)


@pytest.mark.parametrize(
    "subject",
    [
        Subject("matmul", ((),), 3),
        Subject("chain", (("d",),), 3),
        Subject("l2_norm", ((),), 4),
        Subject("softmax", (("n",),), 4),
        Subject("two_outputs", ((),), 3),
        Subject("shifted_sum", ((),), 3),
        Subject("centred", ((),), 3),
        Subject("matmul", ((), ()), 3, "d"),
        Subject("chain", ((), ()), 3),
    ],
    ids=str,
)
def test_it_finds_what_a_plain_enumerator_finds(subject):
    found = [spelling(g) for g in candidates(subject).graphs]
    plain = [key for key, g in Plain(subject).run().items() if belongs(subject, g)]
    assert sorted(map(repr, found)) == sorted(map(repr, plain))
    assert found


@pytest.mark.parametrize(
    "subject",
    [Subject("matmul", (("d",),), 5), Subject("softmax", ((),), 5), Subject("chain", ((), ()), 4)],
    ids=str,
)
def test_each_graph_is_met_once(subject):
    found = [spelling(g) for g in candidates(subject).graphs]
    assert len(found) == len(dict.fromkeys(found)) > 1


def test_more_operators_find_more():
    few, more = (brute_force(Subject("two_outputs", ((),), most)).graphs for most in (2, 4))
    assert [str(g) for g in few] == ["sum[d](X[b, d]), div(X[b, d], sum[d](X[b, d]))"]
    assert len(more) > 1


def test_loops_follow_one_another():
    subject = Subject("softmax", (("n",),), 4)
    (graph,) = brute_force(subject).graphs
    assert graph.loops == ((1, "n"), (2, "n"))
    (block,) = ugraph_of(subject.program, graph).kernels
    assert isinstance(block, BlockGraph)
    body = [(s.loop, [block.nodes[n].op for n in s.nodes]) for s in block.sections]
    first = ("n", ["load", "exp", "sum", "accum_sum"])
    assert body == [first, ("n", ["load", "exp", "div", "store"])]


def test_a_loop_does_not_meet_another_nor_the_whole_of_its_dimension():
    assert meet([Kind("d", ("b", "d")), Kind(None, ("b",))], ORDER) == Kind("d", ("b", "d"))
    assert meet([Kind("d", ("b", "d")), Kind("n", ("b", "n"))], ORDER) is None
    assert meet([Kind("d", ("b", "d")), Kind(None, ("b", "d"))], ORDER) is None


def test_an_accumulator_takes_a_reduced_tile():
    accumulate = Operation("accum_sum", 1, ("d",))
    assert result_kind(accumulate, [Kind("d", ("b",))], ONE) == Kind(None, ("b",))
    assert result_kind(accumulate, [Kind("d", ("b", "d"))], ONE) is None
    assert result_kind(accumulate, [Kind(None, ("b",))], ONE) is None


def test_a_contraction_has_two_sides():
    contract = Operation("matmul", 2, ("d",))
    left, right, row = (Kind(None, tuple(dims)) for dims in ("bd", "dn", "d"))
    assert result_kind(contract, [left, right], ONE) == Kind(None, ("b", "n"))
    assert result_kind(contract, [left, row], ONE) is None


def test_a_vocabulary_has_an_accumulator_for_every_loop():
    ops = operations([("sub", 2, False)], ("sum", "max"), ("d", "n"), ONE)
    words = [(o.op, o.attr, o.swapped) for o in ops]
    assert words == [
        ("sub", None, False),
        ("sub", None, True),
        ("sum", ("d",), False),
        ("sum", ("n",), False),
        ("max", ("d",), False),
        ("max", ("n",), False),
        ("accum_sum", ("d",), False),
        ("accum_max", ("d",), False),
    ]


def test_what_the_first_kernel_stores_is_read_whole_or_in_tiles():
    two = Configuration(ORDER, (("d",), ("n",)), gridded=("b",))
    hand, total = Operation(HAND, 1), Operation("sum", 1, ("b",))
    assert result_kind(hand, [Kind(None, ("b", "n"))], two) == Kind("n", ("b", "n"), 1)
    assert result_kind(hand, [Kind("d", ("b", "d"))], two) == Kind(None, ("b", "d"), 1)
    assert result_kind(hand, [Kind("d", ("b",))], two) is None
    assert result_kind(hand, [Kind(None, ("b",), 1)], two) is None
    assert result_kind(total, [Kind(None, ("b",))], two) is None
    assert result_kind(total, [Kind(None, ("b",), 1)], two) == Kind(None, (), 1)


@pytest.mark.parametrize(
    "name", ["kinds", "draws", "terms", "enumeration", "graphs", "kernels", "cost", "programs"]
)
def test_the_enumerator_knows_neither_search_nor_laws(name):
    text = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    assert "mirage_py.search" not in text
    assert "mirage_py.axioms" not in text
