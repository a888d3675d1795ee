"""A search that prunes too much is found out: the audit is run on broken ones."""

from __future__ import annotations

import pytest
from completeness.audit import audit
from completeness.programs import Subject

from mirage_py.axioms.laws.registry import laws_in_force
from mirage_py.axioms.saturation import commands
from mirage_py.axioms.terms.class_table import ClassTable
from mirage_py.reasons import Code, reason
from mirage_py.search.closure import closure
from mirage_py.search.closure.pool import Pool
from mirage_py.search.closure.rules import RefusedError, joint_loop, may_be_built
from mirage_py.search.enumerate import candidates


@pytest.fixture(autouse=True)
def _fresh_laws():
    """The rules that saturation makes of the laws are kept for the whole process."""
    commands.rules_of.cache_clear()
    yield
    commands.rules_of.cache_clear()


def without_law(name):
    return lambda ring: tuple(law for law in laws_in_force(ring) if law.name != name)


def test_sound_pruning_passes():
    assert audit(Subject("share_matmul", ((),), 4)).missing == []
    assert audit(Subject("softmax", (("n",),), 4)).missing == []


@pytest.mark.parametrize(
    ("law", "name", "looped", "most", "lost"),
    [
        (
            "division.multiply", "share_matmul", (), 3,
            "div(matmul[d](W[d, n], X[b, d]), sum[d](X[b, d]))",
        ),
        (
            "sums.multiply", "scaled_matmul", (), 2,
            "mul(matmul[d](W[d, n], X[b, d]), C[b])",
        ),
        ("exponentials.multiply", "exp_product", (), 3, "sum[d](exp(add(Z[b, d], X[b, d])))"),
    ],
)  # fmt: skip
def test_a_missing_law_is_found_out(monkeypatch, law, name, looped, most, lost):
    assert audit(Subject(name, (looped,), most)).missing == []
    commands.rules_of.cache_clear()
    monkeypatch.setattr(commands, "laws_in_force", without_law(law))
    assert lost in audit(Subject(name, (looped,), most)).missing


def test_rows_that_are_dropped_from_the_table_are_found_out(monkeypatch):
    """No division of what has been summed."""
    by_argument = ClassTable.by_argument.func

    def fewer(table):
        sums = {row.result for row in table.rows if row.op == "sum"}
        return {
            class_: tuple(r for r in rows if r.op != "div" or r.args[0] not in sums)
            for class_, rows in by_argument(table).items()
        }

    monkeypatch.setattr(ClassTable, "by_argument", property(fewer))
    missing = audit(Subject("share_matmul", ((),), 3)).missing
    assert "div(matmul[d](W[d, n], X[b, d]), sum[d](X[b, d]))" in missing


def test_loops_that_refuse_what_another_has_accumulated_are_found_out(monkeypatch):
    def strict(operands):
        loop = joint_loop(operands)
        if loop is not None and any(t.looped is None and t.stage > 0 for t in operands):
            raise RefusedError(reason(Code.OTHER, "phase: nothing from another loop"))
        return loop

    monkeypatch.setattr(closure, "joint_loop", strict)
    assert audit(Subject("softmax", (("n",),), 4)).missing != []


def test_a_product_that_is_not_built_is_found_out(monkeypatch):
    """Only what is no larger than an operand: no outer product, though the program has one."""
    monkeypatch.setattr(closure, "may_be_built", lambda operands, _: may_be_built(operands, ()))
    assert audit(Subject("outer_product", ((),), 2)).missing != []


def test_keeping_one_way_to_make_a_tensor_is_found_out(monkeypatch):
    add = Pool.add

    def first_only(pool, value, looped, dims, stage, way):
        number, moved = add(pool, value, looped, dims, stage, way)
        del pool[number].alternatives[1:]
        return number, moved

    monkeypatch.setattr(Pool, "add", first_only)
    assert audit(Subject("scaled_matmul", ((),), 2)).missing != []


def test_an_intermediate_that_is_never_offered_is_found_out(monkeypatch):
    """No vector is stored between kernels."""
    storables = candidates.storables

    def fewer(pool, *rest):
        return (s for s in storables(pool, *rest) if len(pool[s.number].dims) > 1)

    subject = Subject("share_matmul", ((), ()), 4)
    assert audit(subject).missing == []
    monkeypatch.setattr(candidates, "storables", fewer)
    assert audit(subject).missing != []
