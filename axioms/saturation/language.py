"""Terms as expressions of egglog: one table for each operator.

They go straight to egglog's Rust interface: its Python one translates every law again for each
e-graph, which takes as long as all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mirage_py.axioms.saturation.bindings import egg
from mirage_py.axioms.terms.term import REDUCTIONS, Term, subterms

# Names of egglog's tables; the suffix keeps them apart from its primitives ("exp", "max"), and from
# each other: egglog numbers the uses of a name at its end, so a name that could end in a number
# ("log2") would be taken for a use of another ("log").
TABLE_SUFFIX = "-term"
EXTENT_TABLE = "extent-term"  # sizes of axes; those of dimensions have a table of their own

# What egglog would show as the place of a command in its source.
HERE = egg.RustSpan(__name__, 0, 0)

Expr = egg.Lit | egg.Var | egg.Call


def call(name: str, *args: Expr) -> egg.Call:
    """A table or primitive applied to expressions."""
    return egg.Call(HERE, name, list(args))


def variable(name: str) -> egg.Var:
    """A variable of a rule, or a global one by its name with "$"."""
    return egg.Var(HERE, name)


def integer(value: int) -> egg.Lit:
    """A literal."""
    return egg.Lit(HERE, egg.Int(value))


def translate(
    roots: tuple[Term, ...],
    axes: Mapping[str, Expr],
    register: Callable[[Expr], Expr] = lambda expr: expr,
) -> dict[Term, Expr]:
    """egglog expressions of the roots and their subterms; ``var`` becomes an egglog variable.

    ``register`` gets each expression once, operands first, and returns what stands for it.
    """
    done: dict[Term, Expr] = {}
    for term in subterms(*roots):
        done[term] = register(_expression(term, [done[arg] for arg in term.args], axes))
    return done


def _expression(term: Term, args: list[Expr], axes: Mapping[str, Expr]) -> Expr:
    if term.op == "var":
        return variable(term.attr)
    if term.op in REDUCTIONS:
        return call(term.op + TABLE_SUFFIX, axes[term.attr], *args)
    if term.op == "size" and term.attr in axes:
        return call(EXTENT_TABLE, axes[term.attr])
    names = [egg.Lit(HERE, egg.String(term.attr))] if term.attr else []
    return call(term.op + TABLE_SUFFIX, *names, *args)
