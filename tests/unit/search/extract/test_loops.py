"""Arrangements of derivations written by hand."""

from __future__ import annotations

from dataclasses import replace

from unit.search import programs

from mirage_py.search.closure.closure import given_access
from mirage_py.search.closure.derivation import Derivation, Step
from mirage_py.search.extract.loops import arrangement_us, arrangements, loops_in_vain, shared_out
from mirage_py.search.extract.lower import lower, output_stores
from mirage_py.search.extract.work import BlockWork
from mirage_py.ugraph.checks.validate import validate_ugraph
from mirage_py.ugraph.ir.ugraph import UGraph


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
        block = lower(program, rmsnorm(), arrangement, output_stores(program))
        validate_ugraph(UGraph(program, (block,)))
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


def test_what_is_stored_elsewhere_is_not_computed():
    program = programs.rmsnorm_matmul()
    both = replace(rmsnorm(), outputs=(3, 8))
    (total, whole) = ("b",), ("b", "n")
    fused = next(arrangements(both))
    (store,) = output_stores(program)
    block = lower(program, both, fused, (given_access("mid0", total), None))
    assert [n.op for n in block.nodes] == ["load", "square", "sum", "accum_sum", "store"]
    assert [axis.dim for axis in block.grid] == [*total]
    block = lower(program, both, fused, (None, store))
    assert [n.op for n in block.nodes].count("store") == 1
    assert [axis.dim for axis in block.grid] == [*whole]


def test_dimensions_that_are_not_reduced_are_shared_out():
    assert shared_out(rmsnorm()) == ("b", "n")
    assert not loops_in_vain(rmsnorm())


def test_a_loop_over_what_is_not_reduced_is_in_vain():
    x = next(n.attr for n in programs.rmsnorm_matmul().nodes if n.op == "load")
    copy = Derivation((Step("load", (), x, ("b", "d"), "d"),), (0,))
    assert loops_in_vain(copy)
    assert shared_out(copy) == ("b", "d")


def test_what_an_earlier_kernel_made_is_read_where_it_is_stored():
    program = programs.rmsnorm_matmul()
    steps = (
        Step("load", (), given_access("made0", ("b", "n")), ("b", "n"), None),
        Step("load", (), given_access("made1", ("b",)), ("b",), None),
        Step("div", (0, 1), None, ("b", "n"), None),
    )
    last = Derivation(steps, (2,))
    homes = {"made0": given_access("mid7", ("n", "b")), "made1": given_access("mid8", ("b",))}
    block = lower(program, last, next(arrangements(last)), output_stores(program), renamed=homes)
    assert [str(n.attr) for _, n in block.loads()] == ["mid7[n, b]", "mid8[b]"]
    assert [axis.dim for axis in block.grid] == ["b", "n"]
