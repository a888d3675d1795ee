"""Contents of device memory between kernels, as kernels and programs read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirage_py.axioms.certificate.indices import Form, Names, access, leaf_of, needs_of_stores
from mirage_py.axioms.certificate.terms import Terms, demand

FLOATS = {"f64": 0, "f32": 1, "f16": 2, "bf16": 3, "f8e4m3": 4, "f8e5m2": 5}
Stored = tuple[list[Form], int]


class Memory:
    """Memory; ``cut`` dimensions have axes "d.l", iterations, and "d.t", tiles."""

    def __init__(self, cut: Sequence[str], sizes: Mapping[str, int]) -> None:
        self.terms, self.cut, self.sizes = Terms(), cut, sizes
        self.names: Names = {d: {d: 1} for d in sizes}
        self.tensors: dict[str, Mapping[str, Any]] = {}
        self.loads: list[str] = []
        self.stored: dict[str, Stored] = {}
        self.outer: dict[str, str] = {}
        self.needs: list[str] = []
        self.tiles: list[tuple[str, int | None]] = []

    def axes(self, dims: Sequence[str], loop: str | None = None) -> list[str]:
        """The axes of dimensions; in a loop over one its tile."""
        both = {d: [f"{d}.l", f"{d}.t"] for d in self.cut} | {loop: [f"{loop}.t"]}
        return [axis for d in dims for axis in both.get(d, [d])]

    def leaf(self, op: str, text: str, names: Names) -> int:
        """What a node reads: of inputs all, or what the program reads too: it is inside."""
        tensor, forms = access(text, names) if op == "load" else ("", [])
        if tensor in self.stored:
            demand(forms == self.stored[tensor][0], f"{text} is not read as it is stored")
            return self.stored[tensor][1]
        name, dims = leaf_of(op, text, names)
        read = op != "load" or name in self.loads or not self.covered(tensor, forms)
        demand(read, f"{text} is not read by the program")
        self.terms.leaf_axes[name] = self.axes(dims)
        return self.terms.make("leaf", (), name)

    def covered(self, name: str, forms: Sequence[Form]) -> list[str]:
        """What sizes have to be for the indices to run over a tensor once."""
        return needs_of_stores(self.tensors[name]["shape"], forms, self.sizes, self.outer)

    def keep(self, name: str, forms: list[Form], term: int) -> None:
        """What a kernel leaves: each tensor is written by one kernel, each element once."""
        tensor = self.tensors[name]
        fits = name not in self.stored and tensor["dtype"] in FLOATS and tensor["kind"] != "input"
        demand(fits, f"{name} is written twice, or holds no real numbers")
        axes = self.terms.axes(term)
        moves = any(f"{x[:-2]}.t" not in axes for x in axes if x.endswith(".l"))
        demand(not moves, f"{name} holds something else for each tile of a loop")
        self.needs += self.covered(name, forms)
        self.stored[name] = forms, term
