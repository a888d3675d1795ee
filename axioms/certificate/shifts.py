"""Shifts of exponentials: free numbers, which no output may depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from mirage_py.axioms.certificate.terms import REDUCTIONS, SHIFT, TRUSTED, Terms, demand

# A term without shifts, how they enter (not, "minus", "scaled" by exp(-shift)), and how often.
Value = tuple[int, str, Mapping[str, Fraction]]


def without_shifts(terms: Terms, root: int, whole: Sequence[str]) -> int:
    """The term with 0 for every shift, if it is the same for all values of them.

    Of dimensions that are ``whole`` op[d.l](op[d.t](x)) is op[d](x), however long the last tile is.
    """
    made: dict[int, Value] = {}
    for n in terms.below(root):
        op, attr, args = terms.rows[n]
        of = [made[a] for a in args]
        if op in REDUCTIONS:
            kept, how, by = of[0]
            varies = any(attr in terms.leaf_axes[shift] for shift in by)
            demand(not varies and (op, how) != ("sum", "minus"), f"a {op} of values with shifts")
            row, d = terms.rows[kept], attr[:-2]
            if attr == f"{d}.l" and d in whole and (row.op, row.attr) == (op, f"{d}.t"):
                kept, attr = row.args[0], d
            made[n] = terms.make(op, (kept,), attr), how, by
        elif attr.startswith(SHIFT):
            made[n] = terms.zero, "minus", {attr: Fraction(-1)}
        else:
            made[n] = _elementwise(terms, op, of) if args else (n, "plain", {})
    demand(made[root][1] == "plain", "a shift is left in it")
    return made[root][0]


def _elementwise(terms: Terms, op: str, args: Sequence[Value]) -> Value:
    kept, hows = [a[0] for a in args], [a[1] for a in args]
    kind = next((how for how in hows if how != "plain"), "plain")
    if kind == "plain":
        return terms.make(op, kept), kind, {}
    if (op, kind, hows[0]) == ("mul", "minus", "plain"):
        return _elementwise(terms, op, args[::-1])
    powers, becomes = TRUSTED["shifts"].get(f"{op} {kind}", ([], kind))
    if f"{op} {kind}" in ("mul minus", "div minus", "pow scaled") and hows[1] == "plain":
        by = terms.rows[kept[1]]
        demand(by.op == "const" and kept[1] != terms.zero, f"'{op}' of a value with shifts")
        powers = [Fraction(by.attr) ** (-1 if op == "div" else 1), 0]
    if powers and {*hows} <= {"plain", kind}:
        total: dict[str, Fraction] = {}
        for power, (_, _, by_shift) in zip(powers, args, strict=True):
            for shift, k in by_shift.items():
                total[shift] = total.get(shift, Fraction(0)) + k * Fraction(power)
        left = {shift: k for shift, k in total.items() if k}
        return _simplest(terms, op, kept, kind), becomes if left else "plain", left
    # 0 is scaled like anything.
    chosen = args[1:] if op == "where" else args
    alike = [a[1:] for a in chosen if kind != "scaled" or a[:2] != (terms.zero, "plain")]
    fits = op in TRUSTED["same_scale"] and all(a == (kind, alike[0][1]) for a in alike)
    demand(fits and (op != "where" or hows[0] == "plain"), f"'{op}' of values with shifts")
    return terms.make(op, kept), kind, alike[0][1]


def _simplest(terms: Terms, op: str, kept: Sequence[int], kind: str) -> int:
    """The operator on what is kept, without what changes nothing."""
    zero, one = terms.zero, terms.one
    if kept[0] == zero and kind == "minus" and op in ("exp", "neg", "mul", "div"):
        return one if op == "exp" else zero
    if (op, kept[-1]) in (("mul", one), ("add", zero), ("sub", zero)):
        return kept[0]
    if (op, kept[0]) in (("mul", one), ("add", zero)):
        return kept[1]
    return terms.make("neg", kept[1:]) if (op, kept[0]) == ("sub", zero) else terms.make(op, kept)
