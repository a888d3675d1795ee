"""Groups of exponentials that may be shifted, and the effect of a shift on every value.

The degrees of ``mirage_py.ugraph.rewrite.degrees``, over all kernels: an intermediate has the
degree of the value that is stored in it, and copies of one exp in several kernels are one
exponential. A group is one exponential, or several that are added to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.rewrite.degrees import (
    Degrees,
    cancelling_exps,
    carriers,
    degree_of,
    inner_quotient,
    is_quotient,
    reduced_dims,
    scaling,
)
from mirage_py.ugraph.rewrite.value_numbers import ValueNumbers

# For each axis of a tensor the index it is written with, or None where that has no name.
_Axes = tuple[IndexExpr | None, ...]


@dataclass(frozen=True, slots=True)
class KernelScales:
    """One kernel: the value number of each exp, the degrees of each node, and for each exponential
    the dimensions that the kernel reduces while its factor is still in the value.
    """

    exps: Mapping[int, int]
    degrees: tuple[Degrees, ...]
    reduced: Mapping[int, tuple[str, ...]]

    def concerns(self, group: int) -> bool:
        """Whether any value of the kernel has a degree in the group."""
        return any(group in degrees for degrees in self.degrees)


@dataclass(frozen=True, slots=True)
class Scales:
    """All kernels and intermediates, for ``groups`` whose scales cancel in every output; each has
    the value numbers of its exponentials.
    """

    groups: Mapping[int, tuple[int, ...]]
    kernels: tuple[KernelScales, ...]
    tensors: Mapping[str, Degrees]


class ConflictError(Exception):
    """Groups that cannot be scaled, and why.

    ``is_structural`` if another arrangement of the same formulas could scale them, ``can_join`` if
    as one group they have a scale where they meet.
    """

    def __init__(
        self,
        groups: Iterable[int],
        reason: str,
        *,
        is_structural: bool = False,
        can_join: bool = False,
    ) -> None:
        super().__init__(reason)
        self.groups = tuple(groups)
        self.reason = reason
        self.is_structural = is_structural
        self.can_join = can_join


@dataclass(frozen=True, slots=True)
class _ProgramFacts:
    """What the families of a program have in common: ``numbers`` of its nodes, in ``table``; and of
    its own exps whether all could be shifted, and the groups that could.
    """

    table: ValueNumbers
    numbers: Sequence[int]
    all_cancel: bool
    cancelling: Sequence[int]


@lru_cache(maxsize=16)
def _program_facts(program: Program) -> _ProgramFacts:
    table = ValueNumbers()
    numbers = table.of(program.nodes)
    exps = [n for n, node in enumerate(program.nodes) if node.op == "exp"]
    cancelling = cancelling_exps(program.nodes, [o.node for o in program.outputs])
    all_cancel = len(cancelling) == len(exps)
    return _ProgramFacts(table, numbers, all_cancel, [numbers[n] for n in cancelling])


class GroupAnalysis:
    """Finds the groups of one µGraph and their degrees."""

    def __init__(self, ugraph: UGraph) -> None:
        self.ugraph = ugraph
        known = _program_facts(ugraph.program)
        self.numbers = _value_numbers(ugraph, known.table.copy())
        self.exps = [
            {
                n: numbers[n]
                for n, node in enumerate(k.nodes if isinstance(k, BlockGraph) else ())
                if node.op == "exp"
            }
            for k, numbers in zip(ugraph.kernels, self.numbers, strict=True)
        ]
        self.dims = self._dims_of_exps()
        self.program_numbers = known.numbers
        self.all_cancel, self.cancelling = known.all_cancel, known.cancelling
        self._outputs = [o.tensor.name for o in ugraph.program.outputs]
        # Of the analysis at hand: the group of each exponential, and those in each intermediate.
        self._group_of: Mapping[int, int] = {}
        self._carriers: dict[str, tuple[int, ...]] = {}

    def scales(self, group_of: Mapping[int, int]) -> Scales:
        """The degrees if exps are scaled, by value number with the groups they are in. Raises
        ConflictError.
        """
        self._group_of = group_of
        self._carriers = {}
        tensors: dict[str, Degrees] = {}
        axes: dict[str, _Axes] = {}
        kernels: list[KernelScales] = []
        for kernel, exps in zip(self.ugraph.kernels, self.exps, strict=True):
            if isinstance(kernel, LibraryCall):
                found = self._library(kernel, tensors, axes)
            else:
                chosen = {n: key for n, key in exps.items() if key in group_of}
                found = self._block(kernel, chosen, tensors, axes)
            kernels.append(found)
        groups: dict[int, list[int]] = {}
        for key, group in group_of.items():
            groups.setdefault(group, []).append(key)
        return Scales({g: tuple(e) for g, e in groups.items()}, tuple(kernels), tensors)

    def _dims_of_exps(self) -> dict[int, tuple[str, ...]]:
        """For each exponential its dimensions."""
        found: dict[int, tuple[str, ...]] = {}
        for kernel, exps in zip(self.ugraph.kernels, self.exps, strict=True):
            for node, key in exps.items():
                assert isinstance(kernel, BlockGraph)
                found.setdefault(key, kernel.nodes[node].dims)
        return found

    def _block(
        self,
        block: BlockGraph,
        exps: Mapping[int, int],
        tensors: dict[str, Degrees],
        axes: dict[str, _Axes],
    ) -> KernelScales:
        loaded: dict[int, Degrees] = {}
        for position, node in block.loads():
            degrees = tensors.get(node.access.tensor)
            if degrees:
                self._check_names(node.access, axes[node.access.tensor])
                loaded[position] = degrees
        groups = {n: self._group_of[key] for n, key in exps.items()}
        found = scaling(block.nodes, groups, loaded)
        if found.conflict:
            reason = f"the scale does not cancel in kernel {block.name}"
            inner = inner_quotient(found.before, found.conflict) if found.can_join else ()
            raise ConflictError(inner or found.conflict, reason, can_join=found.can_join)
        carried = carriers(
            block.nodes,
            found.degrees,
            exps,
            self._group_of,
            {n: self._carriers[block.nodes[n].access.tensor] for n in loaded},
        )
        reduced = {key: reduced_dims(block.nodes, carried, key) for key in self.dims}
        for position, node in enumerate(block.nodes):
            if node.op not in STORES:
                continue
            self._store(node.access, found.degrees, position, tensors, axes)
            self._carriers[node.access.tensor] = carried[position]
            if node.op == "store_add":
                for key in carried[position]:
                    reduced[key] = (*reduced[key], *block.summed_axes(node))
        return KernelScales(exps, found.degrees, reduced)

    def _store(
        self,
        access: Access,
        of_nodes: Sequence[Degrees],
        position: int,
        tensors: dict[str, Degrees],
        axes: dict[str, _Axes],
    ) -> None:
        name, degrees = access.tensor, of_nodes[position]
        if name in self._outputs and degrees:
            reason = f"the scale does not cancel in output {name}"
            can_join = is_quotient(degrees)
            inner = inner_quotient(of_nodes, tuple(degrees)) if can_join else ()
            raise ConflictError(inner or tuple(degrees), reason, can_join=can_join)
        before = tensors.setdefault(name, degrees)
        if name in axes and (before or degrees):
            groups = tuple(dict.fromkeys((*before, *degrees)))
            raise ConflictError(groups, f"several stores write {name}", is_structural=True)
        axes[name] = access.index

    def _library(
        self, call: LibraryCall, tensors: dict[str, Degrees], axes: dict[str, _Axes]
    ) -> KernelScales:
        inputs = {t.name: t for t in self.ugraph.program.inputs}
        shapes = [self.ugraph.tensors[name].shape for name in call.args]
        for name in call.args:
            if name in inputs:
                axes[name] = (None,) * len(inputs[name].shape)
        args = [tensors.get(name, {}) for name in call.args]
        operands = [Node("load") for _ in args]
        degrees, conflict = degree_of(operands, Node(call.op, tuple(range(len(args)))), args)
        degrees = {k: v for k, v in degrees.items() if v}
        if call.result in self._outputs:
            conflict = (*conflict, *degrees)
        if conflict:
            raise ConflictError(conflict, f"the scale does not cancel in library call {call.name}")
        members = dict.fromkeys(m for name in call.args for m in self._carriers.get(name, ()))
        carried = tuple(m for m in members if self._group_of[m] in degrees)
        self._carriers[call.result] = carried
        index = [axes[name] for name in call.args]
        contracted: tuple[str, ...] = ()
        if call.op == "matmul":
            (left, right), rank = index, max(map(len, shapes))
            contracted = tuple(d for e in (left[-1], right[-2]) if e is not None for d in e.dims())
            batch = [_aligned(left[:-2], rank - 2), _aligned(right[:-2], rank - 2)]
            result = (*self._merged(batch, args), left[-2], right[-1])
        else:
            rank = max(map(len, shapes))
            result = self._merged([_aligned(i, rank) for i in index], args)
        tensors[call.result], axes[call.result] = degrees, result
        reduced = {key: contracted if key in carried else () for key in self.dims}
        return KernelScales({}, tuple(args) if any(args) else (), reduced)

    def _merged(self, operands: Iterable[_Axes], args: Iterable[Degrees]) -> _Axes:
        """The axes of a broadcast result; ConflictError where two operands name one differently."""
        involved = tuple(dict.fromkeys(k for a in args for k in a))
        merged: list[IndexExpr | None] = []
        for choices in zip(*operands, strict=True):
            named = list(dict.fromkeys(c for c in choices if c is not None))
            if len(named) > 1 and involved:
                raise ConflictError(involved, "a library call mixes dimensions", is_structural=True)
            merged.append(named[0] if named else None)
        return tuple(merged)

    def _check_names(self, access: Access, stored: _Axes) -> None:
        """A factor that varies along an axis must be read by the name it was written with."""
        for key in self._carriers[access.tensor]:
            for wrote, reads in zip(stored, access.index, strict=True):
                varies = wrote is not None and any(d in self.dims[key] for d in wrote.dims())
                if varies and wrote != reads:
                    reason = f"{access} is not read as it was written"
                    group = self._group_of[key]
                    raise ConflictError((group,), reason, is_structural=True)


def _aligned(axes: _Axes, rank: int) -> _Axes:
    return (*((None,) * (rank - len(axes))), *axes)


def _value_numbers(ugraph: UGraph, table: ValueNumbers) -> list[list[int]]:
    """The numbers of all nodes; a value that is read again has the number of what was stored."""
    # What is in an intermediate: the index it was written with, and the number of the value.
    stored: dict[str, tuple[tuple[IndexExpr, ...], int] | None] = {}
    found: list[list[int]] = []
    for kernel in ugraph.kernels:
        if not isinstance(kernel, BlockGraph):
            found.append([])
            continue
        known: dict[int, int] = {}
        for position, node in kernel.loads():
            written = stored.get(node.access.tensor)
            if written is not None and written[0] == node.access.index:
                known[position] = written[1]
        loops = {n: s.loop for s in kernel.sections if s.loop is not None for n in s.nodes}
        numbers = table.of(kernel.nodes, loops=loops, known=known)
        found.append(numbers)
        for node in kernel.nodes:
            if node.op in STORES:
                name = node.access.tensor
                plain = node.op == "store" and name not in stored
                stored[name] = (node.access.index, numbers[node.args[0]]) if plain else None
    return found
