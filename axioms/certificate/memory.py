"""Reads and stores in device memory: what each kernel leaves for the next."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.axioms.certificate.indices import Form, Names, access, leaf_of
from mirage_py.axioms.certificate.terms import Json, Term, Terms, demand

# Types from precise to coarse.
FLOATS = {"f64": 0, "f32": 1, "f16": 2, "bf16": 3, "f8e4m3": 4, "f8e5m2": 5}


class Memory:
    """Tensors with their contents, and the ``needs`` of sizes that come up."""

    def __init__(
        self, inputs: Sequence[Json], others: Sequence[Json], dims: Sequence[Json]
    ) -> None:
        self.tensors, self.writable = named([*inputs, *others]), {t["name"] for t in others}
        self.sizes = sizes_of(dims)
        self.names: Names = {d: {d: 1} for d in self.sizes}
        self.terms, self.stored = Terms(), dict[str, tuple[list[Form], Term]]()
        self.outer, self.shifts = dict[str, str](), dict[str, Term]()
        self.loads, self.needs = list[Term](), list[str]()

    def leaf(self, op: str, text: str, names: Names) -> Term:
        """One leaf for what is the same at every point: a load, an index or a mask."""
        name, dims = leaf_of(op, text, names)
        return self.terms.make("leaf", (), name, dims)

    def read(self, op: str, text: str, names: Names) -> Term:
        """What a node reads: of inputs all, or what the program reads too: it is inside."""
        tensor, forms = access(op, text, names)
        if tensor in self.stored:
            stored, term = self.stored[tensor]
            fits = forms == stored and term.dims == {d for form in forms for d in form}
            demand(fits, f"{text} is not read as it is stored, or is repeated along a dimension")
            return term
        leaf = self.leaf(op, text, names)
        known = op != "load" or leaf in self.loads
        inside = known or (tensor not in self.writable and not self.covered(tensor, forms))
        demand(inside, f"{text} is not read by the program")
        return leaf

    def covered(self, name: str, forms: Sequence[Form]) -> list[str]:
        """What sizes have to be for each element of a tensor to be met once: along each axis the
        indices are mixed-radix numbers of dimensions of its own. All but the last dimension of an
        axis keep their sizes, which are constants of the index; but ``outer`` * size + inner is one
        dimension.
        """
        needs, shape = list[str](), self.tensors[name]["shape"]
        dims = [atom for form in forms for atom in form]
        apart = len({*dims}) == len(dims) and {*dims} <= {*self.sizes} and len(forms) == len(shape)
        demand(apart, f"indices of {name} that meet, or are no dimensions")
        for form, extent in zip(forms, shape, strict=True):
            reach, before = 1, ""
            for k, size, atom in sorted((k, self.sizes[atom], atom) for atom, k in form.items()):
                demand(k == reach, f"indices of {name} that leave gaps or meet")
                if before and self.outer.get(before) != atom:
                    needs.append(f"|{before}| = {self.sizes[before]}")
                reach, before = reach * size, atom
            demand(reach == extent, f"indices that leave some of {name} out")
        return needs

    def keep(self, name: str, forms: list[Form], term: Term) -> None:
        """What a kernel leaves: each tensor is written by one kernel, each element once."""
        tensor = self.tensors[name]
        fits = name in self.writable and name not in self.stored and tensor["dtype"] in FLOATS
        demand(fits, f"{name} is written twice, or holds no real numbers")
        self.needs += self.covered(name, forms)
        self.stored[name] = forms, term

    def call(self, call: Json, *texts: str) -> None:
        """The matmul A[.., m, k] B[.., k, n] of whole tensors; ``texts`` name their axes."""
        (a, left), (b, right) = (access("load", text, self.names) for text in texts)
        x, y = (self.read("load", text, self.names) for text in texts)
        self.covered(a, left), self.covered(b, right)
        *front, m, k = left
        *other, again, n = right
        whole = max(front, other, key=len)
        behind = all(own == whole[len(whole) - len(own) :] for own in (front, other))
        fits = [a, b] == call["args"] and call["op"] == "matmul" and k == again and behind
        demand(fits and not {*m} & {*n}, f"the call {call['name']}")
        of = self.terms.reduce("sum", [*k], self.terms.make("mul", (x, y)))
        self.keep(call["result"], [*whole, m, n], of)


def named(items: Sequence[Json]) -> dict[str, Json]:
    """By their names, which differ."""
    found = {item["name"]: item for item in items}
    demand(len(found) == len(items), "two tensors, kernels or dimensions of one name")
    return found


def sizes_of(dims: Sequence[Json]) -> dict[str, int]:
    """The sizes of dimensions."""
    found = {name: d["size"] for name, d in named(dims).items()}
    fits = all(d.isidentifier() and type(n) is int and n > 0 for d, n in found.items())
    demand(fits, "sizes that are none")
    return found
