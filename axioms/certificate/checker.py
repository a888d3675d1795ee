"""The checker of certificates: reads program, µGraph and certificate as JSON data, and replays it.

It knows ``trusted.json`` and this folder alone: what it does not understand is refused. Sizes and
tiles are at least 1 and otherwise open, except for ``needs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirage_py.axioms.certificate.graphs import Graph, Memory
from mirage_py.axioms.certificate.indices import Form, access, leaf_of
from mirage_py.axioms.certificate.shifts import without_shifts
from mirage_py.axioms.certificate.steps import Json, Replay
from mirage_py.axioms.certificate.terms import RefusedError, demand

VERSION = 2
# What data of another form ends in.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError)
ILL_FORMED = (RefusedError, *_UNREADABLE, SyntaxError, TypeError, ValueError)


def fault_of(program: Json, ugraph: Json, certificate: Json) -> str:
    """Why it does not show that the µGraph computes the program; "" if it does."""
    try:
        check = Check(program, ugraph, certificate)
        demand(certificate["needs"] == check.needs, "it needs something else of sizes and tiles")
        check.replay.check(check.claims, certificate)
    except ILL_FORMED as error:
        known = isinstance(error, RefusedError)
        return told(str(error) if known else f"it cannot be read: {type(error).__name__}: {error}")
    return ""


def told(fault: str) -> str:
    """What may be shown of a fault, which quotes what others wrote: short and printable."""
    return (fault if fault.isprintable() else ascii(fault)[1:-1])[:150]


class Check:
    """What there is to show: ``claims`` of terms that are equal where ``needs`` hold."""

    def __init__(self, program: Json, ugraph: Json, certificate: Json) -> None:
        version, dims = certificate["version"], certificate["dims"]
        demand(type(version) is int and version == VERSION, "a version that is not known")
        own, kernels, calls = ugraph["program"], ugraph["kernels"], certificate["calls"]
        asked, sizes = _sizes(program), _sizes(own)
        ends, others = ([g["inputs"], [o["tensor"] for o in g["outputs"]]] for g in (program, own))
        fits = ends == others and {*dims} <= {*asked}
        demand(fits, "the µGraph is of another program")
        tensors = [t for group in (*ends, ugraph["intermediates"]) for t in group]
        known = {t["name"]: {**t, "is_input": t in ends[0]} for t in tensors}
        twice = len(known) < len(tensors) or len({k["name"] for k in kernels}) < len(kernels)
        shared = any("strides" in t for t in ugraph["intermediates"])
        demand(not (twice or shared), "two tensors or kernels of one name, or at one place")
        self.memory = memory = Memory(known, sizes, certificate["tiles"])
        self.needs, self.claims = memory.needs, list[tuple[str, int, int]]()
        names = {d: self._parts(d, asked[d], dims.get(d, [d])) for d in asked}
        nodes = program["nodes"]
        memory.loads = [leaf_of("load", n["attr"], names)[0] for n in nodes if n["op"] == "load"]
        whole = {**program, "grid": [], "sections": [{"nodes": [*range(len(nodes))]}]}
        made = Graph(memory, whole, names).made
        demand({*calls} == {k["result"] for k in kernels if k["kind"] != "block"}, "other calls")
        for kernel in kernels:
            if kernel["kind"] != "block":
                memory.call(kernel, *calls[kernel["result"]])
                continue
            for name, (forms, term, _) in Graph(memory, kernel, memory.names).written.items():
                memory.keep(name, forms, term)
        for o in program["outputs"]:
            name, (forms, last) = o["tensor"]["name"], memory.stored[o["tensor"]["name"]]
            here = access("store", f"[{', '.join(o['index'])}]", names)[1]
            demand(forms == here, f"output {name} lies elsewhere")
            last = without_shifts(memory.terms, last)
            self.claims.append((name, made[o["node"]], last))
        demand([loop for *_, loop in memory.tiles] == memory.alike, "loops that there are not")
        for d in sizes:
            tiles = [tile for over, tile, _ in memory.tiles if over == d]
            alike = len(tiles) < 2 or (None not in tiles and len({*tiles}) == 1)
            demand(alike, f"loops cut {d} into different tiles")
            self.needs += [f"the tiles of all loops over {d} are equal"] if len(tiles) > 1 else []
        clusters = [
            (a["dim"], k["name"]) for k in kernels for a in k.get("grid", []) if a.get("cluster")
        ]
        self.needs += [f"ceil(|{d}| / tile) <= 16 in the grid of {name}" for d, name in clusters]
        self.needs[:] = dict.fromkeys(self.needs)
        self.replay = Replay(memory.terms, sizes, self._leaf)

    def _leaf(self, text: str) -> int:
        """A leaf of a certificate: the text of a load, or of an index or mask behind a word."""
        op, _, rest = text.partition(" ")
        op, rest = (op, rest) if op in ("index", "mask") else ("load", text)
        name, dims = leaf_of(op, rest, self.memory.names)
        self.memory.terms.leaf_axes[name] = dims
        return self.memory.terms.make("leaf", (), name)

    def _parts(self, d: str, size: int, new: Sequence[str]) -> Form:
        """(p, s) -> p S + s is a bijection of [0, P) x [0, S) and [0, P S)."""
        sizes = self.memory.sizes
        fits = len({*new}) == len(new) in (1, 2) and size == prod(sizes[x] for x in new)
        demand(fits, f"dimension {d} is not made of {new}")
        if len(new) == 1:
            self.needs += [f"|{d}| = |{new[0]}|"] if new[0] != d else []
            return {new[0]: 1}
        self.memory.outer[new[1]] = new[0]
        self.needs.append(f"|{d}| is a multiple of |{new[0]}|")
        return {new[0]: sizes[new[1]], new[1]: 1}


def _sizes(graph: Json) -> dict[str, int]:
    found = {d["name"]: d["size"] for d in graph["dims"]}
    fits = len(found) == len(graph["dims"]) and all(d.isidentifier() for d in found)
    demand(fits and all(type(n) is int and n > 0 for n in found.values()), "sizes that are none")
    return found
