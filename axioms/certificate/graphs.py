"""What a program computes, and what the kernels of a µGraph leave, as terms.

A value is that of all points of its dimensions: which block or iteration has a point does not
matter, as no reduction goes over what a grid cuts, and what a loop cuts ends in accumulators.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, product

from mirage_py.axioms.certificate.coverage import Fact, parts, stored
from mirage_py.axioms.certificate.indices import Form, Indices
from mirage_py.axioms.certificate.shifts import Value, elementwise, reduction
from mirage_py.axioms.certificate.steps import Json
from mirage_py.axioms.certificate.terms import RefusedError, Terms

_FLOATS = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2")
REDUCING = {"sum": "sum", "max": "max", "matmul": "sum"}
Stored = tuple[list[Form], Value]


class Reading:
    """Terms over the dimensions of the µGraph, of which ``dims`` makes the program's."""

    def __init__(self, terms: Terms, program: Json, ugraph: Json, dims: Json) -> None:
        self.terms, own = terms, ugraph["program"]
        self.sizes = dict(map(_dim, own["dims"]))
        self.asked = {d["name"]: dims.get(d["name"], [d["name"]]) for d in program["dims"]}
        same = [(g["inputs"], [o["tensor"] for o in g["outputs"]]) for g in (program, own)]
        if same[0] != same[1] or set(dims) - set(self.asked) or min(self.sizes.values()) < 1:
            raise RefusedError("the µGraph is of another program")
        made = [parts(d, n, self.asked[d], self.sizes) for d, n in map(_dim, program["dims"])]
        self.facts: list[Fact] = [fact for fact in made if fact["dim"] in dims]
        cut = {new[1]: new[0] for new in self.asked.values() if len(new) == 2}
        self.indices = Indices(self.sizes, cut)
        self.names = {d: d for d in self.sizes}
        blocks = [k for k in ugraph["kernels"] if k["kind"] == "block"]
        self.loops = {s["loop"]: None for k in blocks for s in k["sections"] if s.get("loop")}
        self.inputs = {t["name"]: t["shape"] for t in program["inputs"]}
        self.intermediates = {t["name"]: t for t in ugraph["intermediates"]}
        self.tensors = {t["name"]: t for t in same[0][1]} | self.intermediates
        if len(self.tensors) != len(same[0][1]) + len(ugraph["intermediates"]):
            raise RefusedError("two tensors of one name")
        self.loads: dict[str, tuple[str, list[Form]]] = {}
        self.memory: dict[str, Stored] = {}
        # Of each loop its dimension, its tile, and whether it only adds up its tiles.
        self.cuts: list[tuple[str, int | None, bool]] = []
        names = {d: "&".join(new) for d, new in self.asked.items()}
        _refuse_differences_of_casts(program)
        self.outputs = self._outputs(program, names)

    def axes(self, dims: Sequence[str], loop: str | None = None) -> list[str]:
        """The axes of dimensions: iterations and tiles where loops go, in one of them the tile."""
        both = {d: [f"{d}.t"] if d == loop else [f"{d}.l", f"{d}.t"] for d in self.loops}
        return [axis for d in dims for axis in both.get(d, [d])]

    def keep(self, written: Mapping[str, Stored]) -> None:
        """What a kernel leaves: each tensor is written by one kernel, all of it once."""
        for name, (forms, of) in written.items():
            tensor = self.tensors[name]
            if name in self.memory or name in self.inputs or tensor["dtype"] not in _FLOATS:
                raise RefusedError(f"{name} is written twice, or holds no real numbers")
            if name in self.intermediates and "strides" in tensor:
                raise RefusedError(f"elements of {name} may share places")
            if any(
                x.endswith(".l") and x[:-1] + "t" not in s.axes for s, _ in of.by for x in s.axes
            ):
                raise RefusedError(f"{name} holds another shift for each tile of a loop")
            self.facts.append(stored(name, tensor["shape"], forms, self.indices))
        self.memory |= written

    def compute(
        self, node: Json, args: Sequence[Value], names: Mapping[str, str], loop: str | None = None
    ) -> Value:
        """A node that any graph may have; ``names`` are the atoms of its dimensions."""
        op, attr, make = node["op"], node.get("attr"), self.terms.make
        if op in ("load", "index", "mask"):
            return Value(make("leaf", (), self.indices.leaf(op, str(attr), names)))
        if op == "const":
            return Value(self.terms.const(repr(float(str(attr)))))
        if op == "size":
            sizes = [make("size", (), d) for d in names[str(attr)].split("&")]
            return Value(sizes[0] if len(sizes) == 1 else make("mul", sizes))
        if op in REDUCING:
            x = elementwise(self.terms, "mul", args) if op == "matmul" else args[0]
            over = self.axes([new for d in node["attr"] for new in names[d].split("&")], loop)
            return reduction(self.terms, REDUCING[op], over, x)
        return args[0] if op == "cast" and attr in _FLOATS else elementwise(self.terms, op, args)

    def leaf(self, op: str, text: str) -> tuple[Value | RefusedError, tuple[str, ...]]:
        """What a kernel reads: of inputs all of it, or what the program reads too: it is inside."""
        leaf = self.indices.leaf(op, text, self.names)
        dims, tensor = self.indices.dims[leaf], text.partition("[")[0] if op == "load" else ""
        if tensor in self.memory:
            forms, of = self.memory[tensor]
            fits = forms == self.indices.access(text, self.names)[1]
            return of if fits else RefusedError(f"{text} is not read as it is stored"), dims
        if tensor and leaf not in self.loads:
            forms = self.indices.access(text, self.names)[1]
            if stored(tensor, self.inputs[tensor], forms, self.indices)["needs"]:
                raise RefusedError(f"{text} is not read by the program")
        return Value(self.terms.make("leaf", (), leaf)), dims

    def cut_alike(self, d: str) -> None:
        """Loops over d whose tiles matter have to have the same, which then may be any."""
        found = [tile for own, tile, plain in self.cuts if own == d and not plain]
        if len(found) > 1 and (None in found or len(set(found)) > 1):
            raise RefusedError(f"loops cut {d} into different tiles")
        needs = [f"the tiles of all loops over {d} are equal"] if len(found) > 1 else []
        self.facts.append({"rule": "alike", "dim": d, "needs": needs})

    def call(self, call: Json) -> dict[str, Stored]:
        """The product A[.., m, k] B[.., k, n] of whole tensors, whose axes are single atoms."""
        for (left, x), (right, y) in product(*map(self._operands, call["args"])):
            a, b = ([atom for form in forms for atom in form] for forms in (left, right))
            front = max(left[:-2], right[:-2], key=len)
            axes = [*front, left[-2], right[-1]]
            apart = [*(atom for form in axes for atom in form), a[-1]]
            fits = a[-1] == b[-2] and len(set(apart)) == len(apart) == len(axes) + 1
            whole = all([*form.values()] == [1] for form in (*left, *right))
            behind = all(own == front[len(front) - len(own) :] for own in (left[:-2], right[:-2]))
            if fits and whole and behind and call["op"] == "matmul":
                of = elementwise(self.terms, "mul", (x, y))
                over = self.axes(a[-1].split("&"))
                return {call["result"]: (axes, reduction(self.terms, "sum", over, of))}
        raise RefusedError(f"the library call {call['name']}")

    def _operands(self, name: str) -> list[Stored]:
        """A tensor as it is stored; an input as each load of all of it names its axes."""
        if name not in self.inputs:
            return [self.memory[name]]
        loads = [(leaf, forms) for leaf, (tensor, forms) in self.loads.items() if tensor == name]
        found: list[Stored] = []
        for leaf, forms in loads:
            try:
                stored(name, self.inputs[name], forms, self.indices)
            except RefusedError:
                continue
            found.append((forms, Value(self.terms.make("leaf", (), leaf))))
        return found

    def _outputs(
        self, program: Json, names: Mapping[str, str]
    ) -> list[tuple[str, int, list[Form]]]:
        found: list[Value] = []
        near: list[set[str]] = []
        for node in program["nodes"]:
            args = node.get("args", [])
            found.append(self.compute(node, [found[a] for a in args], names))
            if node["op"] == "load":
                leaf = self.terms.rows[found[-1].kept].attr
                self.loads.setdefault(leaf, self.indices.access(node["attr"], names))
            dims = set(re.findall(r"\w+", str(node.get("attr")))) & set(self.asked)
            dims = dims.union(*(near[a] for a in args))
            for a, b in combinations(sorted(dims), 2):
                if set(self.asked[a]) & set(self.asked[b]):
                    raise RefusedError(f"dimensions {a} and {b} are no longer apart")
            near.append(dims - set(node["attr"] if node["op"] in REDUCING else ()))
        return [
            (
                o["tensor"]["name"],
                found[o["node"]].kept,
                self.indices.access(f"[{', '.join(o['index'])}]", names)[1],
            )
            for o in program["outputs"]
        ]


def _refuse_differences_of_casts(program: Json) -> None:
    """A cast that loses digits is the value itself, but not where it meets what it was made of."""
    types = {t["name"]: t["dtype"] for t in program["inputs"]}
    nodes = [(n["op"], n.get("attr"), n.get("args", [])) for n in program["nodes"]]
    held = [
        attr if op == "cast" else types.get(str(attr).partition("[")[0], "f32")
        for op, attr, _ in nodes
    ]
    for cast, (op, attr, args) in enumerate(nodes):
        if op != "cast" or attr not in _FLOATS or held[args[0]] not in _FLOATS:
            continue
        through, beside = {cast}, {args[0]}
        for n, (_, _, own) in enumerate(nodes):
            through |= {n} if through & set(own) else set()
            beside |= {n} if beside & set(own) and n != cast else set()
        if through & beside and _FLOATS.index(attr) > _FLOATS.index(held[args[0]]):
            raise RefusedError(f"a cast to {attr} meets what it was made of")


def _dim(d: Json) -> tuple[str, int]:
    return d["name"], d["size"]
