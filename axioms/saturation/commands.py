"""Commands for egglog before a program: its tables, how dependence spreads, and the laws.

Axes are bits of an integer, so the dependence of a class (the axes it may depend on) is a mask and
a side condition is one `and`. Dependence is a function on classes that is merged by intersection:
each term of a class gives an upper bound, and as the terms are equal all bounds hold. One more bit
says that a class is not known to be a size or a product of sizes; it is merged the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce

from mirage_py.axioms.laws.registry import laws_in_force
from mirage_py.axioms.saturation.bindings import egg
from mirage_py.axioms.saturation.language import (
    EXTENT_TABLE,
    HERE,
    TABLE_SUFFIX,
    Expr,
    call,
    integer,
    translate,
    variable,
)
from mirage_py.axioms.terms.law import (
    Guard,
    Independent,
    Law,
    NotSize,
    Ring,
    Uneven,
    Within,
    axis_variables,
)
from mirage_py.axioms.terms.term import ARITY, LEAVES, REDUCTIONS, Term, subterms

DEPENDENCE_TABLE = "dependence"
MAX_AXES = 62  # bits of an egglog integer that are safe to use, but for the next one
NO_SIZE = 1 << MAX_AXES

_SORT = "Term"
_DEPENDENCE_RULES = "dependence-of-terms"

Fact = egg.Eq | egg.Fact
Command = (
    egg.Sort | egg.FunctionCommand | egg.Constructor | egg.AddRuleset | egg.RuleCommand
    | egg.RewriteCommand | egg.ActionCommand
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A law in one direction: ``needs`` and ``makes`` are the symbols of its two sides."""

    command: egg.RewriteCommand
    needs: frozenset[str]
    makes: frozenset[str]


def commands(roots: Iterable[Term], rings: Sequence[Ring]) -> list[Command]:
    """The tables of everything that the laws of the rings can make of the roots, and those laws.

    The others are about operators that the program neither has nor gets: they would never match,
    and to tell egglog of them is most of the work for a small program.
    """
    rules = [rule for ring in rings for rule in rules_of(ring)]
    known, before = _symbols(*roots), 0
    while len(known) > before:
        before = len(known)
        known = known.union(*(rule.makes for rule in rules if rule.needs <= known))
    return [
        *_declarations(),
        *(command for op in ARITY if op in known for command in _table(op)),
        *map(_ruleset, rings),
        *(rule.command for rule in rules if rule.needs <= known),
    ]


@cache
def _ruleset(ring: Ring) -> egg.AddRuleset:
    return egg.AddRuleset(HERE, ring)


def run_once(ring: Ring) -> egg.RunSchedule:
    """Each law of a ring once, everywhere, after all dependence is known."""
    laws = egg.Run(HERE, egg.RunConfig(ring))
    return egg.RunSchedule(egg.Sequence(HERE, [run_dependence().schedule, laws]))


def run_dependence() -> egg.RunSchedule:
    """Dependence of every class."""
    rules = egg.Run(HERE, egg.RunConfig(_DEPENDENCE_RULES))
    return egg.RunSchedule(egg.Saturate(HERE, rules))


def _symbols(*terms: Term) -> frozenset[str]:
    """Operators and constants: a law of 1 does not match 2."""
    used = [term for term in subterms(*terms) if term.op != "var"]
    return frozenset([t.op for t in used] + [t.attr for t in used if t.op == "const"])


@cache
def _declarations() -> tuple[Command, ...]:
    """The sort, dependence, and the sizes of axes."""
    merged = call("&", variable("old"), variable("new"))
    return (
        egg.Sort(HERE, _SORT, None),
        egg.FunctionCommand(HERE, DEPENDENCE_TABLE, egg.Schema([_SORT], "i64"), merged),
        egg.AddRuleset(HERE, _DEPENDENCE_RULES),
        _constructor(EXTENT_TABLE, ["i64"]),
        _depends(call(EXTENT_TABLE, variable("axis")), [], integer(0)),
    )


