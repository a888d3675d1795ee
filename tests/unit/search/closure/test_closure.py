"""The closure loses nothing: compared with a closure without a class table."""

from __future__ import annotations

import re
from itertools import product

import pytest
from unit.search import programs
from unit.search.pools import closed

from mirage_py.axioms.terms.class_table import ClassTable, Row
from mirage_py.reasons import Code, reason
from mirage_py.search.closure.closure import Closure, Ground
from mirage_py.search.closure.hits import draw, hits
from mirage_py.search.closure.pool import Alternative, Pool
from mirage_py.search.closure.rules import RefusedError, joint_loop, joint_stage, may_be_built
from mirage_py.search.space.abstraction import abstract
from mirage_py.search.space.counters import Counter
from mirage_py.search.space.leaves import leaf_name
from mirage_py.search.space.spaces import Configuration, representative_space
from mirage_py.ugraph.field import FIELDS, DivisionByZero
from mirage_py.ugraph.operators import operator


class Blind:
    """Everything that a few operators make of the leaves, down to a depth."""

    def __init__(self, program, values, looped, ops):
        self.values = values
        self.space = values.space
        self.looped = looped
        self.ops = ops
        self.buildable = tuple(frozenset(n.dims) for n in program.nodes)
        self.pool = Pool()
        for leaf in abstract(program).leaves:
            loop = looped if looped in leaf.dims else None
            way = Alternative(leaf.node.op, (), leaf.node.attr)
            self.keep(self.values.leaf(leaf.node), loop, int(loop is not None), way)

    def keep(self, value, looped, stage, way):
        dims = self.space.tile_dims(self.values.shape(value))
        self.pool.add(value, looped, dims, stage, way)

    def deepen(self):
        """One more operator on top of everything there is."""
        known = range(len(self.pool))
        for number in known:
            self.reduce(number)
        for op in self.ops:
            for args in product(known, repeat=operator(op).arity):
                if not operator(op).commutative or list(args) == sorted(args):
                    self.combine(op, args)

    def reduce(self, number):
        tensor = self.pool[number]
        for dim in self.space.loopable:
            loop, tile = self.space.axes[dim]
            if dim in tensor.dims:
                whole = tensor.looped != dim
                axes, looped = ((loop, tile), tensor.looped) if whole else ((tile,), dim)
                way = Alternative("sum", (number,), (dim,))
            elif tensor.looped == dim:
                axes, looped, way = (loop,), None, Alternative("accum_sum", (number,), (dim,))
            else:
                continue
            value = self.values.reduce("sum", tensor.value, axes)
            self.keep(value, looped, tensor.stage, way)

    def combine(self, op, args):
        operands = [self.pool[a] for a in args]
        try:
            looped = joint_loop(operands)
            stage = joint_stage(operands, looped, 3)
        except RefusedError:
            return
        if op == "mul":
            self.contract(args, looped, stage)
        if may_be_built(operands, self.buildable):
            way = Alternative(op, args)
            if op == "mul" and args[0] == args[1]:
                way = Alternative("square", args[:1])
            try:
                value = self.values.apply(op, tuple(t.value for t in operands))
            except DivisionByZero:
                return
            self.keep(value, looped, stage, way)

    def contract(self, args, looped, stage):
        left, right = (self.pool[a] for a in args)
        shared = [d for d in left.dims if d in right.dims and d in self.space.loopable]
        both = [d for d in left.dims if d in right.dims]
        if len(both) in (len(left.dims), len(right.dims)):
            return
        for dim in shared:
            axes = self.space.axes[dim][1 if dim == looped else 0 :]
            value = self.values.contract((left.value, right.value), axes)
            self.keep(value, looped, stage, Alternative("matmul", args, (dim,)))


def ways_to(pool, target):
    """Each way to make a value, named by its operands' values, and how many leaves it names."""
    ways = [(t.looped, w) for t in pool.tensors if t.value == target for w in t.alternatives]
    found = {}
    for looped, way in ways:
        operands = sorted(f"{pool[a].value} in {pool[a].looped}" for a in way.args)
        leaves = len(re.findall(r"[A-Z]\[", pool.formula(way, 6)))
        found[f"{way.op}[{way.attr}]({operands}) in {looped}"] = leaves
    return found


def scaled_sum():
    s = programs.Spec("scaled_sum", b=8, d=64)
    product_ = s.b.apply("mul", s.load("X", "bd"), s.load("C", "b"))
    s.output("Y", s.b.sum(product_, "d"), "b")
    return s.b.build()


def scaled_matmul():
    s = programs.Spec("scaled_matmul", b=8, d=64, n=8)
    x = s.b.apply("div", s.load("X", "bd"), s.load("C", "b"))
    s.output("Y", s.contract(x, s.load("W", "dn"), "d"), "bn")
    return s.b.build()


def normalised_row():
    s = programs.Spec("normalised_row", b=8, d=64)
    x = s.load("X", "bd")
    s.output("Y", s.b.apply("div", x, s.b.sum(x, "d")), "bd")
    return s.b.build()


