"""The checker of certificates: reads program, µGraph and certificate as JSON data, and replays it.

It knows ``trusted.json`` and this folder alone: what it does not understand is refused. Sizes and
tiles are at least 1 and otherwise open, except for ``needs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirage_py.axioms.certificate.blocks import Graph
from mirage_py.axioms.certificate.indices import Form, access, leaf_of
from mirage_py.axioms.certificate.memory import Memory
from mirage_py.axioms.certificate.shifts import without_shifts
from mirage_py.axioms.certificate.steps import Json, Replay
from mirage_py.axioms.certificate.terms import RefusedError, demand

# What data of another form ends in.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError)
_ILL_FORMED = (*_UNREADABLE, SyntaxError, TypeError, ValueError)


def fault_of(program: Json, ugraph: Json, certificate: Json) -> str:
    """Why it does not show that the µGraph computes the program; "" if it does."""
    try:
        check = Check(program, ugraph, certificate)
        demand(certificate["needs"] == check.needs, "it needs something else of sizes and tiles")
        check.replay.check(check.claims, certificate)
    except (RefusedError, *_ILL_FORMED) as error:
        known = isinstance(error, RefusedError)
        return told(str(error) if known else f"it cannot be read: {type(error).__name__}: {error}")
    return ""


def told(fault: str) -> str:
    """What may be shown of a fault, which quotes what others wrote: short and printable."""
    return (fault if fault.isprintable() else ascii(fault)[1:-1])[:150]


def needs_of(program: Json, ugraph: Json, certificate: Json) -> list[str]:
    """What a certificate has to say of sizes; nothing where there is nothing to prove."""
    try:
        return Check(program, ugraph, certificate).needs
    except (RefusedError, *_ILL_FORMED):
        return []


class Check:
    """What there is to show: ``claims`` of terms that are equal where ``needs`` hold."""

    def __init__(self, program: Json, ugraph: Json, certificate: Json) -> None:
        own, dims, cut = ugraph["program"], certificate["dims"], certificate["cut"]
        asked, sizes = _sizes(program), _sizes(own)
        same = [(g["inputs"], [o["tensor"] for o in g["outputs"]]) for g in (program, own)]
        fits = same[0] == same[1] and {*dims} <= {*asked} and {*cut} <= {*sizes}
        demand(fits, "the µGraph is of another program")
        self.memory = memory = Memory(cut, sizes)
        names = {d: self._parts(d, asked[d], dims.get(d, [d])) for d in asked}
        inputs = [{**t, "kind": "input"} for t in same[0][0]]
        tensors = [*inputs, *({**t, "kind": ""} for t in (*same[0][1], *ugraph["intermediates"]))]
        memory.tensors = {t["name"]: t for t in tensors}
        kernels = [k["name"] for k in ugraph["kernels"]]
        twice = len(memory.tensors) < len(tensors) or len({*kernels}) < len(kernels)
        shared = any("strides" in t for t in ugraph["intermediates"])
        demand(not (twice or shared), "two tensors or kernels of one name, or at one place")
        nodes = program["nodes"]
        memory.loads = [leaf_of("load", n["attr"], names)[0] for n in nodes if n["op"] == "load"]
        whole = {**program, "grid": [], "sections": [{"nodes": [*range(len(nodes))]}]}
        made, blocks = Graph(memory, whole, names).made, list[Json]()
        for kernel in ugraph["kernels"]:
            if kernel["kind"] != "block":
                self._call(kernel, *certificate["calls"][kernel["result"]])
                continue
            blocks.append(kernel)
            for name, (forms, term, _) in Graph(memory, kernel, memory.names).written.items():
                memory.keep(name, forms, term)
        self.claims: list[tuple[str, int, int]] = []
        for o in program["outputs"]:
            name, (forms, last) = o["tensor"]["name"], memory.stored[o["tensor"]["name"]]
            here = access(f"[{', '.join(o['index'])}]", names)[1]
            demand(forms == here, f"output {name} lies elsewhere")
            last = without_shifts(memory.terms, last, [d for d in sizes if d not in cut])
            self.claims.append((name, made[o["node"]], last))
        for d in cut:
            tiles = [tile for over, tile in memory.tiles if over == d]
            alike = len(tiles) < 2 or (None not in tiles and len({*tiles}) == 1)
            demand(alike, f"loops cut {d} into different tiles")
            memory.needs += [f"the tiles of all loops over {d} are equal"] if len(tiles) > 1 else []
        clusters = [(a["dim"], b["name"]) for b in blocks for a in b["grid"] if a.get("cluster")]
        memory.needs += [f"ceil(|{d}| / tile) <= 16 in the grid of {name}" for d, name in clusters]
        self.needs, axes = [*dict.fromkeys(memory.needs)], memory.axes([*sizes])
        rows = memory.terms.rows
        over = {
            rows[n].attr
            for _, *ends in self.claims
            for n in memory.terms.below(*ends)
            if rows[n].op in ("sum", "max")
        }
        demand(over <= {*axes}, "it depends on tiles of a dimension that is not cut")
        self.replay = Replay(memory.terms, axes, cut, self._leaf)

    def _leaf(self, text: str) -> int:
        """A leaf of a certificate: the text of a load, or of an index or mask behind a word."""
        op, _, rest = text.partition(" ")
        is_load = op not in ("index", "mask")
        name, dims = leaf_of(
            "load" if is_load else op, text if is_load else rest, self.memory.names
        )
        self.memory.terms.leaf_axes[name] = self.memory.axes(dims)
        return self.memory.terms.make("leaf", (), name)

    def _parts(self, d: str, size: int, new: Sequence[str]) -> Form:
        """(p, s) -> p S + s is a bijection of [0, P) x [0, S) and [0, P S)."""
        sizes, needs = self.memory.sizes, self.memory.needs
        fits = len({*new}) == len(new) in (1, 2) and size == prod(sizes[x] for x in new)
        demand(fits, f"dimension {d} is not made of {new}")
        if len(new) == 1:
            needs += [f"|{d}| = |{new[0]}|"] if new[0] != d else []
            return {new[0]: 1}
        self.memory.outer[new[1]] = new[0]
        needs.append(f"|{d}| is a multiple of |{new[0]}|")
        return {new[0]: sizes[new[1]], new[1]: 1}

    def _call(self, call: Json, *texts: str) -> None:
        """The matmul A[.., m, k] B[.., k, n] of whole tensors; ``texts`` name their axes."""
        memory, terms = self.memory, self.memory.terms
        (a, left), (b, right) = (access(text, memory.names) for text in texts)
        x, y = (memory.leaf("load", text, memory.names) for text in texts)
        memory.covered(a, left), memory.covered(b, right)
        front = max(left[:-2], right[:-2], key=len)
        axes = [*front, left[-2], right[-1]]
        atoms = [atom for form in (*axes, left[-1]) for atom in form]
        fits = [a, b] == call["args"] and call["op"] == "matmul" and left[-1] == right[-2]
        behind = all(own == front[len(front) - len(own) :] for own in (left[:-2], right[:-2]))
        demand(fits and behind and len({*atoms}) == len(atoms), f"the call {call['name']}")
        of = terms.reduce("sum", memory.axes([*left[-1]]), terms.make("mul", (x, y)))
        memory.keep(call["result"], axes, of)


def _sizes(graph: Json) -> dict[str, int]:
    found = {d["name"]: d["size"] for d in graph["dims"]}
    fits = len(found) == len(graph["dims"]) and all(d.isidentifier() for d in found)
    demand(fits and all(type(n) is int and n > 0 for n in found.values()), "sizes that are none")
    return found