@cache
def _table(op: str) -> tuple[Command, ...]:
    """The table of an operator, and how dependence goes from operands to results; leaves get theirs
    from the program.
    """
    name, operands = op + TABLE_SUFFIX, [variable(f"x{n}") for n in range(ARITY[op])]
    masks: list[Expr] = [variable(f"m{n}") for n in range(ARITY[op])]
    known: list[Fact] = [
        egg.Eq(HERE, mask, call(DEPENDENCE_TABLE, x))
        for x, mask in zip(operands, masks, strict=True)
    ]
    sorts = ["String"] if op in LEAVES else ["i64"] if op in REDUCTIONS else []
    attribute = [variable("attribute")] * len(sorts)
    table = _constructor(name, [*sorts, *[_SORT] * ARITY[op]])
    if op == "leaf":
        return (table,)
    mask = reduce(_union, masks) if masks else integer(0)
    if op in REDUCTIONS:
        # Clear the axis: a | axis sets the bit whether or not it was there, ^ removes it.
        mask = call("^", call("|", mask, *attribute), *attribute)
    if op not in ("size", "mul"):
        mask = _union(mask, integer(NO_SIZE))
    return table, _depends(call(name, *attribute, *operands), known, mask)


def _constructor(name: str, sorts: list[str]) -> egg.Constructor:
    return egg.Constructor(HERE, name, egg.Schema(sorts, _SORT), None, unextractable=False)


def _depends(of: egg.Call, known: Sequence[Fact], mask: Expr) -> egg.RuleCommand:
    term = variable("term")
    told = egg.Set(HERE, DEPENDENCE_TABLE, [term], mask)
    body = [egg.Eq(HERE, term, of), *known]
    return egg.RuleCommand(
        egg.Rule(HERE, [told], body, f"dependence of {of.name}", _DEPENDENCE_RULES)
    )


@cache
def rules_of(ring: Ring) -> tuple[Rule, ...]:
    """The laws that come with a ring; built once per process."""
    return tuple(
        _rule(law, ring, left, right)
        for law in laws_in_force(ring)
        for left, right in ((law.left, law.right), (law.right, law.left))[: 1 + law.both_ways]
    )


def _rule(law: Law, ring: Ring, left: Term, right: Term) -> Rule:
    axes: dict[str, Expr] = {name: variable(f"axis-{name}") for name in axis_variables(law)}
    done = translate((left, right), axes)
    conditions = [_holds(condition, axes) for condition in law.when]
    conditions += [_pays(guard) for guard in law.only]
    name = law.name if left is law.left else f"{law.name}, back"
    rewrite = egg.Rewrite(HERE, done[left], done[right], conditions, name)
    command = egg.RewriteCommand(ring, rewrite, subsume=False)
    return Rule(command, _symbols(left), _symbols(right))


def _holds(condition: Independent, axes: Mapping[str, Expr]) -> Fact:
    return egg.Eq(HERE, call("&", _mask(condition.var), axes[condition.axis]), integer(0))


def _pays(guard: Guard) -> Fact:
    if isinstance(guard, NotSize):
        return _differ(call("&", _mask(guard.var), integer(NO_SIZE)), integer(0))
    if isinstance(guard, Within):
        return egg.Eq(HERE, _union(_axes(guard.var), _axes(guard.of)), _axes(guard.of))
    axes = [_axes(name) for name in guard.vars]
    product = reduce(_union, axes)
    if isinstance(guard, Uneven):
        return _differ(product, reduce(lambda a, b: call("&", a, b), axes))
    return _differ(_union(product, _axes(guard.than)), product)


def _differ(a: Expr, b: Expr) -> Fact:
    return egg.Fact(call("!=", a, b))


def _union(a: Expr, b: Expr) -> Expr:
    return call("|", a, b)


def _mask(name: str) -> Expr:
    return call(DEPENDENCE_TABLE, variable(name))


def _axes(name: str) -> Expr:
    return call("&", _mask(name), integer(NO_SIZE - 1))
