"""The replay of steps: each is one law at one place of one expression."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.terms import TRUSTED, RefusedError, Terms, demand, dim, parts

Json = Mapping[str, Any]
_LAWS: Mapping[str, Json] = {law["name"]: law for law in TRUSTED["laws"]}


class Replay:
    """``dims`` are all dimensions; ``leaf`` makes the leaf of a text."""

    def __init__(self, terms: Terms, dims: Container[str], leaf: Callable[[str], int]) -> None:
        self.terms, self.dims, self.leaf = terms, dims, leaf

    def check(self, claims: Sequence[tuple[str, int, int]], certificate: Json) -> None:
        """Refuses unless steps lead from the first term of each output to the last."""
        outputs, table = certificate["outputs"], list[int]()
        named = [o["output"] for o in outputs]
        about = ", ".join(named) or "of nothing"
        demand(named == [c[0] for c in claims], f"it is about the outputs {about}")
        for op, attr, *args in certificate["terms"]:
            of, known = _picked(table, args), {"leaf": self.leaf, "const": self.terms.const}.get(op)
            table.append(known(attr) if known and not of else self.terms.make(op, of, attr))
        for output, (name, now, last) in zip(outputs, claims, strict=True):
            where = f"output {name}"
            first, end = _picked(table, [output["first"], output["last"]])
            demand(first == now, f"{where}: it does not begin with the program's expression")
            demand(end == last, f"{where}: it does not end with the µGraph's expression")
            for number, step in enumerate(output["steps"], 1):
                try:
                    now = self._after(step, now, table)
                except RefusedError as error:
                    raise RefusedError(f"{where}: step {number}, {step['law']}: {error}") from None
            demand(now == last, f"{where}: the last step does not lead to the µGraph's")

    def _after(self, step: Json, now: int, table: Sequence[int]) -> int:
        """The expression after a step."""
        before, after = _picked(table, [step["before"], step["after"]])
        demand(before == now, "it begins elsewhere")
        fits = self._put(now, step["at"], *self._sides(step, now, table)) == after
        demand(fits, "it does not fit, or something else comes out")
        return after

    def _put(self, term: int, at: Sequence[Any], old: int, new: int) -> int | None:
        """The term with a new one at a place, if the old one is there."""
        if not at:
            return new if term == old else None
        op, attr, args = self.terms.rows[term]
        below = self._put(_picked(args, at[:1])[0], at[1:], old, new)
        if below is None:
            return None
        changed = [below if n == at[0] else a for n, a in enumerate(args)]
        return self.terms.make(op, changed, attr)

    def _sides(self, step: Json, whole: int, table: Sequence[int]) -> tuple[int, int]:
        """The terms that are equal by a law, in the step's direction."""
        axes = {v: x for v, x in step["with"].items() if isinstance(x, str)}
        given = {v: x for v, x in step["with"].items() if v not in axes}
        of = dict(zip(given, _picked(table, [*given.values()]), strict=True))
        back, terms, rows = step["forward"] is not True, self.terms, self.terms.rows
        demand(step["law"] in _LAWS, "there is no such law")
        law = _LAWS[step["law"]]
        known = all(dim(x) in self.dims and x in (dim(x), *parts(x)) for x in axes.values())
        fits = {*of} == {*law["terms"]} and {*axes} == {*law["axes"]} and known
        demand(fits, "it does not say what the law's variables and axes are")
        if law["tiles"]:
            d, iteration, tile = (axes[v] for v in law["tiles"])
            fits = d == dim(d) == dim(tile) and parts(tile) == [iteration, tile]
            demand(fits, "these are not iterations and tiles of one dimension")
        fits = law["tiles"] or len({dim(x) for x in axes.values()}) == len(axes)
        demand(fits, "how long a tile is depends on another axis")
        for v, axis in law["free"]:
            demand(terms.is_free(of[v], axes[axis]), f"{v} depends on {axes[axis]}")
        fits = all(terms.is_size(of[v]) for v in law["sizes"])
        demand(fits, f"{', '.join(law['sizes'])} is no product of sizes")
        # What is new to be computed for all numbers has a value for all, or had one before.
        always = self._always(whole)
        for n in terms.below(*(of[v] for v in law["unguarded"][back])):
            op, _, args = rows[n]
            fits = op not in TRUSTED["partial"] or (op == "div" and terms.is_size(args[1]))
            demand(fits or n in always, f"it brings in a {op}, which may have no value")
        divisors = [rows[n].args[1] for n in always if rows[n].op == "div"]
        fits = all(of[v] in divisors or terms.is_size(of[v]) for v in law["divisor"])
        demand(not back or (fits and not law["one_way"]), "read backwards it has no value")
        left, right = (terms.instance(law[side], {**of, **axes}) for side in ("left", "right"))
        return (right, left) if back else (left, right)

    def _always(self, whole: int) -> set[int]:
        """What is in no branch of a selection."""
        found, todo = {whole}, [whole]
        while todo:
            op, _, args = self.terms.rows[todo.pop()]
            todo += (new := {*(args[:1] if op == "where" else args)} - found)
            found |= new
        return found


def _picked(table: Sequence[int], numbers: Sequence[Any]) -> list[int]:
    """Entries of a table: negative numbers would count from its end."""
    fits = all(type(n) is int and 0 <= n < len(table) for n in numbers)
    demand(fits, "a place that there is not")
    return [table[n] for n in numbers]
