"""Legal programs drawn at random: guards, masks, casts, comparisons, constants, several outputs,
dimensions of one element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mirage_py.errors import MirageError
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BF16, BOOL, F16, F32, I32, DType
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.program import Program

UNARY = ("exp", "square", "sqrt", "neg", "relu", "silu", "abs", "log", "tanh", "rsqrt", "sigmoid")
BINARY = ("add", "sub", "mul", "mul", "div", "maximum", "minimum")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
CONSTANTS = (0.0, 0.5, 1.0, -1.0, 2.0, 3.0, -31.0, 43.0, 61.0, 113.0, 1e-5, 0.1)
# Name, dimensions, type.
_TENSORS = (
    ("X", "bd", F32), ("W", "dn", F32), ("Z", "bk", F32), ("U", "kn", F32), ("C", "b", F32),
    ("G", "d", F32), ("M", "bd", BOOL), ("A", "d", BOOL), ("L", "b", I32),
)  # fmt: skip
_MOST_OPERATORS = 9
KINDS = (
    "unary", "binary", "reduce", "contract", "contract", "compare", "choose", "guard", "constant",
    "mask", "cast", "count",
)  # fmt: skip


def random_program(seed: int) -> Program:
    """The program of a seed: up to nine draws of an operator, one or two outputs."""
    for attempt in range(100):
        try:
            return Draw(np.random.default_rng([seed, attempt])).program(f"random{seed}")
        except MirageError:
            continue
    raise AssertionError(f"no program for seed {seed}")


class Draw:
    """One program from a stream of random numbers. Raises MirageError where it is not legal."""

    tensors: Sequence[tuple[str, str, DType]] = _TENSORS
    kinds: Sequence[str] = KINDS
    # How many are read, at most; of which sizes are the dimensions.
    most_tensors = 5
    extents: Mapping[str, Sequence[int]] = {
        "b": (1, 2, 3, 5), "d": (1, 4, 9), "k": (1, 2, 4), "n": (1, 3),
    }  # fmt: skip

    def __init__(self, draw: np.random.Generator) -> None:
        self.draw = draw
        self.b = ProgramBuilder("random")
        self.sizes = {dim: self._of(extents) for dim, extents in self.extents.items()}

    def _of(self, items: Sequence[object]) -> object:
        return items[int(self.draw.integers(len(items)))]

    def program(self, name: str) -> Program:
        b = self.b = ProgramBuilder(name)
        for dim, size in self.sizes.items():
            b.dim(dim, int(size))  # type: ignore[call-overload]
        count = int(self.draw.integers(1, self.most_tensors + 1))
        chosen = self.draw.permutation(len(self.tensors))[:count]
        numbers: list[int] = []
        truths: list[int] = []
        for number in sorted(int(n) for n in chosen):
            tensor, dims, dtype = self.tensors[number]
            b.input(tensor, [int(self.sizes[d]) for d in dims], dtype)  # type: ignore[call-overload]
            (truths if dtype == BOOL else numbers).append(b.load(tensor, list(dims)))
        if not numbers:
            b.input("X", [int(self.sizes[d]) for d in "bd"], F32)  # type: ignore[call-overload]
            numbers.append(b.load("X", ["b", "d"]))
        self._grow_all(numbers, truths)
        outputs = [numbers[-1]]
        if self.draw.random() < 0.4:
            outputs.append(int(self._of(numbers)))  # type: ignore[call-overload]
        for number, node in enumerate(outputs):
            b.output(f"Y{number}", node, list(b.nodes[node].dims), F32)
        read = self._read(outputs)
        b.inputs = {n: t for n, t in b.inputs.items() if n in read}
        return b.build()

    def _grow_all(self, numbers: list[int], truths: list[int]) -> None:
        for _ in range(int(self.draw.integers(2, _MOST_OPERATORS + 1))):
            self._grow(numbers, truths)

    def _grow(self, numbers: list[int], truths: list[int]) -> None:
        b = self.b
        recent = numbers[-4:]
        x, y = (int(self._of(recent)) for _ in range(2))  # type: ignore[call-overload]
        kind = self._of(self.kinds)
        if kind == "contract" and self._contracted(numbers):
            return
        if kind == "reduce" and b.nodes[x].dims:
            reduction = (b.sum, b.max, b.mean)[int(self.draw.integers(3))]
            numbers.append(reduction(x, [self._of(b.nodes[x].dims)]))  # type: ignore[list-item]
        elif kind == "compare":
            other = y if self.draw.random() < 0.5 else b.const(self._of(CONSTANTS[:6]))  # type: ignore[arg-type]
            truths.append(b.apply(str(self._of(COMPARISONS)), x, other))
            chosen = int(self._of(numbers))  # type: ignore[call-overload]
            numbers.append(b.apply("where", truths[-1], chosen, b.const(0.0)))
        elif kind == "choose" and truths:
            other = y if self.draw.random() < 0.5 else b.const(0.0)
            numbers.append(b.apply("where", int(self._of(truths)), x, other))  # type: ignore[call-overload]
        elif kind == "guard":
            guard = b.apply(str(self._of(("gt", "ne"))), y, b.const(0.0))
            value = b.apply("div", x, y) if self.draw.random() < 0.7 else b.apply("log", y)
            numbers.append(b.apply("where", guard, value, b.const(0.0)))
        elif kind == "constant":
            c = b.const(self._of(CONSTANTS))  # type: ignore[arg-type]
            pair = (x, c) if self.draw.random() < 0.7 else (c, x)
            numbers.append(b.apply(str(self._of(BINARY)), *pair))
        elif kind == "mask":
            numbers.append(b.apply("where", b.mask(self._predicate()), x, b.const(0.0)))
        elif kind == "cast":
            numbers.append(b.cast(b.cast(x, self._of((BF16, F16))), F32))  # type: ignore[arg-type]
        elif kind == "count" and truths:
            truth = int(self._of(truths))  # type: ignore[call-overload]
            ones = b.apply("where", truth, b.const(1.0), b.const(0.0))
            dims = b.nodes[ones].dims
            numbers.append(b.sum(ones, [dims[-1]]) if dims else ones)
        elif kind == "binary":
            numbers.append(b.apply(str(self._of(BINARY)), x, y))
        else:
            numbers.append(b.apply(str(self._of(UNARY)), x))

    def _contracted(self, numbers: list[int]) -> bool:
        """A sum of a product; of two with a dimension of their own each, where there are any."""
        pairs = [
            (x, y, [d for d in self.b.nodes[x].dims if d in self.b.nodes[y].dims])
            for x in numbers
            for y in numbers
        ]
        pairs = [pair for pair in pairs if pair[2]]
        apart = [
            (x, y, shared)
            for x, y, shared in pairs
            if len(self.b.nodes[x].dims) > len(shared) and len(self.b.nodes[y].dims) > len(shared)
        ]
        if not pairs:
            return False
        chosen = apart or pairs
        x, y, shared = chosen[int(self.draw.integers(len(chosen)))]
        product = self.b.apply("mul", x, y)
        numbers.append(self.b.sum(product, [shared[int(self.draw.integers(len(shared)))]]))
        return True

    def _predicate(self) -> Predicate:
        dims = [d for d in self.sizes if d != "n"]
        left = ix.dim(str(self._of(dims)))
        if self.draw.random() < 0.5:
            return ix.compare(str(self._of(COMPARISONS)), left, ix.dim(str(self._of(dims))))
        return ix.compare(str(self._of(COMPARISONS)), left, int(self.draw.integers(3)))

    def _read(self, outputs: Sequence[int]) -> list[str]:
        todo, found = list(outputs), []
        while todo:
            node = self.b.nodes[todo.pop()]
            todo.extend(node.args)
            if node.op == "load":
                found.append(node.access.tensor)
        return found
