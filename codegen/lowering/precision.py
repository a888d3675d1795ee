"""Element types of a block graph: arithmetic in float32, tensor cores in the inputs' half type.

Casts become nodes, so that the printed µGraph shows every rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.checks.kept_integers import kept_types, wider
from mirage_py.ugraph.ir.dtypes import BOOL, F8E4M3, F16, F32, I32, DType
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import STATE, operator

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True, slots=True)
class TypedBlock:
    """A block graph with its casts, and the type of every node's value."""

    block: BlockGraph
    dtypes: tuple[DType, ...]


def insert_casts(program: Program, block: BlockGraph, tensors: dict[str, Tensor]) -> TypedBlock:
    """Insert cast nodes right after the values they round, once for each type asked for.

    An accumulator's value is final only after its loop: its casts go before its readers.
    """
    return _Caster(program, block, tensors).run()


class _Caster:
    def __init__(self, program: Program, block: BlockGraph, tensors: dict[str, Tensor]) -> None:
        self.block = block
        self.tensors = tensors
        self.tiling = Tiling(program, block)
        self.dots = dot_types(block, tensors)
        # Producer -> types it is cast to; found in a first walk, so that each cast lands after it.
        self.wanted: dict[int, dict[str, DType]] = {}
        self.types = [_type_of(n, tensors) for n in block.nodes]
        self.kept = kept_types(block.nodes, tensors)
        self.half_products = self._half_products()
        for number in self.half_products:
            self.types[number] = self.types[block.nodes[number].args[0]]
        self.nodes: list[Node] = []
        self.dtypes: list[DType] = []
        # (node of the given block, type) -> its value in that type among the new nodes
        self.position: dict[tuple[int, str], int] = {}

    def _half_products(self) -> tuple[int, ...]:
        """Products of two half-precision loads that feed tensor cores, and else only sums.

        The float32 product of two half numbers is exact, so rounding it is what the half product
        gives: the conversions are saved, and the tensor cores get the same bits. Sums of it take
        the rounded product too: in sum(x g w) - m sum(g w) the rounding then cancels where x is
        near m, as it does in sum((x - m) g w), however far m is from zero.
        """
        found = []
        for number, node in enumerate(self.block.nodes):
            if node.op != "mul":
                continue
            types = [self.types[a] for a in node.args]
            loads = all(self._is_stored_half(a) for a in node.args)
            users = [i for i, n in enumerate(self.block.nodes) if number in n.args]
            dots = [i for i in users if self._is_dot_of(i, types[0])]
            rest = [i for i in users if i not in dots]
            sums = all(self.block.nodes[i].op == "sum" for i in rest)
            if loads and types[0].is_half and types[0] == types[1] and dots and sums:
                found.append(number)
        return tuple(found)

    def _is_stored_half(self, number: int) -> bool:
        """Whether it is a half number as it stands: loaded, or cast to one."""
        return self.block.nodes[number].op in ("load", "cast") and self.types[number].is_half

    def _is_dot_of(self, number: int, dtype: DType) -> bool:
        node = self.block.nodes[number]
        is_dot = node.op == "matmul" and self.tiling.is_dot(number)
        return is_dot and self.dots[number] == dtype

    def run(self) -> TypedBlock:
        operand_types = [self._operand_types(i) for i in range(len(self.block.nodes))]
        for node, wanted in zip(self.block.nodes, operand_types, strict=True):
            for argument, dtype in zip(node.args, wanted, strict=True):
                is_state = operator(self.block.nodes[argument].op).kind == STATE
                if dtype is not None and self.types[argument] != dtype and not is_state:
                    self.wanted.setdefault(argument, {})[dtype.name] = dtype
        sections = []
        for section in self.block.sections:
            first = len(self.nodes)
            for number in section.nodes:
                self._copy(number, operand_types[number])
            sections.append(replace(section, nodes=tuple(range(first, len(self.nodes)))))
            if section.loop is not None:
                self._forget_casts(first)
        block = replace(self.block, nodes=tuple(self.nodes), sections=tuple(sections), threads=())
        return TypedBlock(block, tuple(self.dtypes))

    def _copy(self, number: int, operand_types: tuple[DType | None, ...]) -> None:
        """Append a node, the casts of accumulators it reads before it, its own casts after it."""
        node = self.block.nodes[number]
        wanted = [t or self.types[a] for a, t in zip(node.args, operand_types, strict=True)]
        for argument, dtype in zip(node.args, wanted, strict=True):
            if (argument, dtype.name) not in self.position:
                self._cast(argument, dtype)
        args = tuple(self.position[a, t.name] for a, t in zip(node.args, wanted, strict=True))
        self.position[number, self.types[number].name] = len(self.nodes)
        self.nodes.append(replace(node, args=args))
        self.dtypes.append(self.types[number])
        for dtype in self.wanted.get(number, {}).values():
            self._cast(number, dtype)

    def _cast(self, number: int, dtype: DType) -> None:
        source = self.position[number, self.types[number].name]
        self.position[number, dtype.name] = len(self.nodes)
        self.nodes.append(Node("cast", (source,), dtype, self.block.nodes[number].dims))
        self.dtypes.append(dtype)

    def _forget_casts(self, first: int) -> None:
        """A value cast in a loop dies with the iteration; the next section casts again."""
        for key, place in list(self.position.items()):
            if place >= first and key[1] != self.types[key[0]].name:
                del self.position[key]

    def _common_kept(self, node: Node) -> DType | None:
        """The integers that an operator compares, where it has no others."""
        one, other = (self.kept[a] for a in node.args)
        return None if one is None or other is None else wider(one, other)

    def _operand_types(self, number: int) -> tuple[DType | None, ...]:
        """The type each operand must have; None takes it as it is."""
        node = self.block.nodes[number]
        if node.op == "store_add" and self.block.summed_axes(node):
            return (F32,)  # the tile is summed first, and rounded then
        if node.op in STORES:
            return (self.tensors[node.access.tensor].dtype,)
        if node.op == "matmul" and self.tiling.is_dot(number):
            return (self.dots[number], self.dots[number])
        if node.op == "cast" or operator(node.op).is_bitwise:
            return (None,) * len(node.args)
        if node.op in COMPARISONS and (kept := self._common_kept(node)) is not None:
            return (kept, kept)
        if node.op == "where":
            return (BOOL if self.types[node.args[0]] == BOOL else F32, F32, F32)
        if node.op == "mul":
            if number in self.half_products:
                return (None, None)
            # A product with a mask is emitted as a selection.
            return tuple(None if self.types[a] == BOOL else F32 for a in node.args)
        return (F32,) * len(node.args)


