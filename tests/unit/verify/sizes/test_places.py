"""Constant positions at other sizes: inside stays inside, and no two become one."""

from __future__ import annotations

import pytest

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.validate import validate_program
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.field_test import programs
from mirage_py.verify.field_test.programs import compare_programs
from mirage_py.verify.sizes.shrink import shrink, small_places


def read_at(*positions: int) -> Program:
    """A sum over 32,000 elements less the elements at some positions."""
    b = ProgramBuilder("read_at")
    d = b.dim("d", 32000)
    b.input("x", (32000,), F32)
    value = b.sum(b.load("x", (ix.dim(d),)), (d,))
    for position in positions:
        value = b.apply("sub", value, b.load("x", (ix.const(position),)))
    b.output("y", value, (), F32)
    return b.build()


def places(program: Program, extent: int) -> list[int]:
    """Where the loads at constants read at a small size."""
    moved = small_places(program, (), {"d": extent})
    small = shrink(program, {"d": extent}, places=moved)
    validate_program(small)
    (x,) = small.inputs
    loads = [n.access.index[0] for n in small.nodes if n.op == "load"]
    found = [e.value for e in loads if e.op == "const"]
    assert x.shape == (max(extent, *(p + 1 for p in found)),)
    return found


def test_a_position_inside_stays_inside() -> None:
    assert places(read_at(31900), 7) == [6]
    assert places(read_at(0, 3, 31900), 7) == [0, 3, 6]


def test_different_positions_stay_different_and_in_order() -> None:
    assert places(read_at(6, 31900, 31999), 7) == [6, 4, 5]
    # No room for all of them: they stay where they are.
    assert places(read_at(1, 2, 500, 31900), 3) == [1, 2, 500, 31900]


def test_a_position_outside_stays() -> None:
    b = ProgramBuilder("outside")
    d = b.dim("d", 40)
    b.input("x", (400,), F32)
    last = b.load("x", (ix.const(399),))
    b.output("y", b.apply("add", last, b.sum(b.load("x", (ix.dim(d),)), (d,))), (), F32)
    assert small_places(b.build(), (), {"d": 5}) == {}


def test_positions_of_two_graphs_do_not_meet() -> None:
    one, other = read_at(31900), read_at(31901)
    moved = small_places(one, (), {"d": 7}, others=(other,))
    assert moved == {("x", 0, 31900): 5, ("x", 0, 31901): 6}
    assert not compare_programs(one, other, trials=2, real_sizes=False).equal
    found = compare_programs(one, one, trials=2, real_sizes=False)
    assert found.equal


def test_what_is_compared_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = programs.random_inputs

    def counted(program, ops):
        drawn.append(max(t.elements for t in program.inputs))
        return real(program, ops)

    monkeypatch.setattr(programs, "random_inputs", counted)
    assert compare_programs(read_at(31900), read_at(31900), trials=2, real_sizes=False).equal
    assert len(drawn) == 2
    assert max(drawn) <= 13
