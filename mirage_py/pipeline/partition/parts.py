"""The program of one part: some values of a whole program, from inputs and from earlier parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

from mirage_py.pipeline.partition.flow import Flow
from mirage_py.search.space.layouts_in_memory import axes_as_computed
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Attr, Node
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.rewrite.convolutions import flat_position, library_convolution
from mirage_py.ugraph.rewrite.rebuild import copied


@dataclass(frozen=True, slots=True)
class Held:
    """A value in memory: the tensor, and its element at a point of ``dims``.

    ``dims`` are in the value's own order. ``index`` has one expression per axis of the tensor.
    """

    tensor: Tensor
    dims: tuple[str, ...]
    index: tuple[IndexExpr, ...]

    def at(self, dims: Sequence[str]) -> tuple[IndexExpr, ...]:
        """The index of a node of the same value whose dimensions are called otherwise."""
        names = {old: ix.dim(new) for old, new in zip(self.dims, dims, strict=True)}
        return tuple(e.substitute(names) for e in self.index)


def held_values(flow: Flow, numbers: Iterable[int]) -> dict[int, Held]:
    """For each of these values the tensor that holds it between two parts.

    An output of the program is that tensor itself, where it has the precision. Others are called
    T1, T2 and so on, in the order of ``numbers``, and are row-major, with their axes as PyTorch
    would have them.
    """
    program = flow.program
    axes = axes_as_computed(program)
    taken = {*program.tensors, *program.dim_names}
    free = (name for k in count(1) if (name := f"T{k}") not in taken)
    found: dict[int, Held] = {}
    for number in numbers:
        node = flow.first[number]
        dtype = flow.dtype(number)
        for output in flow.outputs.get(number, ()):
            kept, dims = output.tensor.dtype, flow.values[output.node].dims
            precise = kept.is_float and kept.unit_roundoff <= dtype.unit_roundoff
            # An output may repeat its value along further dimensions: then it is no copy of it.
            if precise and all(d in dims for d in output.dims):
                found.setdefault(number, Held(output.tensor, dims, output.index))
        if number in found:
            continue
        name = next(free)
        axis_of = {d: axis for axis in flow.axes.get(number, ()) for d in axis}
        # An axis stands where the last of its dimensions does: features behind all heads.
        ends = [(tuple(axis_of.get(d, (d,))), d) for d in axes[node]]
        wholes = [axis for axis, d in ends if axis[-1] == d]
        # A tensor without axes has no element to point at: a scalar is an axis of one element.
        sizes = [[program.sizes[d] for d in axis] for axis in wholes]
        shape = tuple(map(prod, sizes)) or (1,)
        places = (flat_position([*map(ix.dim, a)], s) for a, s in zip(wholes, sizes, strict=True))
        index = tuple(places) or (ix.const(0),)
        found[number] = Held(Tensor(name, shape, dtype), flow.values[node].dims, index)
    return found


class PartBuilder:
    """Builds the program that computes some values of a flow."""

    def __init__(
        self, flow: Flow, held: Mapping[int, Held], inside: Collection[int], name: str
    ) -> None:
        """``inside`` are the values computed here; the others that are needed are loaded."""
        self._flow = flow
        self._held = held
        self._inside = inside
        self._builder = ProgramBuilder(name, flow.program.fp32_precision)
        self._builder.sizes.update(flow.program.sizes)
        # Under which names each value is there already.
        self._names: dict[int, tuple[str, ...]] = {}

    def build(self, stored: Sequence[int], outputs: Sequence[Output]) -> Program:
        """The program that writes the values ``stored`` to the tensors that hold them, and
        ``outputs`` of the whole program.
        """
        builder, flow = self._builder, self._flow
        for number in stored:
            held = self._held[number]
            node, dims = self._root(flow.first[number])
            builder.outputs.append(Output(held.tensor, node, held.at(dims)))
        for output in outputs:
            if all(output.tensor != o.tensor for o in builder.outputs):
                node, names = self._renamed_root(output.node)
                index = tuple(e.substitute(_exprs(names)) for e in output.index)
                builder.outputs.append(Output(output.tensor, node, index))
        return self._in_order(builder.build())

    def _in_order(self, part: Program) -> Program:
        """Inputs and outputs of the whole program come first, in its order."""
        place = self._flow.places
        last = len(place)
        inputs = sorted(part.inputs, key=lambda t: place.get(t.name, last))
        outputs = sorted(part.outputs, key=lambda o: place.get(o.tensor.name, last))
        part = replace(part, inputs=tuple(inputs), outputs=tuple(outputs))
        rounds = part.fp32_precision.rounds_matmuls
        if library_convolution(part) is not None:
            rounds = part.fp32_precision.rounds_convolutions
        return part.held_to(Fp32Precision.of(matmuls=rounds, convolutions=rounds))

    def _root(self, node: int) -> tuple[int, tuple[str, ...]]:
        new, names = self._renamed_root(node)
        return new, tuple(names.get(d, d) for d in self._flow.values[node].dims)

    def _renamed_root(self, node: int) -> tuple[int, Mapping[str, str]]:
        """A node and all below it, under the names that are here already where that is possible."""
        cone = self._cone(node)
        names = self._common_names(node, cone)
        memo: dict[int, int] = {}
        for member in cone:
            memo[member] = self._copied(member, names, memo)
            value = self._flow.values[member]
            self._names.setdefault(value.number, tuple(names.get(d, d) for d in value.dims))
        return memo[node], names

    def _cone(self, node: int) -> tuple[int, ...]:
        """The nodes to make for one: down to leaves and to what is loaded, operands first."""
        seen: dict[int, None] = {}
        todo = [node]
        while todo:
            member = todo.pop()
            if member not in seen:
                seen[member] = None
                found = self._flow.program.nodes[member]
                behind = found.op == "read" and self._is_loaded(found.args[0])
                if not behind and not self._is_loaded(member):
                    todo.extend(found.args)
        return tuple(sorted(seen))

    def _common_names(self, node: int, cone: Sequence[int]) -> dict[str, str]:
        """For dimensions of the node those under which its operands are in the part already.

        Then keys by s and queries by t read the same rows, which are made once.
        """
        flow = self._flow
        nodes = flow.program.nodes
        used = {d: None for m in cone for d in nodes[m].dims}
        # Neither those that the part has, nor those that are bound somewhere below.
        kept = {d: None for dims in self._names.values() for d in dims}
        kept |= {d: None for m in cone for d in _reduced(nodes[m])}
        names: dict[str, str] = {}
        for member in cone:
            value = flow.values[member]
            for old, new in zip(value.dims, self._names.get(value.number, ()), strict=False):
                if old in nodes[node].dims and old not in kept and new not in used:
                    names[old] = new
                    kept[old] = used[new] = None
        return names

    def _is_loaded(self, node: int) -> bool:
        number = self._flow.values[node].number
        return number in self._held and number not in self._inside

    def _copied(self, node: int, names: Mapping[str, str], memo: Mapping[int, int]) -> int:
        builder, flow = self._builder, self._flow
        value = flow.values[node]
        if self._is_loaded(node):
            held = self._held[value.number]
            builder.inputs.setdefault(held.tensor.name, held.tensor)
            dims = [names.get(d, d) for d in value.dims]
            return builder.load(held.tensor.name, held.at(dims))
        old = flow.program.nodes[node]
        if old.op == "read":
            return self._read(old, names, memo)
        if old.op == "load":
            for name in old.access.tensors:
                builder.inputs.setdefault(name, flow.program.tensors[name])
        renamed = Node(old.op, old.args, _renamed(old, _exprs(names)), old.dims)
        return copied(builder, renamed, [memo[a] for a in old.args])

    def _read(self, old: Node, names: Mapping[str, str], memo: Mapping[int, int]) -> int:
        """A value at other indices: a load of the tensor that holds it."""
        flow, (operand,) = self._flow, old.args
        index = (e.substitute(_exprs(names)) for e in old.access.index)
        at = dict(zip(flow.program.nodes[operand].dims, index, strict=True))
        value = flow.values[operand]
        if not self._is_loaded(operand):
            # The same value under other names.
            given = {names.get(d, d): e for d, e in at.items()}
            return self._builder.substitute(memo[operand], given)
        held = self._held[value.number]
        self._builder.inputs.setdefault(held.tensor.name, held.tensor)
        exprs = dict(zip(held.dims, (at[d] for d in value.dims), strict=True))
        return self._builder.load(held.tensor.name, [e.substitute(exprs) for e in held.index])


def _reduced(node: Node) -> tuple[str, ...]:
    return node.reduced if node.op in REDUCING else ()


def _exprs(names: Mapping[str, str]) -> dict[str, IndexExpr]:
    return {old: ix.dim(new) for old, new in names.items()}


def _renamed(node: Node, exprs: Mapping[str, IndexExpr]) -> Attr:
    """The attribute under other names of free dimensions; reduced ones keep theirs."""
    attr = node.attr
    if isinstance(attr, Access):
        return Access(attr.tensor, tuple(e.substitute(exprs) for e in attr.index))
    return attr.substitute(exprs) if isinstance(attr, (IndexExpr, Predicate)) else attr
