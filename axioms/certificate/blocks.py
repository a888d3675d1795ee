"""Terms of the nodes of a program or block graph, and of the values that a block graph stores.

A term is that of all points of its dimensions, in whatever block or iteration: no reduction goes
over what a grid divides, and what a loop divides ends in accumulators. For all sizes the tiles
[i T, min((i + 1) T, N)) are disjoint and cover [0, N); what the last one lacks is neutral.
"""

from __future__ import annotations

from typing import Any

from mirage_py.axioms.certificate.indices import Form, Names, access, leaf_of
from mirage_py.axioms.certificate.memory import FLOATS, Memory
from mirage_py.axioms.certificate.steps import Json
from mirage_py.axioms.certificate.terms import SHIFT, demand

_REDUCING = {"sum": "sum", "max": "max", "matmul": "sum"}
_STATE = {"accum_sum": "sum", "accum_max": "max", "accum_rescaled": "sum"}


class Graph:
    """``names`` are what dimensions stand for; ``made`` are terms, ``dims`` what they depend on."""

    def __init__(self, memory: Memory, graph: Json, names: Names) -> None:
        self.memory, self.terms, self.names, self.name = memory, memory.terms, names, graph["name"]
        self.nodes, sections = graph["nodes"], graph["sections"]
        # Along an axis of a cluster all blocks together have all of the dimension.
        self.grid = {a["dim"]: a.get("cluster", False) for a in graph["grid"]}
        self.loops = [s.get("loop") for s in sections]
        self.home = {n: s for s, section in enumerate(sections) for n in section["nodes"]}
        self.made, self.dims = dict[int, int](), dict[int, list[str]]()
        self.met: dict[int, set[tuple[int, bool]]] = {}
        self.written: dict[str, tuple[list[Form], int, bool]] = {}
        order = [n for s in sections for n in s["nodes"]]
        demand(
            sorted(order) == [*range(len(self.nodes))], "sections that lack a node, or repeat it"
        )
        cut = [*(a["dim"] for a in graph["grid"]), *filter(None, self.loops)]
        apart = {*cut} <= {*names} and all(cut.count(d) == 1 for d in self.grid)
        demand(apart, f"{self.name} cuts a dimension twice")
        tiles = [c.get("tile") for c in (*graph["grid"], *sections)]
        demand(all(t is None or (type(t) is int and t > 0) for t in tiles), "a tile below 1")
        for n in order:
            section = sections[self.home[n]]
            self._read(n, self.nodes[n], section.get("loop"), section.get("tile"))

    def _read(self, n: int, node: Json, loop: Any, size: Any) -> None:
        op, attr, args = node["op"], node.get("attr", ""), node.get("args", [])
        own = [self._alive(a, n, loop) for a in args]
        if op in ("load", "index", "mask"):
            own = [leaf_of(op, attr, {d: {d: 1} for d in self.names})[1]]
        dims = [*dict.fromkeys(d for one in own for d in one)]
        self._stay_apart(n, op, attr, args, dims)
        for d in attr if op in _REDUCING else []:
            shared = self.grid.get(d) and op != "matmul" and loop is None
            whole = all(d in one for one in own) and (d not in self.grid or shared)
            demand(whole, f"a reduction over {d}, of which a block has a tile")
            dims = [other for other in dims if other != d]
        self.dims[n] = dims
        if op == "shift" or (op == "accum_max" and attr == "shift"):
            self.made[n] = self._shift(n, loop if op == "shift" else None)
            return
        of = [self._seen(a, n) for a in args]
        if op in _STATE:
            demand(loop and loop not in own[0], f"{op} of what depends on its loop")
            self.dims[n] = own[0]
        if op in ("store", "store_add"):
            self._store(op, attr, of[0], {*dims, *([loop] if loop else [])})
        else:
            self.made[n] = self._term(op, attr, of, args, loop, size)

    def _term(
        self, op: str, attr: Any, of: list[int], args: list[int], loop: Any, size: Any
    ) -> int:
        make = self.terms.make
        if op in ("load", "index", "mask"):
            return self.memory.leaf(op, attr, self.names)
        if op == "const":
            return self.terms.const(repr(float(str(attr))))
        if op == "size":
            first, *more = [make("size", (), d) for d in self.names[attr]]
            return make("mul", (first, *more)) if more else first
        x = make("mul", of) if op == "matmul" else of[0]
        if op in _REDUCING:
            over = [new for d in attr for new in self.names[d]]
            return self.terms.reduce(_REDUCING[op], self.memory.axes(over, loop), x)
        if op in _STATE:
            row, tile = self.terms.rows[x], f"{loop}.t"
            inner = [self.terms.rows[n].attr for n in self.terms.below(*row.args)]
            if (row.op, row.attr) != (_STATE[op], tile) or tile in inner:
                self.memory.tiles.append((loop, size))
            pairs = [*zip(of[1:], args[1:], attr, strict=True)] if of[1:] else []
            for now, m, k in pairs:
                # The terms are scaled by their own maximum, and at last by the last one.
                demand(now != self.made[m], f"%{m} is no running maximum")
                by = make("mul", (make("sub", (now, self.made[m])), self.terms.const(str(k))))
                x = make("mul", (x, make("exp", (by,))))
            return make(_STATE[op], (x,), f"{loop}.l")
        return x if op == "cast" and attr in FLOATS else make(op, of)

    def _shift(self, n: int, loop: Any) -> int:
        """A free number, and in a loop another one in each iteration."""
        axes = [axis for d in self.dims[n] for axis in (d, f"{d}.l", f"{d}.t")]
        name = f"{SHIFT}{self.name} %{n}{f' in {loop}' if loop else ''}"
        self.terms.leaf_axes[name] = [*axes, f"{loop}.l"] if loop else axes
        return self.terms.make("leaf", (), name)

    def _seen(self, a: int, user: int) -> int:
        """An operand as its user sees it: in its own loop an accumulator is not yet final."""
        op, inside = self.nodes[a]["op"], self.home[a] == self.home[user]
        if inside and op == "accum_max" and self.nodes[a].get("attr") == "shift":
            return self._shift(a, self.loops[self.home[a]])
        demand(not (inside and op in _STATE), f"%{a} is read before its loop is over")
        return self.made[a]

    def _alive(self, a: int, user: int, loop: Any) -> list[str]:
        """The dimensions of an operand, which is there and does not die with an iteration."""
        demand(a in self.made, f"%{a} is read before it is there")
        dead = self.loops[self.home[a]] and self.nodes[a]["op"] not in _STATE
        apart = self.home[a] != self.home[user] and (dead or loop in self.dims[a])
        demand(not apart, f"%{a} is of one iteration, or holds all of {loop}")
        return self.dims[a]

    def _stay_apart(self, n: int, op: str, attr: Any, args: list[int], dims: list[str]) -> None:
        """Different dimensions are not made one, and a cast that loses digits, which is the value
        itself, does not meet what it was made of.
        """
        new = [x for d in dims for x in self.names[d]]
        demand(len({*new}) == len(new), f"dimensions {dims} are no longer apart")
        narrow = op == "cast" and FLOATS.get(attr, -1) > FLOATS.get(self._type(args[0]), 9)
        met = {(a, narrow) for a in args}.union(*(self.met[a] for a in args))
        lost = any(cast and (a, False) in met for a, cast in met)
        demand(not lost, f"a cast to {attr} meets what it was made of")
        self.met[n] = met

    def _type(self, n: int) -> str:
        attr = str(self.nodes[n].get("attr"))
        known = self.memory.tensors.get(attr.partition("[")[0], {"dtype": "f32"})["dtype"]
        return attr if self.nodes[n]["op"] == "cast" else str(known)

    def _store(self, op: str, text: str, x: int, dims: set[str]) -> None:
        tensor, forms = access(text, self.names)
        places = {d for form in forms for d in form}
        over = [d for d, cluster in self.grid.items() if not cluster and d in dims - places]
        over = over if op == "store_add" else []
        demand(dims <= {*places, *over}, f"a store to {tensor} that leaves a dimension out")
        x = self.terms.reduce("sum", self.memory.axes(over), x)
        if tensor in self.written:
            before, term, adds = self.written[tensor]
            demand(op == "store_add" and adds and before == forms, f"{tensor} is stored twice")
            x = self.terms.make("add", (term, x))
        self.written[tensor] = forms, x, op == "store_add"
