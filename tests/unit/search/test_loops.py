"""Arrangements of derivations written by hand."""

from __future__ import annotations

from unit.search import programs

from mirage_py.search.derivation import Derivation, Step
from mirage_py.search.loops import arrangement_us, arrangements
from mirage_py.search.lower import lower
from mirage_py.search.work import BlockWork
from mirage_py.ugraph.validate import validate_ugraph


class Ledger:
    """Counts steps by operator."""

    def step_us(self, op, attr, dims, loop):
        return 1.0

    def loop_us(self):
        return 100.0


def rmsnorm():
    """sum_d(X W) / sqrt(sum_d X^2), all in one loop."""
    x, w = (n.attr for n in programs.rmsnorm_matmul().nodes if n.op == "load" and len(n.dims) == 2)
    steps = (
        Step("load", (), x, ("b", "d"), "d"),
        Step("square", (0,), None, ("b", "d"), "d"),
        Step("sum", (1,), ("d",), ("b",), "d"),
        Step("accum_sum", (2,), ("d",), ("b",), None),
        Step("sqrt", (3,), None, ("b",), None),
        Step("load", (), w, ("d", "n"), "d"),
        Step("matmul", (5, 0), ("d",), ("b", "n"), "d"),
        Step("accum_sum", (6,), ("d",), ("b", "n"), None),
        Step("div", (7, 4), None, ("b", "n"), None),
    )
    return Derivation(steps, (8,))


def test_stages():
    assert rmsnorm().stages == (1, 1, 1, 1, 1, 1, 1, 1, 1)


def test_fused_and_split():
    fused, split = arrangements(rmsnorm())
    assert fused.name == "fused"
    assert fused.loops == ("d",)
    assert fused.bodies == ((0, 1, 2, 3, 5, 6, 7),)
    assert fused.straights == ((), (4, 8))
    assert split.name == "split"
    assert split.loops == ("d", "d")
    assert split.bodies == ((0, 1, 2, 3), (0, 5, 6, 7))
    assert split.straights == ((), (4,), (8,))


def test_a_step_costs_as_often_as_it_is_computed():
    fused, split = arrangements(rmsnorm())
    assert arrangement_us(rmsnorm(), fused, Ledger()) == 100 + 9
    assert arrangement_us(rmsnorm(), split, Ledger()) == 200 + 10


def test_lowering_keeps_the_rules_of_the_ir():
    program = programs.rmsnorm_matmul()
    for arrangement in arrangements(rmsnorm()):
        ugraph = lower(program, rmsnorm(), arrangement)
        validate_ugraph(ugraph)
        (block,) = ugraph.kernels
        product = next(n for n in block.nodes if n.op == "matmul")
        assert [str(block.nodes[a].attr) for a in product.args] == ["X[b, d]", "W[d, n]"]


def test_work_grows_with_the_dimensions_and_the_iterations():
    work = BlockWork(programs.rmsnorm_matmul())
    tile = work.step_us("square", None, ("b", "d"), None)
    assert work.step_us("square", None, ("b", "d"), "d") > tile > 0
    assert work.step_us("exp", None, ("b", "d"), None) > tile
    assert work.step_us("const", 1.0, (), None) == 0
    # A scalar step in a loop is done in every iteration.
    assert work.step_us("div", None, ("b",), "d") > work.step_us("div", None, ("b",), None)