def normalised_total():
    s = programs.Spec("normalised_total", b=8, d=64)
    x, z = s.load("X", "bd"), s.load("Z", "bd")
    s.output("Y", s.b.sum(s.b.apply("div", z, s.b.sum(x, "d")), "d"), "b")
    return s.b.build()


def chained_matmul():
    s = programs.Spec("chained_matmul", b=8, d=64, r=32, n=8)
    low = s.contract(s.load("X", "bd"), s.load("A", "dr"), "d")
    s.output("Y", s.contract(low, s.load("B", "rn"), "r"), "bn")
    return s.b.build()


@pytest.mark.parametrize(
    ("make", "ops", "looped", "depth"),
    [
        (scaled_sum, ("mul",), (), 3),
        (scaled_sum, ("mul",), ("d",), 3),
        (scaled_matmul, ("mul", "div"), (), 2),
        (scaled_matmul, ("mul", "div"), ("d",), 3),
        (normalised_row, ("div",), (), 2),
        (normalised_row, ("div",), ("d",), 3),
        (normalised_total, ("div",), (), 3),
        (chained_matmul, ("mul",), (), 2),
        (chained_matmul, ("mul",), ("d",), 3),
        (programs.row_softmax, ("exp", "div"), (), 3),
    ],
)
def test_no_way_to_an_output_is_lost(make, ops, looped, depth):
    found = closed(make(), *looped)
    blind = Blind(make(), found.values, looped[0] if looped else None, ops)
    for _ in range(depth):
        blind.deepen()
    (target,) = found.targets
    expected = ways_to(found.pool, target)
    # A way that names leaves more often than any of ours cancels something: c / (c * c), x / x * y.
    most = max(expected.values())
    blindly = {way: n for way, n in ways_to(blind.pool, target).items() if n <= most}
    assert len(blind.pool) > len(found.pool)
    assert blindly.keys() == expected.keys()


def test_a_wider_product_is_contracted_and_never_built():
    found = closed(programs.attention())
    wide = [t for t in found.pool.tensors if len(t.dims) > 3]
    assert not wide
    assert found.counter.freeze().pruned[reason(Code.MATERIALISATION)] > 0


def test_a_square_has_one_spelling():
    found = closed(programs.rmsnorm_matmul())
    ops = [
        w.op for t in found.pool.tensors for w in t.alternatives if len(set(w.args)) < len(w.args)
    ]
    assert ops == []


def test_sums_over_two_dimensions_are_contracted_at_once():
    s = programs.Spec("two_at_once", b=4, h=8, e=8, n=4)
    s.output("Y", s.contract(s.load("X", "bhe"), s.load("W", "hen"), "he"), "bn")
    found = closed(s.b.build())
    ways = [w.attr for t in found.pool.tensors for w in t.alternatives if w.op == "matmul"]
    assert ("h", "e") in ways


def test_a_gemv_is_a_product_and_a_sum():
    s = programs.Spec("gemv", d=64, n=8)
    s.output("Y", s.contract(s.load("X", "d"), s.load("W", "dn"), "d"), "n")
    ops = [w.op for t in closed(s.b.build()).pool.tensors for w in t.alternatives]
    assert ops == ["load", "load", "mul", "sum"]


def test_stages_count_the_loops_that_must_be_over():
    pool = closed(programs.row_statistics(), "n").pool
    by_loop = {(t.looped, t.stage) for t in pool.tensors}
    # In three loops: mean, variance, the standardised row.
    assert {("n", 1), ("n", 2), ("n", 3), (None, 1), (None, 2)} <= by_loop
    assert (None, 3) not in by_loop


def test_classes_have_one_value_each():
    for make in (programs.rmsnorm_matmul, programs.causal_attention, programs.layernorm_linear):
        value_of = {}
        for tensor in closed(make()).pool.tensors:
            for class_ in tensor.classes:
                assert value_of.setdefault(class_, tensor.value) == tensor.value


def test_a_class_more_of_a_value_is_one_step_more(monkeypatch: pytest.MonkeyPatch):
    # As where the laws were cut off: 51 tensors of many classes had taken 97,000 candidates.
    s = programs.Spec("twice", d=8)
    s.output("Y", s.b.apply("exp", s.b.apply("exp", s.load("X", "d"))), "d")
    program = s.b.build()
    leaf, many = leaf_name(program.nodes[0]), 30
    rows = [Row("leaf", leaf, (), 0)]
    rows += [Row("exp", "", (0,), 1 + n) for n in range(many)]
    rows += [Row("exp", "", (1 + n,), 1 + many + n) for n in range(many)]
    table = ClassTable(tuple(rows), (1 + many,), ((),) * (1 + 2 * many), "factored", 1, "nodes")
    form, space = abstract(program), representative_space(program)
    values, targets = draw(program, space, FIELDS[0], 0)
    ground = Ground(table, form.leaves, (frozenset("d"),), 3, 100, skip_divisions=False)
    counter = Counter()
    closure = Closure(ground, values, Configuration(), counter)
    assert closure.run()
    assert counter.candidates == 2 * many
    assert [len(t.classes) for t in closure.pool.tensors] == [1, many, many]
    assert list(hits(program, closure.pool, targets)) == [(2,)]
