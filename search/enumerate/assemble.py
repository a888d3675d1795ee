"""Assembly of a µGraph from two kernels and the library calls between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.search.closure.closure import given_access
from mirage_py.search.closure.hits import replay
from mirage_py.search.enumerate.candidates import Candidate, Candidates, library_us
from mirage_py.search.enumerate.libraries import lies_as
from mirage_py.search.extract.family import ATOMIC, LIBRARY, SPLIT, TWO_KERNELS, Family, Origin
from mirage_py.search.extract.loops import Arrangement
from mirage_py.search.extract.lower import lower, output_stores
from mirage_py.search.space.layouts_in_memory import axes_as_read
from mirage_py.search.space.values import Values
from mirage_py.search.space.variants import Variant
from mirage_py.targets import H200
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, UGraph

# Operators whose sums must not leave a kernel unscaled, as atomics would let them.
_UNSCALED = ("exp",)


@dataclass(frozen=True, slots=True, eq=False)
class First:
    """One way to make what a second kernel reads: ``values``, in the order of the outputs.

    Compared by identity.
    """

    values: tuple[int, ...]
    arrangement: Arrangement
    origin: Origin
    cost_us: float


@dataclass(frozen=True, slots=True, eq=False)
class Second:
    """A kernel that ends the program. Compared by identity."""

    arrangement: Arrangement
    origin: Origin
    cost_us: float


def made_values(first: First, values: Values) -> dict[int, int]:
    """What the first kernel stores over other inputs, by its value over those of the search."""
    derivation = first.origin.derivation
    done = replay(derivation, values)
    return {v: done[o] for v, o in zip(first.values, derivation.outputs, strict=True)}


class Assembler:
    """Puts kernels of one variant together. A first kernel is lowered once for all that read it in
    the same way, and so is a second one for all it reads from.
    """

    def __init__(self, variant: Variant, candidates: Candidates) -> None:
        self.variant = variant
        self.candidates = candidates
        self._lowered: dict[Hashable, BlockGraph] = {}

    def families(
        self, first: First | None, names: Sequence[str], second: Second | None
    ) -> Iterator[Family]:
        """The family in which ``second`` reads the candidates ``names``, which ``first`` makes.

        Without a second kernel the only candidate is the output. Where the second kernel only adds
        up parts, there is another family, in which the first one adds them atomically.
        """
        assembly = _Assembly(self, first, tuple(names), second)
        family = assembly.family()
        if family is not None:
            yield family
        atomic = assembly.atomic()
        if atomic is not None:
            yield atomic

    def lowered(
        self,
        kernel: First | Second,
        stores: Sequence[Access | None],
        renamed: Mapping[str, Access],
        suffix: str,
    ) -> BlockGraph:
        """The kernel with these stores; ``suffix`` tells it from the others of a family."""
        key = (kernel, tuple(stores), tuple(renamed.items()), suffix)
        if key not in self._lowered:
            program = self.variant.program
            name = f"{program.name}_{suffix}" if suffix else program.name
            derivation, arrangement = kernel.origin.derivation, kernel.arrangement
            self._lowered[key] = lower(
                program, derivation, arrangement, stores, name=name, renamed=renamed
            )
        return self._lowered[key]


class _Assembly:
    def __init__(
        self,
        assembler: Assembler,
        first: First | None,
        names: tuple[str, ...],
        second: Second | None,
    ) -> None:
        self.variant = assembler.variant
        self.program = assembler.variant.program
        self.lowered = assembler.lowered
        self.first = first
        self.second = second
        self.read: list[Candidate] = [assembler.candidates.by_name[n] for n in names]

    def family(self) -> Family | None:
        """None where two readers want a stored value in two layouts."""
        layouts = self._layouts()
        homes = self._homes(layouts) if layouts is not None else None
        if homes is None:
            return None
        stores, tensors = homes
        kernels: list[Kernel] = []
        if self.first is not None:
            targets = [stores[v] for v in self.first.values]
            kernels.append(self.lowered(self.first, targets, {}, "first"))
        renamed: dict[str, Access] = {}
        library: list[Tensor] = []
        for candidate in self.read:
            if candidate.call is None:
                renamed[candidate.name] = stores[candidate.value]
                continue
            result = self._result(candidate, len(library))
            left = candidate.call.left
            name = left.leaf.node.access.tensor if left.leaf else stores[left.value].tensor
            right = candidate.call.right.leaf
            assert right is not None
            args = (name, right.node.access.tensor)
            kernels.append(LibraryCall(f"matmul{len(library)}", "matmul", args, result.name))
            library.append(result)
            renamed[candidate.name] = given_access(result.name, candidate.dims)
        if self.second is not None:
            stored_at_end = [
                None if renamed.get(self._copied(position)) == store else store
                for position, store in enumerate(output_stores(self.program))
            ]
            kernels.append(self.lowered(self.second, stored_at_end, renamed, "last"))
        outputs = {o.tensor.name for o in self.program.outputs}
        kept = tuple(t for t in (*tensors, *library) if t.name not in outputs)
        ugraph = UGraph(self.program, tuple(kernels), kept)
        return Family(ugraph, self._cost_us(len(kernels)), self._kind(), self._origins())

    def atomic(self) -> Family | None:
        """The first kernel alone, with additions to the outputs, where nothing else is left."""
        if self.first is None or self.second is None or not self.variant.splits:
            return None
        last, made = self.second.origin.derivation, self.first.origin.derivation
        if any(step.op in _UNSCALED for step in made.steps):
            return None
        stores: dict[int, Access] = {}
        for output, store in zip(last.outputs, output_stores(self.program), strict=True):
            total = last.steps[output]
            if total.op != "sum" or total.attr != self.variant.splits:
                return None
            term = last.steps[total.args[0]]
            if not isinstance(term.attr, Access):
                return None
            candidate = next((c for c in self.read if c.name == term.attr.tensor), None)
            if candidate is None or candidate.value in stores:
                return None
            stores[candidate.value] = store
        if any(v not in stores for v in self.first.values):
            return None
        block = self.lowered(self.first, [stores[v] for v in self.first.values], {}, "")
        nodes = tuple(replace(n, op="store_add") if n.op == "store" else n for n in block.nodes)
        ugraph = UGraph(self.program, (replace(block, nodes=nodes),))
        cost_us = self.first.cost_us + H200.launch_us
        return Family(ugraph, cost_us, ATOMIC, (self.first.origin,))

    # -- what is stored where ---------------------------------------------------------------------

    def _layouts(self) -> dict[int, tuple[str, ...]] | None:
        """The axes of each stored value."""
        layouts: dict[int, tuple[str, ...]] = {}
        for candidate in self.read:
            if candidate.call is None:
                continue
            left = candidate.call.left
            if left.leaf is None:
                dims = candidate.call.left_dims
                if layouts.setdefault(left.value, dims) != dims:
                    return None
        for candidate in self.read:
            if candidate.call is None:
                # Parts first: what one block stores is then contiguous.
                own = axes_as_read(
                    self.program, [d for d in candidate.dims if d not in self.variant.splits]
                )
                layouts.setdefault(candidate.value, (*self.variant.splits, *own))
        return layouts

    def _homes(
        self, layouts: Mapping[int, tuple[str, ...]]
    ) -> tuple[dict[int, Access], list[Tensor]] | None:
        """Where each value is stored, and the tensors that are made for it.

        None where a library reads an output of the program that lies in memory in another way.
        """
        stores: dict[int, Access] = {}
        tensors: list[Tensor] = []
        stem = "part" if self.variant.splits else "mid"
        operands = [c.call.left.value for c in self.read if c.call is not None]
        for value, dims in layouts.items():
            output = self._stored_output(value)
            if output is not None:
                if value in operands and not lies_as(
                    self.program.tensors[output.tensor], output, dims
                ):
                    return None
                stores[value] = output
                continue
            tensor = self._tensor(f"{stem}{len(tensors)}", dims, self._dtype(value))
            tensors.append(tensor)
            stores[value] = given_access(tensor.name, dims)
        return stores, tensors

    def _stored_output(self, value: int) -> Access | None:
        """The output that the first kernel stores by storing this value."""
        named = [c.name for c in self.read if c.call is None and c.value == value]
        for position, store in enumerate(output_stores(self.program)):
            if self._copied(position) in named:
                return store
        return None

    def _copied(self, output: int) -> str:
        """The tensor that the second kernel would only copy to an output; "" if there is none."""
        if self.second is None:
            return ""
        last = self.second.origin.derivation
        step = last.steps[last.outputs[output]]
        return step.attr.tensor if isinstance(step.attr, Access) else ""

    def _result(self, candidate: Candidate, number: int) -> Tensor:
        if self.second is None:
            return self.program.outputs[0].tensor
        assert candidate.call is not None
        right = candidate.call.right.leaf
        assert right is not None
        dtype = self.program.tensors[right.node.access.tensor].dtype
        # The library accumulates in f32: what is not an operand of another matmul stays that.
        dtype = dtype if self._only_matmuls_read(candidate.name) else F32
        return self._tensor(f"product{number}", candidate.dims, dtype)

    def _tensor(self, name: str, dims: Sequence[str], dtype: DType) -> Tensor:
        taken = (*self.program.tensors, *self.program.dim_names)
        while name in taken:
            name += "_"
        return Tensor(name, tuple(self.program.sizes[d] for d in dims), dtype)

    def _dtype(self, value: int) -> DType:
        """The inputs' type for values that only matmuls read, which would round them anyway; else
        f32.

        Labels and the like are no operands of matmuls.
        """
        types = (t.dtype for t in self.program.inputs)
        inputs = tuple(dict.fromkeys(dtype for dtype in types if dtype.is_float))
        if len(inputs) != 1 or self.variant.splits:
            return F32
        named = [c.name for c in self.read if c.call is None and c.value == value]
        return inputs[0] if self._only_matmuls_read(*named) else F32

    def _only_matmuls_read(self, *names: str) -> bool:
        """Whether the last kernel reads these candidates as operands of matmuls only."""
        if self.second is None:
            return True
        last = self.second.origin.derivation
        loads = [
            n
            for n, s in enumerate(last.steps)
            if isinstance(s.attr, Access) and s.attr.tensor in names
        ]
        readers = [s for s in last.steps if any(a in loads for a in s.args)]
        return all(s.op == "matmul" for s in readers)

    # -- the rest ---------------------------------------------------------------------------------

    def _origins(self) -> tuple[Origin, ...]:
        return tuple(k.origin for k in (self.first, self.second) if k is not None)

    def _kind(self) -> str:
        if any(c.call is not None for c in self.read):
            return LIBRARY
        return SPLIT if self.variant.splits else TWO_KERNELS

    def _cost_us(self, kernels: int) -> float:
        made_us = sum(k.cost_us for k in (self.first, self.second) if k is not None)
        calls = (c.call for c in self.read if c.call is not None)
        made_us += sum(library_us(self.program, call) for call in calls)
        return made_us + (kernels - 1) * H200.launch_us
