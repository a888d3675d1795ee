"""Terms and laws in egglog's Python interface: one sort, one constructor per operator.

Axes are bits of an integer, so the dependence of a class (the axes it may depend on) is a mask and
a side condition is one `and`. Dependence is a function on classes that is merged by intersection:
each term of a class gives an upper bound, and as the terms are equal all bounds hold. One more bit
says that a class is not known to be a size or a product of sizes; it is merged the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from operator import and_, or_
from typing import Any

import egglog
from egglog import StringLike, i64, i64Like, ruleset

from mirage_py.axioms.laws.registry import laws_in_force
from mirage_py.axioms.terms.law import Guard, Independent, Law, NotSize, Ring, Uneven, Within
from mirage_py.axioms.terms.term import ARITY, REDUCTIONS, Term, subterms

# Names of egglog's tables; the suffix keeps them apart from its primitives ("exp", "max"), and from
# each other: egglog numbers the uses of a name at its end, so a name that could end in a number
# ("log2") would be taken for a use of another ("log").
TABLE_SUFFIX = "-term"
EXTENT_TABLE = "extent-term"
DEPENDENCE_TABLE = "dependence"
MAX_AXES = 62  # bits of an egglog integer that are safe to use, but for the next one
NO_SIZE = 1 << MAX_AXES


class Expr(egglog.Expr):
    """The sort of terms."""


@egglog.function(egg_fn=DEPENDENCE_TABLE, merge=lambda old, new: old & new)
def dependence(term: Expr) -> i64:  # type: ignore[empty-body]
    """Mask of the axes that the class may depend on."""


@egglog.function(egg_fn=EXTENT_TABLE)
def extent(axis: i64Like) -> Expr:  # type: ignore[empty-body]
    """The size of one axis; sizes of dimensions have a table of their own, by name."""


def _named(op: str) -> Callable[..., Expr]:
    def constructor(name: StringLike) -> Expr: ...  # type: ignore[empty-body]

    return _declare(op, constructor)


def _reduction(op: str) -> Callable[..., Expr]:
    def constructor(axis: i64Like, x: Expr) -> Expr: ...  # type: ignore[empty-body]

    return _declare(op, constructor)


def _elementwise(op: str) -> Callable[..., Expr]:
    def of_one(x: Expr) -> Expr: ...  # type: ignore[empty-body]

    def of_two(x: Expr, y: Expr) -> Expr: ...  # type: ignore[empty-body]

    def of_three(x: Expr, y: Expr, z: Expr) -> Expr: ...  # type: ignore[empty-body]

    shapes: tuple[Callable[..., Expr], ...] = (of_one, of_two, of_three)
    return _declare(op, shapes[ARITY[op] - 1])


def _declare(op: str, constructor: Callable[..., Expr]) -> Callable[..., Expr]:
    constructor.__name__ = f"{op}_"
    return egglog.function(egg_fn=op + TABLE_SUFFIX)(constructor)


CONSTRUCTORS: dict[str, Callable[..., Expr]] = {
    op: _named(op) if arity == 0 else _reduction(op) if op in REDUCTIONS else _elementwise(op)
    for op, arity in ARITY.items()
    if op != "var"
}


def translate(
    roots: tuple[Term, ...],
    axis_bits: Mapping[str, i64Like],
    register: Callable[[Expr], Expr] = lambda expr: expr,
) -> dict[Term, Any]:
    """egglog expressions of the roots and their subterms; ``var`` becomes an egglog variable.

    ``register`` gets each expression once, operands first, and returns what stands for it.
    """
    done: dict[Term, Any] = {}
    for term in subterms(*roots):
        done[term] = register(_expression(term, [done[arg] for arg in term.args], axis_bits))
    return done


def _expression(term: Term, args: list[Expr], axis_bits: Mapping[str, i64Like]) -> Expr:
    if term.op == "var":
        return egglog.var(term.attr, Expr)
    if term.op in REDUCTIONS:
        return CONSTRUCTORS[term.op](axis_bits[term.attr], *args)
    if term.op == "size" and term.attr in axis_bits:
        return extent(axis_bits[term.attr])
    return CONSTRUCTORS[term.op](*([term.attr] if term.attr else args))


class _AxisVariables(dict[str, i64]):
    """In a law every axis is a variable of the same name."""

    def __missing__(self, name: str) -> i64:
        self[name] = egglog.var(f"axis_{name}", i64)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return True


def _rewrites(law: Law) -> list[Any]:
    axes = _AxisVariables()
    done = translate((law.left, law.right), axes)
    left, right = done[law.left], done[law.right]
    conditions = [_holds(condition, axes) for condition in law.when]
    conditions += [_pays(guard) for guard in law.only]
    rules: list[Any] = [egglog.rewrite(left).to(right, *conditions)]
    if law.both_ways:
        rules.append(egglog.rewrite(right).to(left, *conditions))
    return rules


def _mask(name: str) -> Any:
    return dependence(egglog.var(name, Expr))


def _holds(condition: Independent, axes: Mapping[str, i64]) -> Any:
    return egglog.eq(_mask(condition.var) & axes[condition.axis]).to(i64(0))


def _pays(guard: Guard) -> Any:
    if isinstance(guard, NotSize):
        return egglog.ne(_mask(guard.var) & i64(NO_SIZE)).to(i64(0))
    if isinstance(guard, Within):
        return egglog.eq(_axes(guard.var) | _axes(guard.of)).to(_axes(guard.of))
    if isinstance(guard, Uneven):
        return egglog.ne(_union(guard.vars)).to(_common(guard.vars))
    product = _union(guard.vars)
    return egglog.ne(product | _axes(guard.than)).to(product)


def _union(names: Sequence[str]) -> Any:
    return reduce(or_, map(_axes, names))


def _common(names: Sequence[str]) -> Any:
    return reduce(and_, map(_axes, names))


def _axes(name: str) -> Any:
    return _mask(name) & i64(NO_SIZE - 1)


@cache
def laws_of(ring: Ring) -> egglog.Ruleset:
    """The laws that come with a ring as one ruleset; built once per process."""
    return ruleset(*[rule for law in laws_in_force(ring) for rule in _rewrites(law)], name=ring)


@cache
def dependence_rules() -> egglog.Ruleset:
    """How dependence goes from operands to results; leaves get theirs from the program."""
    e, axis = egglog.var("e", Expr), egglog.var("axis", i64)
    rules: list[Any] = [
        egglog.rule(egglog.eq(e).to(extent(axis))).then(egglog.set_(dependence(e)).to(i64(0)))
    ]
    for op, constructor in CONSTRUCTORS.items():
        args = [egglog.var(f"x{n}", Expr) for n in range(ARITY[op])]
        masks = [egglog.var(f"m{n}", i64) for n in range(ARITY[op])]
        known = [egglog.eq(m).to(dependence(a)) for a, m in zip(args, masks, strict=True)]
        if op == "leaf":
            continue
        if ARITY[op] == 0:
            call, mask = constructor(egglog.var("name", egglog.String)), i64(0)
        elif op in REDUCTIONS:
            # Clear the axis: a | axis sets the bit whether or not it was there, ^ removes it.
            call, mask = constructor(axis, *args), (masks[0] | axis) ^ axis
        else:
            call, mask = constructor(*args), masks[0]
            for other in masks[1:]:
                mask = mask | other
        if op not in ("size", "mul"):
            mask = mask | i64(NO_SIZE)
        rules.append(
            egglog.rule(egglog.eq(e).to(call), *known).then(egglog.set_(dependence(e)).to(mask))
        )
    return ruleset(*rules, name="dependence")
