"""The replay of steps: each is one law at one place of one expression."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from mirage_py.axioms.certificate.terms import LAWS, Json, RefusedError, Term, Terms, demand, parts


class Replay:
    """``dims`` are all dimensions; ``leaf`` makes the leaf of a text."""

    def __init__(self, terms: Terms, dims: Container[str], leaf: Callable[[str], Term]) -> None:
        self.terms, self.dims, self.leaf = terms, dims, leaf

    def check(self, claims: Sequence[tuple[str, Term, Term]], certificate: Json) -> None:
        """Refuses unless steps lead from the first term of each output to the last."""
        outputs, table = certificate["outputs"], list[Term]()
        named = [o["output"] for o in outputs]
        fits = named == [name for name, _, _ in claims]
        demand(fits, f"it is about the outputs {', '.join(named) or 'of nothing'}")
        for op, attr, *args in certificate["terms"]:
            of, known = _picked(table, args), {"leaf": self.leaf, "const": self.terms.const}.get(op)
            table.append(known(attr) if known and not of else self.terms.make(op, of, attr))
        for output, (name, now, last) in zip(outputs, claims, strict=True):
            ends = _picked(table, [output["first"], output["last"]])
            said = f"output {name}: it does not begin with the program's"
            demand(ends == [now, last], f"{said}, or does not end with the µGraph's")
            for number, step in enumerate(output["steps"], 1):
                before, after = _picked(table, [step["before"], step["after"]])
                try:
                    demand(before is now, "it begins elsewhere")
                    now = self._put(now, step["at"], *self._sides(step, now, table))
                    demand(after is now, "something else comes out")
                except RefusedError as error:
                    where = f"output {name}: step {number}, {step['law']}"
                    raise RefusedError(f"{where}: {error}") from None
            demand(now is last, f"output {name}: the last step does not lead to the µGraph's")

    def _put(self, term: Term, at: Sequence[Any], old: Term, new: Term) -> Term:
        """The term with a new one at a place, where the old one has to be."""
        if not at:
            demand(term is old, "it does not fit")
            return new
        (child,) = _picked(term.args, at[:1])
        args = list(term.args)
        args[at[0]] = self._put(child, at[1:], old, new)
        return self.terms.make(term.op, args, term.attr)

    def _sides(self, step: Json, whole: Term, table: Sequence[Term]) -> tuple[Term, Term]:
        """The terms that are equal by a law, in the step's direction."""
        demand(step["law"] in LAWS, "there is no such law")
        law, back = LAWS[step["law"]], step["forward"] is not True
        axes = {v: x for v, x in step["with"].items() if isinstance(x, str)}
        given = {v: x for v, x in step["with"].items() if v not in axes}
        of = dict(zip(given, _picked(table, [*given.values()]), strict=True))
        known = all(parts(x)[0] in self.dims and x in parts(x) for x in axes.values())
        fits = {*of} == {*law["terms"]} and {*axes} == {*law["axes"]} and known
        demand(fits, "it does not say what the law's variables and axes are")
        if law["tiles"]:
            own = tuple(axes[v] for v in law["tiles"])
            demand(own == parts(own[2]), "these are not iterations and tiles of one dimension")
        fits = law["tiles"] or len({parts(x)[0] for x in axes.values()}) == len(axes)
        demand(fits, "how long a tile is depends on another axis")
        for v, axis in law["free"]:
            demand(of[v].is_free(axes[axis]), f"{v} depends on {axes[axis]}")
        fits = all(of[v].is_size for v in law["sizes"])
        demand(fits, f"{', '.join(law['sizes'])} is no product of sizes")
        # What is new to be computed for all numbers has a value for all, or had one before.
        always = whole.partial(branches=False)
        brought = [t for v in law["unguarded"][back] for t in of[v].partial(branches=True) - always]
        new = ", ".join(sorted({t.op for t in brought}))
        demand(not new, f"it brings in a {new}, which may have no value")
        divisors = [t.args[1] for t in always if t.op == "div"]
        fits = all(of[v].is_size or of[v] in divisors for v in law["divisor"])
        demand(not back or (fits and not law["one_way"]), "read backwards it has no value")
        left, right = (self.terms.instance(law[side], of | axes) for side in ("left", "right"))
        return (right, left) if back else (left, right)


def _picked(table: Sequence[Term], numbers: Sequence[Any]) -> list[Term]:
    """Entries of a table: negative numbers would count from its end."""
    fits = all(type(n) is int and 0 <= n < len(table) for n in numbers)
    demand(fits, "a place that there is not")
    return [table[n] for n in numbers]
