"""The checker of certificates: reads program, µGraph and certificate as JSON data, and replays it.

It knows the operators and laws of ``trusted.json`` and the rules of this folder, and nothing else:
whatever it does not understand is refused.
"""

from __future__ import annotations

from mirage_py.axioms.certificate.blocks import Block
from mirage_py.axioms.certificate.coverage import Fact
from mirage_py.axioms.certificate.graphs import Reading
from mirage_py.axioms.certificate.steps import Json, Replay
from mirage_py.axioms.certificate.terms import RefusedError, Terms

# What data of another form ends in.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError)
_ILL_FORMED = (*_UNREADABLE, SyntaxError, TypeError, ValueError)


def fault_of(program: Json, ugraph: Json, certificate: Json) -> str:
    """Why it does not show that the µGraph computes the program; "" if it does."""
    try:
        check = Check(program, ugraph, certificate["dims"])
        check.replay.check(check.claims, certificate)
        if certificate["facts"] != check.facts:
            raise RefusedError("its facts about sizes and tiles are others")
    except RefusedError as error:
        return str(error)
    except _ILL_FORMED as error:
        return str(RefusedError(f"it cannot be read: {type(error).__name__}: {error}"))
    return ""


def facts_of(program: Json, ugraph: Json, dims: Json) -> list[Fact] | None:
    """What a certificate has to say of sizes and tiles; None where there is nothing to prove."""
    try:
        return Check(program, ugraph, dims).facts
    except (RefusedError, *_ILL_FORMED):
        return None


class Check:
    """What there is to show: ``claims`` about values, and ``facts`` about sizes and tiles."""

    def __init__(self, program: Json, ugraph: Json, dims: Json) -> None:
        self.terms = Terms()
        self.reading = reading = Reading(self.terms, program, ugraph, dims)
        for kernel in ugraph["kernels"]:
            block = kernel["kind"] == "block"
            reading.keep(Block(reading, kernel).written if block else reading.call(kernel))
        self.claims: list[tuple[str, int, int]] = []
        for name, first, forms in reading.outputs:
            where, last = reading.memory[name]
            if where != forms or last.how != "plain":
                raise RefusedError(f"output {name} lies elsewhere, or a shift is left in it")
            self.claims.append((name, first, last.kept))
        for d in [*reading.loops]:
            if self._is_whole(d):
                self._make_whole(d)
            else:
                reading.cut_alike(d)
        self.facts, dims_of, axes = reading.facts, reading.indices.dims, reading.axes
        self.terms.axes_of_leaf = lambda leaf: frozenset(axes(dims_of[leaf]))
        sizes = {d: self.terms.make("size", (), d) for d in reading.loops}
        tiles = {d: self.terms.make("size", (), f"{d}.t") for d in reading.loops}
        extents = [(sizes[d], self.terms.make("sum", [tiles[d]], f"{d}.l")) for d in sizes]
        self.replay = Replay(self.terms, axes(list(reading.sizes)), extents, reading.indices.read)

    def _ends(self) -> list[int]:
        return [term for _, first, last in self.claims for term in (first, last)]

    def _is_whole(self, d: str) -> bool:
        """Whether each reduction over iterations is of one over tiles, and nothing else is."""
        rows, ends = self.terms.rows, self._ends()
        users = [(rows[n], rows[a]) for n in self.terms.below(*ends) for a in rows[n].args]
        pairs = [(x.op, x.attr == f"{d}.l", y.op, y.attr == f"{d}.t") for x, y in users]
        alone = any(rows[n].attr == f"{d}.t" for n in ends)
        return not alone and all(x == y and of and over for x, over, y, of in pairs if over or of)

    def _make_whole(self, d: str) -> None:
        """op[d.l](op[d.t](x)) is op[d](x), however long the last tile is."""
        new: dict[int, int] = {}
        for n in self.terms.below(*self._ends()):
            op, attr, args = self.terms.rows[n]
            of = [new[a] for a in args]
            attr = d if attr == f"{d}.t" else attr
            new[n] = of[0] if attr == f"{d}.l" else self.terms.make(op, of, attr)
        self.claims = [(name, new[a], new[b]) for name, a, b in self.claims]
        del self.reading.loops[d]
