"""The replay of steps: each is one law at one place of one expression."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.terms import TRUSTED, RefusedError, Terms

Json = Mapping[str, Any]
_LAWS: Mapping[str, Json] = {law["name"]: law for law in TRUSTED["laws"]}


class Replay:
    """``extents`` are the sizes of dimensions as sums of those of tiles; ``leaf`` reads a name."""

    def __init__(
        self,
        terms: Terms,
        axes: Iterable[str],
        extents: Sequence[tuple[int, int]],
        leaf: Callable[[str], str],
    ) -> None:
        self.terms, self.axes, self.extents, self.leaf = terms, frozenset(axes), extents, leaf
        self.sides: dict[str, tuple[int, int]] = {}

    def check(self, claims: Sequence[tuple[str, int, int]], certificate: Json) -> None:
        """Raises RefusedError unless steps lead from the first term of each output to the last."""
        outputs = certificate["outputs"]
        if [o["output"] for o in outputs] != [name for name, _, _ in claims]:
            named = ", ".join(str(o["output"]) for o in outputs)
            raise RefusedError(f"it is about the outputs {named or 'of nothing'}")
        table: list[int] = []
        for op, attr, *args in certificate["terms"]:
            of = [table[a] for a in _counts(args)]
            name = self.leaf(attr) if op == "leaf" else attr
            table.append(self.terms.const(attr) if op == "const" else self.terms.make(op, of, name))
        for output, (name, now, last) in zip(outputs, claims, strict=True):
            ends = [table[n] for n in _counts([output["first"], output["last"]])]
            if ends[0] != now:
                raise RefusedError(
                    f"output {name}: it does not begin with the program's expression"
                )
            if ends[1] != last:
                raise RefusedError(f"output {name}: it does not end with the µGraph's expression")
            for number, step in enumerate(output["steps"], 1):
                before, after = (table[n] for n in _counts([step["before"], step["after"]]))
                try:
                    if before != now or after not in self._results(step, now, table):
                        raise RefusedError(
                            "it begins elsewhere, does not fit, or something else comes out"
                        )
                except RefusedError as fault:
                    raise RefusedError(
                        f"output {name}: step {number}, {step['law']}: {fault}"
                    ) from None
                now = after
            if now != last:
                raise RefusedError(
                    f"output {name}: the last step does not lead to the µGraph's expression"
                )

    def _results(self, step: Json, whole: int, table: Sequence[int]) -> list[int]:
        """What a step may make of an expression."""
        here, above = whole, list[tuple[int, int]]()
        for argument in _counts(step["at"]):
            above.append((here, argument))
            here = self.terms.rows[here].args[argument]
        forward = step["forward"] is True
        found = [b if forward else a for a, b in self._pairs(step, whole, table, forward=forward)
                 if here == (a if forward else b)]  # fmt: skip
        for parent, at in reversed(above):
            op, attr, args = self.terms.rows[parent]
            found = [self.terms.make(op, (*args[:at], n, *args[at + 1 :]), attr) for n in found]
        return found

    def _pairs(
        self, step: Json, whole: int, table: Sequence[int], *, forward: bool
    ) -> Sequence[tuple[int, int]]:
        """The terms that a law says are equal."""
        axes = {v: x for v, x in step["with"].items() if isinstance(x, str)}
        bound = {v: x for v, x in step["with"].items() if v not in axes}
        of = {v: table[n] for v, n in zip(bound, _counts(bound.values()), strict=True)}
        if step["law"] == "extents.of_axes" and not axes and not of:
            return self.extents
        law = _LAWS.get(step["law"])
        if law is None:
            raise RefusedError("there is no such law")
        if step["law"] not in self.sides:
            sides = self.terms.pattern(law["left"]), self.terms.pattern(law["right"])
            self.sides[step["law"]] = sides
        left, right = self.sides[step["law"]]
        if self.terms.variables(left, right) != {*of, *axes} or not self.axes.issuperset(
            axes.values()
        ):
            raise RefusedError("it does not say what the law's variables and axes are")
        if any(axis[:-2] + ".l" in axes.values() for axis in axes.values() if axis[-2:] == ".t"):
            raise RefusedError("how long a tile is depends on the iteration")
        for v, axis in law["free"]:
            if axes[axis] in self.terms.axes(of[v]):
                raise RefusedError(f"{v} depends on {axes[axis]}")
        if any(not self.terms.is_size(of[v]) for v in law["sizes"]):
            raise RefusedError(f"{law['sizes'][0]} is no product of sizes")
        new = law["unguarded"][0 if forward else 1]
        if not forward:
            new = [*new, *sorted(self.terms.variables(left) - self.terms.variables(right))]
            self._divides(law, of, whole)
        self._has_value([of[v] for v in new if v in of], whole)
        return [(self.terms.instance(left, of, axes), self.terms.instance(right, of, axes))]

    def _divides(self, law: Json, of: Mapping[str, int], whole: int) -> None:
        """What a law read backwards divides by is a divisor already, and roots stay together."""
        rows, v = self.terms.rows, law["divisor"]
        known = [rows[n].args[1] for n in self._always(whole) if rows[n].op == "div"]
        if law["one_way"] or (v and of[v] not in known and not self.terms.is_size(of[v])):
            raise RefusedError("read backwards it has no value where what it comes from has one")

    def _has_value(self, new: Sequence[int], whole: int) -> None:
        """What is new to be computed for all numbers has a value for all."""
        always = self._always(whole) if new else []
        for n in self.terms.below(*new):
            op, _, args = self.terms.rows[n]
            by_size = op == "div" and self.terms.is_size(args[1])
            if op in TRUSTED["partial"] and not by_size and n not in always:
                raise RefusedError(f"it brings in a {op}, which may have no value")

    def _always(self, whole: int) -> list[int]:
        """What is in no branch of a selection."""
        found, todo = dict.fromkeys([whole]), [whole]
        while todo:
            op, _, args = self.terms.rows[todo.pop()]
            more = [a for a in (args[:1] if op == "where" else args) if a not in found]
            found.update(dict.fromkeys(more))
            todo += more
        return [*found]


def _counts(numbers: Iterable[Any]) -> list[int]:
    """Places in tables: negative ones would count from the end."""
    found = [*numbers]
    if any(type(n) is not int or n < 0 for n in found):
        raise RefusedError("a place that is no number of one")
    return found
