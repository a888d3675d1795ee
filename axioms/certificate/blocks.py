"""One block graph: what it stores, and how its grid and its loops cut dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from mirage_py.axioms.certificate.coverage import added, tiles
from mirage_py.axioms.certificate.graphs import REDUCING, Reading, Stored
from mirage_py.axioms.certificate.shifts import Shift, Value, elementwise, reduction, value
from mirage_py.axioms.certificate.steps import Json
from mirage_py.axioms.certificate.terms import RefusedError

_STATE = {"accum_sum": "sum", "accum_max": "max", "accum_rescaled": "sum"}
Made = tuple[Value | RefusedError, tuple[str, ...]]


class Block:
    """``made`` are the values of the nodes that ran, with the dimensions that they depend on."""

    def __init__(self, reading: Reading, block: Json) -> None:
        self.reading, self.terms, self.name = reading, reading.terms, block["name"]
        self.nodes, self.sections = block["nodes"], block["sections"]
        # Along an axis of a cluster all blocks together have all of the dimension.
        self.grid = {a["dim"]: a.get("cluster", False) for a in block["grid"]}
        self.made: dict[int, Made] = {}
        self.home: dict[int, int] = {}
        # What a running maximum is in one iteration of its loop.
        self.running: dict[int, Shift] = {}
        self.written: dict[str, Stored] = {}
        self.added: dict[str, None] = {}
        cut = [*(a["dim"] for a in block["grid"])]
        if sorted(n for s in self.sections for n in s["nodes"]) != list(range(len(self.nodes))):
            raise RefusedError("sections that do not hold each node once")
        for number, section in enumerate(self.sections):
            loop = section.get("loop")
            for n in section["nodes"]:
                self.home[n] = number
                self.made[n] = self._node(n, self.nodes[n], loop)
            if loop is not None:
                cut.append(loop)
                self._loop(number, section)
        if any(cut.count(d) > 1 for d in self.grid) or any(d not in reading.sizes for d in cut):
            raise RefusedError(f"{self.name} cuts a dimension twice")
        for a in block["grid"]:
            over = self._reducers(a["dim"], range(len(self.nodes))).values()
            cluster = self.grid[a["dim"]]
            fact = tiles(f"grid of {self.name}", a["dim"], a["tile"], over, cluster=cluster)
            reading.facts.append(fact)

    def _reducers(self, d: str, nodes: Iterable[int]) -> dict[int, str]:
        """The nodes that reduce a dimension, and how."""
        found = {n: self.nodes[n] for n in nodes if self.nodes[n]["op"] in REDUCING}
        return {n: REDUCING[node["op"]] for n, node in found.items() if d in node["attr"]}

    def _loop(self, number: int, section: Json) -> None:
        """Whether it adds up its tiles and does no more decides if others may have other tiles."""
        d, makers = section["loop"], self._reducers(section["loop"], section["nodes"])
        plain = True
        for node in (self.nodes[n] for n in section["nodes"]):
            by, args = _STATE.get(node["op"]), node.get("args", [])
            plain &= by is None or makers.get(args[0]) == by
            plain &= not any(a in makers for a in (args[1:] if by else args))
        self.reading.cuts.append((d, section["tile"], plain))
        place = f"section {number} of {self.name}"
        self.reading.facts.append(tiles(place, d, section["tile"], makers.values(), cluster=False))

    def _node(self, n: int, node: Json, loop: str | None) -> Made:
        """The value of a node, or why it has none: nobody may ask for it."""
        op, attr, reading = node["op"], node.get("attr", ""), self.reading
        if op in ("load", "index", "mask"):
            return reading.leaf(op, attr)
        args = node.get("args", [])
        apart = [self._dims(a, n, loop) for a in args]
        dims = tuple(dict.fromkeys(d for own in apart for d in own))
        if op == "shift" or (op == "accum_max" and attr == "shift"):
            return self._shift(n, op, dims, loop), dims
        if op in _STATE and (loop is None or loop in apart[0]):
            raise RefusedError(f"{op} of what depends on its loop")
        for d in attr if op in REDUCING else ():
            shared = self.grid.get(d) and op != "matmul" and loop is None
            if any(d not in own for own in apart) or (d in self.grid and not shared):
                raise RefusedError(f"a reduction over {d}, of which a block has a tile")
        dims = apart[0] if op in _STATE else dims
        dims = tuple(d for d in dims if op not in REDUCING or d not in attr)
        try:
            of = [self._operand(a, n) for a in args]
            if op in ("store", "store_add"):
                return self._store(op, attr, of[0], dims, loop), ()
            if op not in _STATE:
                return reading.compute(node, of, reading.names, loop), dims
            for shift, degree in zip(args[1:], attr if args[1:] else (), strict=True):
                of[0] = self._rescaled(of[0], shift, degree)
            return reduction(self.terms, _STATE[op], [f"{loop}.l"], of[0]), dims
        except RefusedError as error:
            if op.startswith("store"):
                raise
            return error, dims

    def _dims(self, a: int, user: int, loop: str | None) -> tuple[str, ...]:
        """The dimensions of an operand, which is there and does not die with an iteration."""
        if a not in self.made:
            raise RefusedError(f"%{a} is read before it is there")
        dims, home = self.made[a][1], self.sections[self.home[a]].get("loop")
        dead = home is not None and self.nodes[a]["op"] not in _STATE
        if self.home[a] != self.home[user] and (loop in dims or dead):
            raise RefusedError(f"%{a} is of one iteration, or holds all of {loop}")
        return dims

    def _operand(self, a: int, user: int) -> Value:
        """As its user sees it: in its own loop an accumulator is not yet final."""
        made = self.made[a][0]
        if self.home[a] == self.home[user] and a in self.running:
            return _shifted(self.terms.zero, self.running[a])
        if self.home[a] == self.home[user] and self.nodes[a]["op"] in _STATE:
            raise RefusedError(f"%{a} is read before its loop is over")
        if isinstance(made, RefusedError):
            raise made
        return made

    def _shift(self, n: int, op: str, dims: tuple[str, ...], loop: str | None) -> Value:
        """A free number, and another one in each iteration."""
        final = Shift(f"{self.name} %{n}", tuple(self.reading.axes(dims)))
        moving = Shift(f"{final.name} in its loop", (*final.axes, f"{loop}.l"))
        if op == "accum_max":
            self.running[n] = moving
        shift = moving if op == "shift" and loop is not None else final
        return _shifted(self.terms.zero, shift)

    def _rescaled(self, of: Value, shift: int, degree: int) -> Value:
        """sum_l(x_l exp(-k m_l) exp(k (m_l - m))) = sum_l(x_l) exp(-k m), m the last of the m_l."""
        moving, final = self.running.get(shift), self.made[shift][0]
        if moving is None or isinstance(final, RefusedError) or of.how != "scaled":
            raise RefusedError("rescaled by what is no running maximum")
        if dict(of.by).get(moving) != degree:
            raise RefusedError("rescaled by another power than it is scaled by")
        ((last, _),) = final.by
        return value(of.kept, of.how, [(last if s == moving else s, k) for s, k in of.by])

    def _store(
        self, op: str, text: Any, x: Value, dims: tuple[str, ...], loop: str | None
    ) -> Value:
        tensor, forms = self.reading.indices.access(text, self.reading.names)
        places = [d for f in forms for atom in f for d in self.reading.indices.dims[atom]]
        apart = [d for d, cluster in self.grid.items() if not cluster and d not in places]
        over = [d for d in apart if op == "store_add" and d in dims]
        if any(d not in (*places, *over) for d in (*dims, *([loop] if loop else []))):
            raise RefusedError(f"a store to {tensor} that leaves a dimension out")
        if over:
            x = reduction(self.terms, "sum", self.reading.axes(over), x)
            self.reading.facts.append(added(tensor, over))
        before = self.written.get(tensor)
        if before is not None:
            if op == "store" or tensor not in self.added or before[0] != forms:
                raise RefusedError(f"{tensor} is stored twice")
            x = elementwise(self.terms, "add", (before[1], x))
        self.written[tensor] = forms, x
        self.added |= {tensor: None} if op == "store_add" else {}
        return x


def _shifted(zero: int, shift: Shift) -> Value:
    """The number that is subtracted: 0 - (-shift)."""
    return Value(zero, "minus", ((shift, Fraction(-1)),))
