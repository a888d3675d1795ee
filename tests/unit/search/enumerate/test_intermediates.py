"""Intermediates: the two rules of dominance, and values that they must not drop."""

from __future__ import annotations

from unit.search import programs
from unit.search.pools import closed, split_closed

from mirage_py.reasons import Code, reason
from mirage_py.search.enumerate.intermediates import storables
from mirage_py.search.space.counters import Counter


def kept(found, splits=()):
    """Formulas of what may be stored, and of what only a library may read."""
    counter = Counter()
    items = list(storables(found.pool, found.targets, splits, counter))
    basic = {formula(found.pool, i.number) for i in items if i.basic}
    others = {formula(found.pool, i.number) for i in items if not i.basic}
    return basic, others, counter.freeze()


def formula(pool, number):
    return pool.formula(pool[number].alternatives[0], 9)


def test_a_sum_may_be_stored_and_what_has_no_sum_may_not():
    basic, others, counters = kept(closed(programs.rmsnorm_matmul()))
    assert "sum[d](square(X[b, d]))" in basic
    assert "mul(X[b, d], G[d])" in others
    assert counters.pruned[reason(Code.PURE)] > 0


def test_the_inputs_are_not_stored_again():
    basic, others, _ = kept(closed(programs.rmsnorm_matmul()))
    assert not {"X[b, d]", "G[d]", "W[d, n]"} & (basic | others)


def test_of_functions_of_one_another_the_first_is_stored():
    basic, others, counters = kept(closed(programs.rmsnorm_matmul()))
    (root,) = [f for f in others if f.startswith("sqrt")]
    assert "sum[d](square(X[b, d]))" in root
    of_rows = [
        f for f in basic if "W[" not in f and "sum[d](" in f and not f.startswith(("div", "mul"))
    ]
    assert of_rows == ["sum[d](square(X[b, d]))"]
    assert reason(Code.IMAGE) in counters.pruned


def test_a_function_of_two_stored_tensors_may_be_stored():
    # What reads the quotient reads one tensor, what divides again reads two.
    basic, _, _ = kept(closed(programs.attention()))
    assert any(f.startswith(("div(matmul", "div(exp")) for f in basic)


def test_a_function_of_a_smaller_tensor_may_be_stored():
    # exp(scores) is an image of the scores; scores times a gate per row is of two tensors.
    s = programs.Spec("gated_scores", b=8, d=16, k=32, n=8)
    scores = s.contract(s.load("X", "bd"), s.load("A", "dk"), "d")
    gated = s.b.apply("mul", s.b.apply("exp", scores), s.load("C", "k"))
    s.output("Y", s.contract(gated, s.load("W", "kn"), "k"), "bn")
    basic, others, _ = kept(closed(s.b.build()))
    assert "matmul[d](X[b, d], A[d, k])" in basic
    assert "exp(matmul[d](X[b, d], A[d, k]))" in others
    assert any(f.startswith("mul(") and "exp(" in f and "C[k]" in f for f in basic)


def test_a_single_output_is_no_intermediate():
    found = closed(programs.gated_mlp())
    numbers = [i.number for i in storables(found.pool, found.targets, (), Counter())]
    assert not set(found.pool.with_value(found.targets[0])) & {*numbers}


def test_one_of_several_outputs_may_be_stored_even_without_a_sum():
    found = closed(programs.norm_gated_mlp())
    basic, _, _ = kept(found)
    assert "add(X[b, d], A[b, d])" in basic


def test_a_tile_of_a_loop_is_stored_only_along_the_loop():
    found = closed(programs.rmsnorm_matmul(), "d")
    for item in storables(found.pool, found.targets, (), Counter()):
        tensor = found.pool[item.number]
        assert tensor.looped in (None, *tensor.dims)
    inside = [t for t in found.pool.tensors if t.looped == "d" and "d" not in t.dims and t.dims]
    assert inside


def test_with_parts_only_partial_results_are_of_use():
    found = split_closed(programs.rmsnorm_matmul(), "d")
    basic, others, _ = kept(found, ("d_part",))
    assert basic
    for formulas in (basic, others):
        assert all("d_part" in f for f in formulas)
    assert all("sum[d_part" not in f and "matmul[d_part" not in f for f in basic)
