"""Terms of the nodes of a program or block graph.

A term is that of all points of its dimensions, in whatever block or iteration: no reduction goes
over what a grid divides, and what a loop divides ends in accumulators. For all sizes the tiles
[i T, min((i + 1) T, N)) are disjoint and cover [0, N); what the last one lacks is neutral.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirage_py.axioms.certificate.indices import Form, Names, access
from mirage_py.axioms.certificate.memory import FLOATS, Memory
from mirage_py.axioms.certificate.terms import Json, Term, demand, parts

_REDUCING = {"sum": "sum", "max": "max", "matmul": "sum"}
_STATE = {"accum_sum": "sum", "accum_max": "max", "accum_rescaled": "sum"}


class Graph:
    """``names`` are what dimensions stand for; ``made`` are the terms of nodes, ``written`` is what
    they store, and ``home`` are the iterations that they are in, or "".
    """

    def __init__(self, memory: Memory, graph: Json, names: Names) -> None:
        self.memory, self.terms, self.names, self.name = memory, memory.terms, names, graph["name"]
        # Of each node what it is, each cast that loses digits for itself, and what it is made of.
        self.nodes, self.key, self.met = graph["nodes"], dict[int, Any](), dict[int, set[Any]]()
        self.made, self.home = dict[int, Term](), dict[int, str]()
        self.written: dict[str, tuple[list[Form], Term]] = {}
        # Along an axis of a cluster all blocks together have all of the dimension.
        self.grid = {a["dim"]: a.get("cluster", False) for a in graph["grid"]}
        for d in (d for d, cluster in self.grid.items() if cluster):
            memory.needs.append(f"ceil(|{d}| / tile) <= 16 in the grid of {self.name}")
        tiles = [cut.get("tile") for cut in (*graph["grid"], *graph["sections"])]
        fits = all(t is None or (type(t) is int and t > 0) for t in tiles)
        demand(fits and len(self.grid) == len(graph["grid"]), "a tile below 1, or an axis twice")
        for number, section in enumerate(graph["sections"]):
            d = section.get("loop")
            fits = {*self.grid, d} <= {*names, None} and d not in self.grid
            demand(fits, f"{self.name} cuts a dimension twice")
            self.loop = "" if d is None else f"{d}.l{self.name}/{number}"
            for n in section["nodes"]:
                demand(n not in self.home, f"%{n} is in two sections")
                self.home[n] = self.loop
                self._read(n, self.nodes[n])
        demand(sorted(self.home) == [*range(len(self.nodes))], "sections that lack a node")

    def _read(self, n: int, node: Json) -> None:
        op, attr, args = node["op"], node.get("attr", ""), node.get("args", [])
        of, loop = [self._operand(a) for a in args], self.loop
        if op in ("store", "store_add"):
            self._store(op, attr, of[0])
        elif op == "shift" or (op == "accum_max" and attr == "shift"):
            self.made[n] = self._shift(n, of[0], moves=op == "shift")
        elif op in _STATE:
            fits = loop and of[0].is_free(parts(loop)[2])
            demand(fits, f"{op} of what depends on its loop, or is in none")
            x = self._rescaled(of, args, attr) if len(of) > 1 else of[0]
            self.made[n] = self.terms.make(_STATE[op], (x,), loop)
        elif op in _REDUCING:
            self.made[n] = self._reduced(op, attr, of)
        elif op in ("load", "index", "mask"):
            self.made[n] = self.memory.read(op, attr, self.names)
        elif op == "const":
            self.made[n] = self.terms.const(repr(float(str(attr))))
        elif op == "size":
            sizes = [self.terms.make("size", (), d) for d in self.names[attr]]
            self.made[n] = self.terms.make("mul", sizes) if len(sizes) > 1 else sizes[0]
        else:
            same = op == "cast" and attr in FLOATS
            self.made[n] = of[0] if same else self.terms.make(op, of)
        self._meet(n, op, attr, args)

    def _operand(self, a: int) -> Term:
        """An operand as a node in this loop sees it: there an accumulator is not yet final."""
        demand(a in self.made, f"%{a} is read before it is there")
        node, home, term = self.nodes[a], self.home[a], self.made[a]
        if home == self.loop != "":
            if node["op"] == "accum_max" and node.get("attr") == "shift":
                return self._shift(a, term, moves=True)
            demand(node["op"] not in _STATE, f"%{a} is read before its loop is over")
        elif home != self.loop:
            fits = (not home or node["op"] in _STATE) and parts(self.loop)[0] not in term.dims
            demand(fits, f"%{a} is of one iteration, or of all")
        return term

    def _shift(self, n: int, of: Term, *, moves: bool) -> Term:
        """A free number, and in a loop another one in each iteration."""
        own = {self.loop} if self.loop else set()
        name = f"shift {self.name} %{n}{' in its loop' if own and moves else ''}"
        shift = self.terms.make("leaf", (), name, of.axes | own if moves else of.axes - own)
        return self.memory.shifts.setdefault(name, shift)

    def _rescaled(self, of: Sequence[Term], args: Sequence[int], powers: Sequence[Any]) -> Term:
        """Terms are scaled by their own maximum, and at last by the last one."""
        make, x = self.terms.make, of[0]
        for now, m, k in zip(of[1:], args[1:], powers, strict=True):
            demand(now is not self.made[m], f"%{m} is no running maximum")
            by = make("mul", (make("sub", (now, self.made[m])), self.terms.const(str(k))))
            x = make("mul", (x, make("exp", (by,))))
        return x

    def _reduced(self, op: str, attr: Sequence[str], of: Sequence[Term]) -> Term:
        """A sum or a maximum over what a block, or an iteration, has all of, or its tile of."""
        looped, _, tile = parts(self.loop)
        axes = [tile if d == looped else d for old in attr for d in self.names[old]]
        alone = {d for d, cluster in self.grid.items() if not cluster or op == "matmul" or looped}
        held = not any(x.is_free(axis) for x in of for axis in axes)
        fits = held and len({*axes}) == len(axes) and not {*attr} & alone
        demand(fits, f"a reduction over {attr}, of which a block has a tile, or nothing")
        x = self.terms.make("mul", of) if op == "matmul" else of[0]
        return self.terms.reduce(_REDUCING[op], axes, x)

    def _meet(self, n: int, op: str, attr: Any, args: Sequence[int]) -> None:
        """A cast that loses digits, which is the value itself, does not meet what it is made of."""
        narrow = op == "cast" and FLOATS.get(attr, -1) > self._type(args[0])
        same = op == "cast" and not narrow
        own = set() if same else {(self.key[a], narrow) for a in args}
        self.met[n] = met = own.union(*(self.met[a] for a in args))
        lost = any(cast and (key, False) in met for key, cast in met)
        demand(not lost, f"%{n} is made of a value and of a cast of it that loses digits")
        self.key[n] = n if narrow else self.key[args[0]] if same else self.made.get(n)

    def _type(self, n: int) -> int:
        """How coarse the type of a node is; whole numbers and truth values are the coarsest."""
        attr = str(self.nodes[n].get("attr"))
        known = self.memory.tensors.get(attr.partition("[")[0], {"dtype": "f32"})["dtype"]
        return FLOATS.get(attr if self.nodes[n]["op"] == "cast" else known, 9)

    def _store(self, op: str, text: str, x: Term) -> None:
        tensor, forms = access("store", text, self.names)
        places = {d for form in forms for d in form}
        dims = x.dims | {*filter(None, parts(self.loop)[:1])}
        alone = [d for d, cluster in self.grid.items() if op == "store_add" and not cluster]
        over = [d for d in alone if d in dims - places]
        demand(dims <= {*places, *over}, f"a store to {tensor} that leaves a dimension out")
        demand(tensor not in self.written, f"{tensor} is stored twice")
        self.written[tensor] = forms, self.terms.reduce("sum", over, x)
