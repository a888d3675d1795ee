"""What an e-graph is not told would change no table; nothing goes from one e-graph to the next."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from mirage_py.axioms.laws.registry import laws_in_force
from mirage_py.axioms.saturation import saturate as saturate_module
from mirage_py.axioms.saturation.bindings import egg
from mirage_py.axioms.saturation.commands import Command, commands
from mirage_py.axioms.saturation.saturate import saturate
from mirage_py.axioms.terms.class_table import ClassTable
from mirage_py.axioms.terms.law import RINGS, Ring
from mirage_py.axioms.terms.term import ARITY, REDUCTIONS, Term, apply, const, leaf, reduce
from mirage_py.errors import UnsupportedError

X, Y, Z, M = (leaf(name) for name in "XYZM")
LEAVES = {"X": ("b.t", "k.l", "k.t"), "Y": ("b.t",), "Z": ("k.l", "k.t"), "M": ("b.t",)}
AXES = ("b.t", "k.l", "k.t")
ZERO = const("0")


def table_of(*roots: Term, ring: Ring = "expanded") -> ClassTable:
    return saturate(roots, LEAVES, axes=AXES, ring=ring)


def rules(told: Iterable[Command]) -> list[str]:
    return [c.rewrite.name for c in told if isinstance(c, egg.RewriteCommand)]


def every_rule(_: Iterable[Term], rings: Sequence[Ring]) -> list[Command]:
    sides = [
        side for ring in RINGS for law in laws_in_force(ring) for side in (law.left, law.right)
    ]
    operators = [
        apply(op, *[X] * arity) for op, arity in ARITY.items() if arity and op not in REDUCTIONS
    ]
    return commands([*sides, *operators, *(reduce(op, ("b.t",), X) for op in REDUCTIONS)], rings)


def test_laws_that_cannot_match_are_not_told():
    product = rules(commands([X * Y], RINGS))
    assert set(product) < set(rules(commands([X / Y], RINGS))) < set(rules(every_rule([], RINGS)))
    assert not [name for name in product if name.startswith(("maxima", "exponentials"))]
    # By another law: exp(x + y) = exp(x) * exp(y), and then those of products.
    assert set(product) < set(rules(commands([apply("exp", X + Y)], RINGS)))


def test_a_law_of_a_constant_needs_that_constant():
    def told(number: str) -> list[str]:
        return rules(commands([apply("maximum", X, const(number))], RINGS))

    assert len(told("0")) > len(told("7"))


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("name", ["softmax", "lora", "rmsnorm_matmul", "layer_norm"])
def test_laws_that_are_not_told_would_add_nothing(
    name: str, ring: Ring, programs: Any, builder: Any, monkeypatch: pytest.MonkeyPatch
):
    b = builder("lt")
    roots = programs[name](b)
    few = saturate(roots, b.leaves, axes=b.axes, ring=ring)
    monkeypatch.setattr(saturate_module, "commands", every_rule)
    assert saturate(roots, b.leaves, axes=b.axes, ring=ring) == few


def test_tables_do_not_depend_on_what_was_saturated_before():
    masked, squared = Y * Z, reduce("sum", ("k.l", "k.t"), Z * Z)
    squares = reduce("sum", ("k.l", "k.t"), masked * masked)
    sequence = [
        (apply("maximum", apply("silu", Z), Y),),
        (reduce("sum", ("k.l", "k.t"), X),),
        (apply("where", apply("le", squared, const("0.5")), X + const("3"), ZERO),),
        (apply("minimum", masked, squares * M), apply("where", X, Y, ZERO)),
    ]
    alone = []
    for roots in sequence:
        saturate_module._IDLE.clear()
        alone.append(table_of(*roots))
    for _ in range(3):
        assert [table_of(*roots) for roots in sequence] == alone
    for roots, table in zip(sequence, alone, strict=True):
        assert table.roots == tuple(table.class_of(root) for root in roots)


def test_laws_are_told_once(monkeypatch: pytest.MonkeyPatch):
    saturate_module._IDLE.clear()
    made: list[Any] = []
    of_egglog = egg.EGraph
    monkeypatch.setattr(egg, "EGraph", lambda: made.append(of_egglog()) or made[-1])
    first, second = table_of(X / Y), table_of(Z / (X / Y))
    assert len(made) == 1
    assert (first.size, second.size) == (table_of(X / Y).size, table_of(Z / (X / Y)).size)
    table_of(apply("exp", X))  # other laws
    assert len(made) == 2
    # A bound on rounds or rows leaves nothing behind.
    saturate((Z / (X / Y),), LEAVES, axes=AXES, ring="expanded", max_nodes=20)
    assert table_of(Z / (X / Y)) == second
    assert len(made) == 2


def test_without_egglog_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "egglog", None)
    monkeypatch.delitem(sys.modules, "mirage_py.axioms.saturation.bindings")
    with pytest.raises(UnsupportedError, match=r"pip install 'mirage-py\[search\]'"):
        importlib.import_module("mirage_py.axioms.saturation.bindings")