def dot_types(block: BlockGraph, tensors: Mapping[str, Tensor]) -> Mapping[int, DType]:
    """The type of the operands of each matmul, by position, if it is one on tiles."""
    half = _common_half(block, tensors)
    types = [_type_of(n, tensors) for n in block.nodes]
    found = {}
    for number, node in enumerate(block.nodes):
        if node.op != "matmul":
            continue
        if all(types[a] == F8E4M3 or block.nodes[a].op == "e4m3" for a in node.args):
            found[number] = F8E4M3
            continue
        loaded = [types[a] for a in node.args if types[a].is_half]
        computed = all(block.nodes[a].op != "load" for a in node.args)
        if loaded:
            found[number] = loaded[0] if all(t == loaded[0] for t in loaded) else F32
        else:
            found[number] = half if computed and half is not None else F32
    return found


def _type_of(node: Node, tensors: Mapping[str, Tensor]) -> DType:
    if node.op == "load":
        return tensors[node.access.tensor].dtype
    if node.op == "mask" or node.op in COMPARISONS:
        return BOOL
    if node.op == "cast":
        assert isinstance(node.attr, DType)
        return node.attr
    return I32 if operator(node.op).is_bitwise else F32


def _common_half(block: BlockGraph, tensors: Mapping[str, Tensor]) -> DType | None:
    """The half type of all tensors the block reads, if they share one."""
    types = [tensors[n.access.tensor].dtype for _, n in block.loads()]
    first = types[0] if types else F16
    return first if first.is_half and all(t == first for t in types) else None
