"""Shifts of exponentials: free numbers, which no output may depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from mirage_py.axioms.certificate.terms import REDUCTIONS, TRUSTED, Terms, demand

# How the names of leaves begin that are shifts.
SHIFT = "shift "
# What a term is for all shifts m, with t its value where all are 0: "plain" t, "minus" t - sum k m,
# "scaled" t * exp(-sum k m); and the multiples k.
Mark = tuple[str, Mapping[str, Fraction]]
_PLAIN: Mark = ("plain", {})


def without_shifts(terms: Terms, root: int) -> int:
    """The term with 0 for every shift, if it is the same for all values of them."""
    made, marks = dict[int, int](), dict[int, Mark]()
    for n in terms.below(root):
        op, attr, args = terms.rows[n]
        if attr.startswith(SHIFT):
            made[n], marks[n] = terms.zero, ("minus", {attr: Fraction(-1)})
        else:
            made[n] = terms.make(op, [made[a] for a in args], attr)
            marks[n] = _mark(terms, n, [marks[a] for a in args])
    demand(marks[root] == _PLAIN, "a shift is left in it")
    return made[root]


def _mark(terms: Terms, n: int, of: Sequence[Mark]) -> Mark:
    op, attr, args = terms.rows[n]
    kind = next((how for how, _ in of if how != "plain"), "plain")
    if kind == "plain":
        return _PLAIN
    if op in REDUCTIONS:
        shifts = [terms.make("leaf", (), shift) for shift in of[0][1]]
        fits = all(terms.is_free(m, attr) for m in shifts) and (op, kind) != ("sum", "minus")
        demand(fits, f"a {op} of values with shifts")
        return of[0]
    powers, becomes = TRUSTED["shifts"].get(f"{op} {kind}", ([], kind))
    if f"{op} {kind}" in ("mul minus", "div minus", "pow scaled"):
        place = 0 if op == "mul" and of[0] == _PLAIN else 1
        by = terms.rows[args[place]]
        fits = of[place] == _PLAIN and by.op == "const" and by.attr != "0"
        demand(fits, f"'{op}' of a value with shifts")
        powers = [Fraction(by.attr) ** (-1 if op == "div" else 1)] * 2
    if powers and {how for how, _ in of} <= {"plain", kind}:
        total: dict[str, Fraction] = {}
        for power, (_, by_shift) in zip(powers, of, strict=True):
            for shift, k in by_shift.items():
                total[shift] = total.get(shift, Fraction(0)) + k * Fraction(power)
        left = {shift: k for shift, k in total.items() if k}
        return (becomes, left) if left else _PLAIN
    # 0 is scaled like anything.
    alike = [m for m, a in zip(of, args, strict=True) if kind == "minus" or a != terms.zero]
    alike = alike[1:] if op == "where" else alike
    fits = op in TRUSTED["same_scale"] and all(m == (kind, alike[0][1]) for m in alike)
    demand(fits and (op != "where" or of[0] == _PLAIN), f"'{op}' of values with shifts")
    return alike[0]
