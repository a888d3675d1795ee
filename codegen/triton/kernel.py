"""The Triton emitter of one kernel: from a block graph to one @triton.jit function."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from mirage_py.codegen.lowering.base_two_shifts import BaseTwoShifts
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.text.names import value_stem
from mirage_py.codegen.text.operator_text import atom
from mirage_py.codegen.text.writer import CodeWriter
from mirage_py.codegen.tiling.block_order import block_numbers
from mirage_py.codegen.tiling.deferral import deferred_sums
from mirage_py.codegen.tiling.dependent_launch import ALONE, LaunchOrder
from mirage_py.codegen.tiling.descriptors import described_tiles, live_axes
from mirage_py.codegen.tiling.places import single_places
from mirage_py.codegen.tiling.product_order import text_order
from mirage_py.codegen.tiling.read_conditions import read_conditions
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import unmasked_range
from mirage_py.codegen.tiling.valid_sizes import MAX_INT32
from mirage_py.codegen.triton.accumulators import AccumulatorEmitter
from mirage_py.codegen.triton.contraction import ContractionEmitter, reduced
from mirage_py.codegen.triton.expressions import STEPS, elementwise, product
from mirage_py.codegen.triton.loop_bounds import loop_bounds, low_name
from mirage_py.codegen.triton.scalars import Scalar, scalars_of
from mirage_py.codegen.triton.tile_text import (
    TileText,
    descriptor_name,
    pointer_name,
)
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.checks.run_time_sizes import FIXED, RunTimeSizes
from mirage_py.ugraph.ir.dtypes import BOOL, DType
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.launch_choices import NextStart, Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import ACCESSES, REDUCING, STORES, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import Section
from mirage_py.ugraph.operators import ELEMENTWISE, operator


@dataclass(frozen=True)
class KernelText:
    """``pointers`` are the tensors the kernel takes, in the order of its parameters; ``tiles`` has
    the tile of each that it takes as a tensor descriptor. After the pointers come the ``scalars``;
    the grid then has ``grid`` blocks at the sizes of the plan, and in general the product of what
    ``axes`` need: each is a dimension with its tile.
    """

    name: str
    source: str
    pointers: tuple[str, ...]
    grid: int
    tiles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    scalars: tuple[Scalar, ...] = ()
    axes: tuple[tuple[str, int], ...] = ()
    is_wide: bool = False

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """Thread blocks at these sizes of the dimensions."""
        return prod(-(-sizes[dim] // tile) for dim, tile in self.axes)


class KernelEmitter:
    """Emits one typed block graph."""

    def __init__(
        self,
        program: Program,
        typed: TypedBlock,
        tensors: Mapping[str, Tensor],
        options: LaunchConfig,
        in_base_two: Collection[str] = (),
        order: LaunchOrder = ALONE,
        run_time: RunTimeSizes = FIXED,
    ) -> None:
        """``in_base_two`` are the tensors that hold shifts in base 2."""
        self.program = program
        self.order = order
        self._must_wait = order.uses_pdl
        self._is_trigger_due = order.triggers_next
        self.block = typed.block
        self.dtypes = typed.dtypes
        self.tensors = tensors
        self.options = options
        self.run_time = run_time
        self.tiling = Tiling(program, typed.block, run_time.dims)
        used = {t for n in self.block.nodes if n.op in ACCESSES for t in n.access.tensors}
        self.pointers = tuple(t for t in tensors if t in used)
        # Positions of 64 bits, where 32 do not reach the last element of every tensor.
        self.is_wide = any(tensors[t].last_offset > MAX_INT32 for t in self.pointers)
        # The first position of a tile along each dimension, as text.
        self.starts: dict[str, str] = {}
        # Tensors that are read through descriptors, which know their strides, and whose
        # coordinates have 32 bits.
        self.described: dict[str, tuple[int, ...]] = {}
        if not self.is_wide:
            self.described = described_tiles(self.block, self.tiling, tensors, options)
        self.conditions = read_conditions(self.block, tensors)
        self.live = tuple(unmasked_range(self.tiling, n) for n in range(len(self.block.sections)))
        self.out = CodeWriter()
        self.tiles = TileText(self.tiling, tensors, options, run_time)
        addressed = [p for p in self.pointers if p not in self.described]
        self.scalars = scalars_of(self.block, addressed, run_time)
        self.names = self._value_names()
        precision = options.precision or Precision.IEEE
        self.contraction = ContractionEmitter(
            typed, self.tiling, self.tiles, self._value, precision, self.out
        )
        self.shifts = BaseTwoShifts(self.block, typed.dtypes, in_base_two)
        self.accumulators = AccumulatorEmitter(
            self.block,
            self.names,
            self.tiles,
            self.contraction,
            self.shifts,
            deferred_sums(self.block, self.tiling, options),
            self._value,
            self.out,
        )

    def emit(self) -> KernelText:
        """The kernel as text."""
        pointers = self.pointers
        self.out.line("@triton.jit")
        parameters = [
            descriptor_name(p) if p in self.described else pointer_name(p) for p in pointers
        ]
        parameters += [scalar.name for scalar in self.scalars]
        self.out.line(f"def {self.block.name}({', '.join(parameters)}):")
        with self.out.indented():
            self._grid_positions()
            self._unsplit_positions()
            if not self._must_wait:
                self._load_places()
            loops = 0
            for number, section in enumerate(self.block.sections):
                self._unsplit_again(number, section)
                if section.loop is not None:
                    self._wait_for(section.nodes)
                if section.loop is None:
                    for node in text_order(self.block, self.tiling, number):
                        # Before the last stores, or as soon as it has waited.
                        is_last = number == len(self.block.sections) - 1
                        if is_last and self.block.nodes[node].op in STORES:
                            self._let_next_start()
                        self._node(node, number)
                else:
                    self._loop(number, section, section.loop, loops)
                    loops += 1
        axes = tuple((a.dim, self.tiling.padded(a.dim, 0)) for a in self.block.grid)
        return KernelText(
            self.block.name,
            self.out.text(),
            pointers,
            self.tiling.grid_blocks,
            self.described,
            self.scalars,
            axes,
            self.is_wide,
        )

    def _let_next_start(self) -> None:
        if self._is_trigger_due:
            self.out.line("cuda.gdc_launch_dependents()")
            self._is_trigger_due = False

    def _wait_for(self, nodes: Sequence[int]) -> None:
        """A kernel that starts early waits for the previous one before the first of these
        that touches what other kernels write; in a chain these may be any.
        """
        inputs = {t.name for t in self.program.inputs if not self.order.is_chained}
        accesses = (n for n in map(self.block.nodes.__getitem__, nodes) if n.op in ACCESSES)
        touches = any(n.op in STORES or n.access.tensor not in inputs for n in accesses)
        if self._must_wait and touches:
            self.out.line("cuda.gdc_wait()")
            self._must_wait = False
            if self.options.next_start is NextStart.WAITED:
                self._let_next_start()
            self._load_places()

    def _load_places(self) -> None:
        """Positions of outputs in place: loaded early, they are there when results are."""
        for element in single_places(self.block):
            names: dict[str, str] = {}
            self.tiles.name_element(element, names, (), 0)
            name = f"{pointer_name(element.name)}_value"
            self.out.line(f"{name} = {names[str(element)]}")
            self.tiles.loaded[str(element)] = name

    def _value_names(self) -> list[str]:
        taken = {*self.tiles.dim_var.values(), *(scalar.name for scalar in self.scalars)}
        names: list[str] = []
        for number, node in enumerate(self.block.nodes):
            stem = value_stem(number, node, self.dtypes[number], names)
            if stem in taken:
                stem = f"{stem}_{number}"
            taken.add(stem)
            names.append(stem)
        return names

    # -- positions -------------------------------------------------------------------------------

    def _grid_positions(self) -> None:
        """Decode the program id."""
        axes = self.tiling.axes
        if axes:
            self.out.line("pid = tl.program_id(0)")
        uneven = {d for found in self.live for d in found.dims()}
        counts = self._run_time_counts()
        numbers = block_numbers(axes, self.options.block_order, uneven, counts)
        predicated = {d for _, n in self.block.stores() for d in self._predicated(n)}
        for dim, number in numbers.items():
            self._grid_position(dim, number)
            if dim in predicated:
                self.out.line(f"{self.tiles.dim_var[dim]}_first = {atom(number)} == 0")
        for axis in self.block.grid:
            if axis.dim not in numbers:
                self._grid_position(axis.dim, None)

    def _run_time_counts(self) -> dict[str, str]:
        """Names for the numbers of blocks that depend on sizes at run time."""
        counts: dict[str, str] = {}
        for dim in self.tiling.divided:
            if dim in self.run_time.dims:
                counts[dim] = name = f"{self.tiles.dim_var[dim]}_blocks"
                tile = self.tiling.padded(dim, 0)
                size = self.tiles.size(dim)
                self.out.line(f"{name} = {size if tile == 1 else f'tl.cdiv({size}, {tile})'}")
        return counts

    def _predicated(self, store: Node) -> tuple[str, ...]:
        """Grid axes of several blocks along which the first one stores for all."""
        return tuple(d for d in self.block.predicated_axes(store) if d in self.tiling.divided)

    def _grid_position(self, dim: str, block_number: str | None) -> None:
        tile = self.tiling.padded(dim, 0)
        var = self.tiles.dim_var[dim]
        self.starts[dim] = f"{atom(block_number)} * {tile}" if block_number is not None else "0"
        if block_number is not None and self.is_wide:
            block_number = f"{atom(block_number)}.to(tl.int64)"
        if tile == 1:
            self.out.line(f"{var} = {block_number or '0'}")
        elif block_number is None:
            self.out.line(f"{var} = {self._lanes(tile)}")
        else:
            low = f"{atom(block_number)} * {tile}"
            if any(dim in found.dims() for found in self.live):
                self.out.line(f"{low_name(var)} = {low}")
                low = low_name(var)
            self.out.line(f"{var} = {low} + tl.arange(0, {tile})")
        self._tail(dim, 0)

    def _lanes(self, tile: int) -> str:
        return f"tl.arange(0, {tile})" + (".to(tl.int64)" if self.is_wide else "")

    def _unsplit_positions(self) -> None:
        """Dimensions that every block sees all of."""
        looped = {s.loop for s in self.block.sections if s.loop is not None}
        used = {d for n in self.block.nodes for d in _mentioned_dims(n)}
        for dim in self.program.dim_names:
            if dim not in looped and dim not in self.block.grid_tiles and dim in used:
                self._unsplit_position(dim, 0)

    def _unsplit_again(self, number: int, section: Section) -> None:
        """Dimensions that other sections loop over, and that this one sees all of."""
        looped = {s.loop for s in self.block.sections if s.loop is not None}
        used = {d for n in section.nodes for d in _mentioned_dims(self.block.nodes[n])}
        later = {s.loop for s in self.block.sections[number + 1 :]}
        for dim in self.program.dim_names:
            if dim in looped and dim in used and dim != section.loop:
                if dim in later:
                    # Triton takes a name that a loop gives another shape for one it carries.
                    self.tiles.dim_var[dim] = f"{dim}_whole"
                self._unsplit_position(dim, number)

    def _unsplit_position(self, dim: str, section: int) -> None:
        tile = self.tiling.padded(dim, section)
        self.starts[dim] = "0"
        text = self._lanes(tile) if tile > 1 else "0"
        self.out.line(f"{self.tiles.dim_var[dim]} = {text}")
        self._tail(dim, section)

    def _tail(self, dim: str, section: int) -> None:
        if self.tiling.has_tail(dim, section):
            var = self.tiles.dim_var[dim]
            self.out.line(f"{var}_in = {var} < {self.tiles.size(dim)}")

    def _loop(self, number: int, section: Section, dim: str, loop_number: int) -> None:
        for node in section.nodes:
            if self.block.nodes[node].op.startswith("accum"):
                self.accumulators.initialise(node, number)
        tile = self.tiling.padded(dim, number)
        var = self.tiles.dim_var[dim] = dim
        stages = self.options.num_stages
        depth = stages[loop_number] if loop_number < len(stages) else 1
        live, size = self.live[number], self.tiles.size(dim)
        first, stop = loop_bounds(self.tiling, number, live, self.tiles.dim_var, size)
        self.out.line(f"for {var}_start in tl.range({first}, {stop}, {tile}, num_stages={depth}):")
        with self.out.indented():
            self.starts[dim] = start = f"{var}_start"
            if tile > 1:
                start += f" + {self._lanes(tile)}"
            elif self.is_wide:
                start = f"tl.cast({start}, tl.int64)"
            self.out.line(f"{var} = {start}")
            self._tail(dim, number)
            for node in text_order(self.block, self.tiling, number):
                self._node(node, number)
        for node in section.nodes:
            self.accumulators.finish(node, number)

    # -- nodes -----------------------------------------------------------------------------------

    def _value(self, number: int, want: Sequence[str], section: int) -> str:
        """The text of a node's value, expanded to the axes ``want``."""
        node = self.block.nodes[number]
        if node.op in ("const", "size"):
            return self._literal(node)
        return self.tiles.expand(self.names[number], self.tiles.axes(node.dims, section), want)

    def _literal(self, node: Node) -> str:
        if node.op == "size" and node.attr in self.run_time.dims:
            return f"({self.tiles.size(str(node.attr))} * 1.0)"
        value = node.attr if node.op == "const" else float(self.program.sizes[str(node.attr)])
        assert isinstance(value, float)
        if value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        return repr(value)

    def _node(self, number: int, section: int) -> None:
        node = self.block.nodes[number]
        if node.op in ("const", "size") or number in self.accumulators.fused:
            return
        if number in self.shifts.subtractions or number in self.shifts.factors:
            return
        if number in self.accumulators.deferred:
            return
        self._wait_for([number])
        if node.op in STORES:
            self._store(node, section)
        elif node.op.startswith("accum"):
            self.accumulators.update(number, section)
        else:
            comment = f"  # {node.access}" if node.op == "load" else ""
            self.out.line(f"{self.names[number]} = {self._expression(number, section)}{comment}")

    def _expression(self, number: int, section: int) -> str:
        node = self.block.nodes[number]
        axes = self.tiles.axes(node.dims, section)
        if node.op == "load":
            return self._load(number, axes, section)
        if node.op in ("index", "mask"):
            return self._position_value(node, axes)
        if node.op == "cast":
            return self._cast(number, node, axes)
        if node.op in ("sum", "max"):
            return self.contraction.reduce(number, section)
        if node.op == "matmul":
            return self.contraction.matmul(number, section)
        if number in self.shifts.exponents:
            argument = self.shifts.exponent(number, lambda n: self._value(n, axes, section))
            return f"tl.exp2({argument})"
        if node.op == "shift":
            text = self._value(node.args[0], axes, section)
            if number in self.shifts.shifts:
                text = self.shifts.scaled(node.args[0], text)
            floor = self.shifts.floor(number)
            return text if floor is None else f"tl.maximum({text}, {floor!r})"
        if operator(node.op).kind == ELEMENTWISE:
            return self._elementwise(number, axes, section)
        raise ScheduleError(f"Triton has no emission for '{node.op}'", where=self.block.name)

    def _load(self, number: int, axes: Sequence[str], section: int) -> str:
        node = self.block.nodes[number]
        if node.access.tensor in self.described:
            return self._fetch(node, axes, section)
        extra = ""
        mask = self.tiles.in_range(node.access.dims(), axes, section)
        if number in self.conditions:
            condition = self.conditions[number].render(self.tiles.positions(axes))
            mask = f"{mask} & {condition}" if mask else condition
        if mask:
            extra += f", mask={mask}, other=0.0"
        if node.access.tensor in self.options.evict_first:
            extra += ', eviction_policy="evict_first"'
        return f"tl.load({self.tiles.address(node, axes, section)}{extra})"

    def _fetch(self, node: Node, axes: Sequence[str], section: int) -> str:
        """A load through a descriptor: the tile from its first position along each axis."""
        live = live_axes(node, self.tiling, section)
        names = dict(self.tiles.dim_var)
        names.update((dim, atom(self.starts[dim])) for dim in live.values())
        corner = ", ".join(e.render(names) for e in node.access.index)
        text = f"{descriptor_name(node.access.tensor)}.load([{corner}])"
        have = tuple(live[axis] for axis in sorted(live))
        if len(node.access.index) > len(have):
            text = f"tl.reshape({text}, {self.tiles.shape(have, section)})"
        return text if have == tuple(axes) else f"tl.trans({text})"

    def _store(self, node: Node, section: int) -> None:
        axes = self.tiles.axes(node.access.dims(), section)
        source = node.args[0]
        summed = self.block.summed_axes(node)
        if summed:
            value = self._tile_sum(node, summed, axes, section)
        else:
            value = self._value(source, axes, section)
        if set(self.tiles.axes(self.block.nodes[source].dims, section)) - {*summed} != set(axes):
            # A value that does not depend on some axis is repeated along it.
            shape = self.tiles.shape(axes, section)
            scalar = self.block.nodes[source].op in ("const", "size")
            dtype = _tl(self.tensors[node.access.tensor].dtype)
            value = (
                f"tl.full({shape}, {value}, {dtype})"
                if scalar
                else f"tl.broadcast_to({value}, {shape})"
            )
        masks = [f"{self.tiles.dim_var[d]}_first" for d in self._predicated(node)]
        inside = self.tiles.in_range(node.access.dims(), axes, section)
        mask = " & ".join([*masks, inside] if inside else masks)
        suffix = f", mask={mask}" if mask else ""
        how = "store"
        if node.op == "store_add":
            # No other memory access is ordered by it: the next kernel sees all of it anyway.
            how, suffix = "atomic_add", f'{suffix}, sem="relaxed"'
        self.out.line(f"tl.{how}({self.tiles.address(node, axes, section)}, {value}{suffix})")

    def _tile_sum(
        self, node: Node, summed: Sequence[str], axes: Sequence[str], section: int
    ) -> str:
        """What the block adds: its tile summed over grid axes, then rounded."""
        source = node.args[0]
        have = self.tiles.axes(self.block.nodes[source].dims, section)
        text = reduced(self.contraction.masked(source, summed, section), "sum", have, summed)
        text = self.tiles.expand(text, [d for d in have if d not in summed], axes)
        dtype = self.tensors[node.access.tensor].dtype
        if dtype == self.dtypes[source]:
            return text
        return f"{atom(text)}.to({_tl(dtype)})" if axes else f"tl.cast({text}, {_tl(dtype)})"

    def _position_value(self, node: Node, axes: Sequence[str]) -> str:
        assert isinstance(node.attr, IndexExpr | Predicate)
        text = node.attr.render(self.tiles.positions(axes))
        if node.op == "mask":
            return text
        return f"{atom(text)}.to(tl.float32)" if axes else f"{atom(text)} * 1.0"

    def _cast(self, number: int, node: Node, axes: Sequence[str]) -> str:
        source, to = node.args[0], self.dtypes[number]
        if self.block.nodes[source].op in ("const", "size"):
            return f"tl.full([], {self._literal(self.block.nodes[source])}, {_tl(to)})"
        value = self.names[source]
        if to == BOOL:
            return f"{value} != 0.0"
        return f"{value}.to({_tl(to)})" if axes else f"tl.cast({value}, {_tl(to)})"

    def _elementwise(self, number: int, axes: Sequence[str], section: int) -> str:
        node = self.block.nodes[number]
        operands = [atom(self.shifts.natural(a, self._value(a, axes, section))) for a in node.args]
        types = [self.dtypes[a] for a in node.args]
        if node.op == "mul" and BOOL in types:
            mask, other = (0, 1) if types[0] == BOOL else (1, 0)
            is_bool = types[other] == BOOL
            chosen = f"{operands[other]}.to(tl.float32)" if is_bool else operands[other]
            return f"tl.where({operands[mask]}, {chosen}, 0.0)"
        if node.op == "mul":
            have = [self.tiles.axes(self.block.nodes[a].dims, section) for a in node.args]
            return product(operands, have, axes)
        if node.op == "where" and types[0] != BOOL:  # Triton deprecates other conditions
            operands[0] = f"({operands[0]} != 0.0)"
        if node.op in STEPS:
            lines, result = STEPS[node.op](self.names[number], *operands)
            for line in lines:
                self.out.line(line)
            return result
        return elementwise(node.op, operands)


def _mentioned_dims(node: Node) -> tuple[str, ...]:
    """Dimensions whose positions the node's text mentions."""
    if node.op in ACCESSES:
        return node.access.dims()
    if isinstance(node.attr, IndexExpr | Predicate):
        return node.attr.dims()
    return node.reduced if node.op in REDUCING else ()


def _tl(dtype: DType) -> str:
    return f"tl.{dtype.triton_name}"
