"""The checker of certificates: reads program, µGraph and certificate as JSON data, and replays it.

It knows ``trusted.json`` and this folder alone: what it does not understand is refused. Sizes and
tiles are at least 1 and otherwise open, except for ``needs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirage_py.axioms.certificate.graphs import Graph
from mirage_py.axioms.certificate.memory import Memory, named, sizes_of
from mirage_py.axioms.certificate.steps import Replay
from mirage_py.axioms.certificate.terms import Json, RefusedError, Term, demand

VERSION = 3
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
        return told(error)
    return ""


def told(error: Exception) -> str:
    """What is shown of an error, which may quote what others wrote: short and printable."""
    known = isinstance(error, RefusedError)
    fault = str(error) if known else f"it cannot be read: {type(error).__name__}: {error}"
    return (fault if fault.isprintable() else ascii(fault)[1:-1])[:150]


class Check:
    """What there is to show: ``claims`` of terms that are equal where ``needs`` hold."""

    def __init__(self, program: Json, ugraph: Json, certificate: Json) -> None:
        version, dims, calls = (certificate[key] for key in ("version", "dims", "calls"))
        demand(type(version) is int and version == VERSION, "a version that is not known")
        own, kernels, extra = ugraph["program"], named(ugraph["kernels"]), ugraph["intermediates"]
        ends, others = ([g["inputs"], [o["tensor"] for o in g["outputs"]]] for g in (program, own))
        asked = sizes_of(program["dims"])
        demand(ends == others and {*dims} <= {*asked}, "the µGraph is of another program")
        demand(not any("strides" in t for t in extra), "tensors whose elements share places")
        self.memory = memory = Memory(ends[0], [*ends[1], *extra], own["dims"])
        self.needs, self.claims = memory.needs, list[tuple[str, Term, Term]]()
        names = {d: self._parts(d, asked[d], dims.get(d, [d])) for d in asked}
        nodes = [*program["nodes"]]
        for by in ({d: {d: 1} for d in asked}, names):
            memory.loads += [memory.leaf("load", n["attr"], by) for n in nodes if n["op"] == "load"]
        for o in program["outputs"]:
            text = f"{o['tensor']['name']}[{', '.join(o['index'])}]"
            nodes.append({"op": "store", "args": [o["node"]], "attr": text})
        sections = [{"nodes": [*range(len(nodes))]}]
        whole = {**program, "nodes": nodes, "grid": [], "sections": sections}
        # No two dimensions of a value become one.
        for term in Graph(memory, whole, {d: {d: 1} for d in asked}).made.values():
            new = [x for d in sorted(term.dims) for x in names[d]]
            demand(len({*new}) == len(new), f"dimensions {new} are no longer apart")
        first = Graph(memory, whole, names).written
        called = {k["result"] for k in kernels.values() if k["kind"] != "block"}
        demand({*calls} == called, "other calls")
        for kernel in kernels.values():
            if kernel["kind"] != "block":
                memory.call(kernel, *calls[kernel["result"]])
                continue
            for name, (forms, term) in Graph(memory, kernel, memory.names).written.items():
                memory.keep(name, forms, term)
        for name, (forms, term) in first.items():
            here, last = memory.stored[name]
            demand(forms == here, f"output {name} lies elsewhere")
            self.claims.append((name, term, last))
        self.needs[:] = dict.fromkeys(self.needs)
        self.replay = Replay(memory.terms, memory.sizes, self._leaf)

    def _leaf(self, text: str) -> Term:
        """A leaf of a certificate: a shift, a load, or an index or a mask behind a word."""
        op, _, rest = text.partition(" ")
        op, rest = (op, rest) if op in ("index", "mask") else ("load", text)
        return self.memory.shifts.get(text) or self.memory.leaf(op, rest, self.memory.names)

    def _parts(self, d: str, size: int, new: Sequence[str]) -> dict[str, int]:
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
