"""Terms of the nodes of a program or block graph, and what kernels leave in memory.

A term is that of all points of its dimensions, in whatever block or iteration: no reduction goes
over what a grid divides, and what a loop divides ends in accumulators. For all sizes the tiles
[i T, min((i + 1) T, N)) are disjoint and cover [0, N); what the last one lacks is neutral.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.indices import Form, Names, access, leaf_of, needs_of_stores
from mirage_py.axioms.certificate.shifts import SHIFT
from mirage_py.axioms.certificate.steps import Json
from mirage_py.axioms.certificate.terms import Terms, demand

# Types from precise to coarse.
FLOATS = {"f64": 0, "f32": 1, "f16": 2, "bf16": 3, "f8e4m3": 4, "f8e5m2": 5}
_REDUCING = {"sum": "sum", "max": "max", "matmul": "sum"}
_STATE = {"accum_sum": "sum", "accum_max": "max", "accum_rescaled": "sum"}
_READS = ("load", "index", "mask")


class Memory:
    """Contents of device memory; the loops in ``alike`` have the same tiles."""

    def __init__(self, tensors: Json, sizes: Mapping[str, int], alike: list[str]) -> None:
        self.terms, self.tensors, self.sizes, self.alike = Terms(), tensors, sizes, alike
        self.names: Names = {d: {d: 1} for d in sizes}
        self.stored: dict[str, tuple[list[Form], int]] = {}
        self.outer: dict[str, str] = {}
        self.loads, self.needs = list[str](), list[str]()
        self.tiles: list[tuple[str, Any, str]] = []

    def leaf(self, op: str, text: str, names: Names) -> int:
        """What a node reads: of inputs all, or what the program reads too: it is inside."""
        tensor, forms = access(op, text, names)
        if tensor in self.stored:
            demand(forms == self.stored[tensor][0], f"{text} is not read as it is stored")
            return self.stored[tensor][1]
        name, dims = leaf_of(op, text, names)
        read = op != "load" or name in self.loads or not self.covered(tensor, forms)
        demand(read, f"{text} is not read by the program")
        self.terms.leaf_axes[name] = dims
        return self.terms.make("leaf", (), name)

    def covered(self, name: str, forms: Sequence[Form]) -> list[str]:
        """What sizes have to be for the indices to run over a tensor once."""
        return needs_of_stores(self.tensors[name]["shape"], forms, self.sizes, self.outer)

    def keep(self, name: str, forms: list[Form], term: int) -> None:
        """What a kernel leaves: each tensor is written by one kernel, each element once."""
        tensor = self.tensors[name]
        fits = name not in self.stored and tensor["dtype"] in FLOATS and not tensor["is_input"]
        demand(fits, f"{name} is written twice, or holds no real numbers")
        self.needs += self.covered(name, forms)
        self.stored[name] = forms, term

    def call(self, call: Json, *texts: str) -> None:
        """The matmul A[.., m, k] B[.., k, n] of whole tensors; ``texts`` name their axes."""
        (a, left), (b, right) = (access("load", text, self.names) for text in texts)
        x, y = (self.leaf("load", text, self.names) for text in texts)
        self.covered(a, left), self.covered(b, right)
        *front, m, k = left
        *other, again, n = right
        whole = max(front, other, key=len)
        behind = all(own == whole[len(whole) - len(own) :] for own in (front, other))
        fits = [a, b] == call["args"] and call["op"] == "matmul" and k == again and behind
        demand(fits and not {*m} & {*n}, f"the call {call['name']}")
        of = self.terms.reduce("sum", [*k], self.terms.make("mul", (x, y)))
        self.keep(call["result"], [*whole, m, n], of)


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
        whole = sorted(order) == [*range(len(self.nodes))]
        demand(whole, "sections that lack a node, or repeat it")
        cut = [*(a["dim"] for a in graph["grid"]), *filter(None, self.loops)]
        apart = {*cut} <= {*names} and all(cut.count(d) == 1 for d in self.grid)
        demand(apart, f"{self.name} cuts a dimension twice")
        tiles = [c.get("tile") for c in (*graph["grid"], *sections)]
        demand(all(t is None or (type(t) is int and t > 0) for t in tiles), "a tile below 1")
        memory.tiles += [
            (d, section.get("tile"), f"{self.name}/{s}")
            for s, (d, section) in enumerate(zip(self.loops, sections, strict=True))
            if d and f"{self.name}/{s}" in memory.alike
        ]
        for n in order:
            self._read(n, self.nodes[n], self.loops[self.home[n]])

    def _axis(self, n: int, part: str) -> str:
        """Iterations "l", or the tile "t", of a node's loop; loops with one name have one tile."""
        s = self.home[n]
        own = f"{self.name}/{s}"
        return f"{self.loops[s]}.{part}{'' if own in self.memory.alike else own}"

    def _read(self, n: int, node: Json, loop: Any) -> None:
        op, attr, args = node["op"], node.get("attr", ""), node.get("args", [])
        of = [self._operand(a, n, loop) for a in args]
        own = [self.dims[a] for a in args]
        if op in _READS:
            own = [leaf_of(op, attr, {d: {d: 1} for d in self.names})[1]]
        dims = [*dict.fromkeys(d for one in own for d in one)]
        self._stay_apart(n, op, attr, args, dims)
        for d in attr if op in _REDUCING else []:
            shared = self.grid.get(d) and op != "matmul" and loop is None
            whole = all(d in one for one in own) and (d not in self.grid or shared)
            demand(whole, f"a reduction over {d}, of which a block has a tile")
            dims = [other for other in dims if other != d]
        self.dims[n] = dims
        if op in _STATE:
            self.dims[n] = dims = own[0]
            demand(loop and loop not in dims, f"{op} of what depends on its loop")
        if op in ("store", "store_add"):
            self._store(op, attr, of[0], {*dims, *([loop] if loop else [])})
        elif op == "shift" or (op == "accum_max" and attr == "shift"):
            self.made[n] = self._shift(n, op == "shift" and loop)
        else:
            self.made[n] = self._term(n, op, attr, of, args)

    def _term(self, n: int, op: str, attr: Any, of: list[int], args: list[int]) -> int:
        make = self.terms.make
        if op in _READS:
            return self.memory.leaf(op, attr, self.names)
        if op == "const":
            return self.terms.const(repr(float(str(attr))))
        if op == "size":
            first, *more = [make("size", (), d) for d in self.names[attr]]
            return make("mul", (first, *more)) if more else first
        x = make("mul", of) if op == "matmul" else of[0]
        if op in _REDUCING:
            loop = self.loops[self.home[n]]
            axes = [self._axis(n, "t") if d == loop else d for old in attr for d in self.names[old]]
            return self.terms.reduce(_REDUCING[op], axes, x)
        if op in _STATE:
            pairs = [*zip(of[1:], args[1:], attr, strict=True)] if of[1:] else []
            for now, m, k in pairs:
                # The terms are scaled by their own maximum, and at last by the last one.
                demand(now != self.made[m], f"%{m} is no running maximum")
                by = make("mul", (make("sub", (now, self.made[m])), self.terms.const(str(k))))
                x = make("mul", (x, make("exp", (by,))))
            return make(_STATE[op], (x,), self._axis(n, "l"))
        return x if op == "cast" and attr in FLOATS else make(op, of)

    def _shift(self, n: int, loop: Any) -> int:
        """A free number, and in a loop another one in each iteration."""
        name = f"{SHIFT}{self.name} %{n}{f' in {loop}' if loop else ''}"
        self.terms.leaf_axes[name] = [*self.dims[n], *([self._axis(n, "l")] if loop else [])]
        return self.terms.make("leaf", (), name)

    def _operand(self, a: int, n: int, loop: Any) -> int:
        """An operand as node n sees it: in its own loop an accumulator is not yet final."""
        demand(a in self.made, f"%{a} is read before it is there")
        op, inside = self.nodes[a]["op"], self.home[a] == self.home[n]
        if inside and op == "accum_max" and self.nodes[a].get("attr") == "shift":
            return self._shift(a, loop)
        demand(not (inside and op in _STATE), f"%{a} is read before its loop is over")
        dead = self.loops[self.home[a]] and op not in _STATE
        apart = inside or not (dead or loop in self.dims[a])
        demand(apart, f"%{a} is of one iteration, or holds all of {loop}")
        return self.made[a]

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
        tensor, forms = access("store", text, self.names)
        places = {d for form in forms for d in form}
        over = [d for d, cluster in self.grid.items() if not cluster and d in dims - places]
        over = over if op == "store_add" else []
        demand(dims <= {*places, *over}, f"a store to {tensor} that leaves a dimension out")
        x = self.terms.reduce("sum", over, x)
        if tensor in self.written:
            before, term, adds = self.written[tensor]
            demand(op == "store_add" and adds and before == forms, f"{tensor} is stored twice")
            x = self.terms.make("add", (term, x))
        self.written[tensor] = forms, x, op == "store_add"
