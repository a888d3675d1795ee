"""The replay of steps: each is one law at one place of one expression."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.terms import TRUSTED, Terms, demand

Json = Mapping[str, Any]
_LAWS: Mapping[str, Json] = {law["name"]: law for law in TRUSTED["laws"]}


class Replay:
    """``cut`` are the dimensions with two axes, "d.l" and "d.t"; ``leaf`` makes that of a text."""

    def __init__(
        self, terms: Terms, axes: Iterable[str], cut: Iterable[str], leaf: Callable[[str], int]
    ) -> None:
        self.terms, self.axes, self.leaf, make = terms, frozenset(axes), leaf, terms.make
        whole = [(make("size", (), d), make("size", (), f"{d}.t"), f"{d}.l") for d in cut]
        self.extents = [(size, make("sum", (tile,), axis)) for size, tile, axis in whole]

    def check(self, claims: Sequence[tuple[str, int, int]], certificate: Json) -> None:
        """Refuses unless steps lead from the first term of each output to the last."""
        outputs, table = certificate["outputs"], list[int]()
        named = [o["output"] for o in outputs]
        demand(
            named == [c[0] for c in claims],
            f"it is about the outputs {', '.join(named) or 'of nothing'}",
        )
        for op, attr, *args in certificate["terms"]:
            of, known = _picked(table, args), {"leaf": self.leaf, "const": self.terms.const}.get(op)
            table.append(known(attr) if known and not of else self.terms.make(op, of, attr))
        for output, (name, now, last) in zip(outputs, claims, strict=True):
            ends = _picked(table, [output["first"], output["last"]])
            demand(
                ends[0] == now, f"output {name}: it does not begin with the program's expression"
            )
            demand(ends[1] == last, f"output {name}: it does not end with the µGraph's expression")
            for number, step in enumerate(output["steps"], 1):
                where = f"output {name}: step {number}, {step['law']}"
                before, after = _picked(table, [step["before"], step["after"]])
                demand(before == now, f"{where}: it begins elsewhere")
                pairs = self._sides(step, now, table, where)
                fits = any(self._put(now, step["at"], *pair) == after for pair in pairs)
                demand(fits, f"{where}: it does not fit, or something else comes out")
                now = after
            demand(now == last, f"output {name}: the last step does not lead to the µGraph's")

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

    def _sides(
        self, step: Json, whole: int, table: Sequence[int], where: str
    ) -> Sequence[tuple[int, int]]:
        """The terms that are equal by a law, in the step's direction."""
        axes = {v: x for v, x in step["with"].items() if isinstance(x, str)}
        given = {v: x for v, x in step["with"].items() if v not in axes}
        of = dict(zip(given, _picked(table, [*given.values()]), strict=True))
        back, terms, rows = step["forward"] is not True, self.terms, self.terms.rows
        if step["law"] == "extents.of_axes" and not step["with"]:
            return [p[::-1] if back else p for p in self.extents]
        demand(step["law"] in _LAWS, f"{where}: there is no such law")
        law = _LAWS[step["law"]]
        fits = {*of} == {*law["terms"]} and {*axes} == {*law["axes"]}
        fits = fits and self.axes.issuperset(axes.values())
        demand(fits, f"{where}: it does not say what the law's variables and axes are")
        ranges = {f"{axis[:-2]}.l" for axis in axes.values() if axis.endswith(".t")}
        demand(not ranges & {*axes.values()}, f"{where}: how long a tile is depends on another")
        for v, axis in law["free"]:
            demand(axes[axis] not in terms.axes(of[v]), f"{where}: {v} depends on {axes[axis]}")
        fits = all(terms.is_size(of[v]) for v in law["sizes"])
        demand(fits, f"{where}: {', '.join(law['sizes'])} is no product of sizes")
        # What is new to be computed for all numbers has a value for all, or had one before.
        always = self._always(whole)
        for n in terms.below(*(of[v] for v in law["unguarded"][back])):
            fits = rows[n].op not in TRUSTED["partial"] or n in always
            fits = fits or (rows[n].op == "div" and terms.is_size(rows[n].args[1]))
            demand(fits, f"{where}: it brings in a {rows[n].op}, which may have no value")
        known = [rows[n].args[1] for n in always if rows[n].op == "div"]
        fits = all(of[v] in known or terms.is_size(of[v]) for v in law["divisor"])
        demand(
            not back or (fits and not law["one_way"]), f"{where}: read backwards it has no value"
        )
        sides = [terms.instance(law[side], {**of, **axes}) for side in ("left", "right")]
        return [(sides[back], sides[not back])]

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
