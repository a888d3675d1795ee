"""One typed block graph to the text of one kernel: positions, sections, loops and stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mirage_py.codegen.cuda.accumulators import Accumulators, of_one_warp
from mirage_py.codegen.cuda.block_facts import BlockFacts
from mirage_py.codegen.cuda.c_text import C_TYPES, added, atom, identifier
from mirage_py.codegen.cuda.cluster_cut import cluster_plan
from mirage_py.codegen.cuda.clusters import Clusters, received_loads
from mirage_py.codegen.cuda.copies import Copies
from mirage_py.codegen.cuda.elementwise import ThreadGraphs
from mirage_py.codegen.cuda.emission import Emission, Key
from mirage_py.codegen.cuda.engine_pipeline import EnginePipeline
from mirage_py.codegen.cuda.exchange import Exchange, Parts
from mirage_py.codegen.cuda.layout import Layout
from mirage_py.codegen.cuda.layout_modes import decided_layouts
from mirage_py.codegen.cuda.loop_text import loop_bounds, whole_stop
from mirage_py.codegen.cuda.meetings import Meetings
from mirage_py.codegen.cuda.memory import MEMORY
from mirage_py.codegen.cuda.overlap import Overlap
from mirage_py.codegen.cuda.pipeline import Pipeline
from mirage_py.codegen.cuda.products import Products
from mirage_py.codegen.cuda.roles import PRODUCER, PRODUCER_WARPS
from mirage_py.codegen.cuda.staging import staged_loads
from mirage_py.codegen.cuda.stores import Stores
from mirage_py.codegen.cuda.value import Value
from mirage_py.codegen.cuda.warp_shifts import own_shifts
from mirage_py.codegen.live_tiles import always_iterates, live_range, loop_masks, whole_below
from mirage_py.codegen.precision import TypedBlock
from mirage_py.codegen.triton.block_order import ORDER, block_numbers
from mirage_py.codegen.triton.descriptors import COPIES, DESCRIPTORS
from mirage_py.codegen.triton.launch_order import ALONE, LaunchOrder
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.dtypes import F32
from mirage_py.ugraph.node import ACCESSES, STORES
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.program import Program, Tensor

THREADS = "threads"
_MAX_INT32 = 2**31 - 1
# Registers of a thread that may hold what is needed behind the first wait only.
_WORDS_AHEAD = 64


class KernelEmitter:
    """Emits one typed block graph."""

    def __init__(
        self,
        program: Program,
        typed: TypedBlock,
        tensors: Mapping[str, Tensor],
        options: LaunchOptions,
        in_base_two: Collection[str],
        order: LaunchOrder = ALONE,
    ) -> None:
        self.options = options
        self.order = order
        cut = cluster_plan(program, typed, tensors)
        self.facts = BlockFacts(program, typed, tensors, options.flag("axes"), in_base_two, cut)
        self.block = self.facts.block
        self.tiling = self.facts.tiling
        used = {n.access.tensor for n in self.block.nodes if n.op in ACCESSES}
        self.pointers = tuple(t for t in tensors if t in used)
        self._refuse_types(tensors)
        is_wide = any(_reach(tensors[t]) > _MAX_INT32 for t in self.pointers)
        self.depths = self._depths()
        self.staged = staged_loads(self.facts, self.depths)
        self.received = {} if cut is None else received_loads(self.facts, cut)
        self.staged |= self.received
        layouts = decided_layouts(self.facts, options, self.staged)
        # Without thread graphs every elementwise result goes through shared memory, for comparison.
        self.has_threads = options.flag(THREADS) != "off"
        if self.has_threads:
            layouts.own_shifts.update(own_shifts(self.facts, layouts, self.staged))
        self.out = Emission(self.facts, layouts, options, is_wide)
        self.out.memory.mode = options.flag(MEMORY)
        self.exchange = Exchange(self.out)
        self.copies = Copies(self.out)
        self.live = tuple(live_range(self.tiling, n) for n in range(len(self.block.sections)))
        self.pipeline = self._pipeline()
        self.meetings = Meetings(self.out, self.exchange, self.pipeline, self.staged)
        self.graphs = ThreadGraphs(self.out, self.need)
        self.accumulators = Accumulators(
            self.out, self.exchange, self.pipeline, self.graphs.rescaling
        )
        self.products = Products(
            self.out, self.copies, self.exchange, self.staged, self.pipeline.tile_at, self.need
        )
        self.overlap = Overlap(
            self.out, self.pipeline, self.products, self.accumulators, self.graphs
        )
        self.pipeline.described = self.products.groups.tiles_read()
        self.stores = Stores(self.out, self.copies, self.exchange, self.graphs, self.need)
        self.cluster = None
        if cut is not None:
            self.cluster = Clusters(self.out, self.copies, self.pipeline, self.received, self._made)

    def _pipeline(self) -> Pipeline:
        """Tiles by cp.async, or by the copy engine where the options ask for it."""
        options = self.options
        wants_producer = options.flag(PRODUCER) == PRODUCER_WARPS
        by_engine = wants_producer or options.flag(COPIES) == DESCRIPTORS
        if not by_engine or options.flag("arch") != "sm_90a":
            return Pipeline(self.out, self.copies, self.staged, self.depths)
        # A warp that fetches cannot come to a meeting of blocks before it has fetched everything.
        meetings = {self.facts.section(n): None for n in self.received}
        is_last = len(meetings) == 1 and min(meetings) > max(self.depths, default=-1)
        wants_producer &= is_last or not self.block.cluster_dims
        return EnginePipeline(
            self.out, self.copies, self.staged, self.depths, self.live, wants_producer
        )

    def _refuse_types(self, tensors: Mapping[str, Tensor]) -> None:
        types = {f"tensor {name}": tensors[name].dtype for name in self.pointers}
        types |= {f"cast %{n}": dtype for n, dtype in enumerate(self.facts.dtypes)}
        for what, dtype in types.items():
            if dtype.name not in C_TYPES:
                raise ScheduleError(
                    f"{what} is of type {dtype}",
                    where=self.block.name,
                    why=f"the CUDA back end knows {', '.join(C_TYPES)}",
                )

    def _depths(self) -> dict[int, int]:
        """Stages of each section with a loop; no more than it has iterations."""
        depths, loops = {}, 0
        for number, section in enumerate(self.block.sections):
            if section.loop is not None:
                stages = self.options.num_stages
                asked = stages[loops] if loops < len(stages) else 1
                tile = self.tiling.padded(section.loop, number)
                trips = -(-self.facts.program.sizes[section.loop] // tile)
                depths[number] = max(1, min(asked, trips))
                loops += 1
        return depths

    # -- the kernel ------------------------------------------------------------------------------

    def emit(self) -> None:
        """Write all of it to ``out``."""
        if self.order.lets_next_start:
            # The GPU places the next kernel's blocks behind all of this one's, where there is room.
            self.out.line("next_kernel_may_start();")
        self._grid_positions()
        if self.order.starts_early:
            self.out.line("wait_for_kernel_before();")
        if self.cluster is not None:
            self.cluster.begin()
            if self.cluster.all_have_slices:
                self._issue_ahead(self.cluster)
        self.pipeline.begin_kernel()
        for number, section in enumerate(self.block.sections):
            self._whole_positions(number)
            if section.loop is not None:
                self._loop(number, section.loop)
            elif self.cluster is not None and number in self.cluster.cut.meetings:
                self._meet(self.cluster, number)
            else:
                self._straight(section.nodes)
        self.pipeline.end_kernel()

    def _straight(self, nodes: Sequence[int]) -> None:
        phases = self.meetings.phases(nodes)
        order = [n for p in phases for n in p]
        self._issue(order)
        self._load_ahead(order)
        self._phases(phases)

    def _issue(self, nodes: Sequence[int]) -> None:
        """Start the copies of straight code that are not under way yet."""
        loads = self._order_of_use(nodes)
        self.pipeline.issue_straight([n for n in loads if not self.pipeline.is_under_way(n)])

    def _load_ahead(self, nodes: Sequence[int]) -> None:
        """Loads to registers come while tiles are on their way, as far as they are few."""
        if not any(self.pipeline.is_under_way(n) for n in nodes):
            return
        words = 0
        for n in nodes:
            is_due = self.block.nodes[n].op == "load" and n not in self.staged
            if is_due and not self.out.held(n) and self.facts.reads_in_registers(n):
                words += self.out.layouts.own[n].register_count
                if words <= _WORDS_AHEAD:
                    self._single(n)

    def _issue_ahead(self, cluster: Clusters) -> None:
        """Tiles that a meeting reads come while blocks work for it."""
        with cluster.positions():
            for number in cluster.cut.meetings:
                self._issue(self.block.sections[number].nodes)

    def _meet(self, cluster: Clusters, number: int) -> None:
        """A meeting of a cluster's blocks; what it loads to registers comes while they wait."""
        nodes = self.block.sections[number].nodes
        with cluster.positions():
            for n in nodes if cluster.all_have_slices else ():
                if self.block.nodes[n].op == "load":
                    self._single(n)
        with cluster.meeting(number):
            self._straight(nodes)

    def _grid_positions(self) -> None:
        out, tiling = self.out, self.tiling
        uneven = {d for found in self.live for d in found.dims()}
        numbers = self._block_numbers(uneven)
        kind = out.index_type
        for dim, number in numbers.items():
            tile = tiling.padded(dim, 0)
            text = number.replace("//", "/").replace("pid", "(int)blockIdx.x")
            name = out.fresh(f"{identifier(dim)}_block")
            out.line(f"const int {name} = {text};")
            out.block_names[dim] = name
            start = identifier(dim) if tile == 1 else out.fresh(f"{identifier(dim)}_start")
            scaled = name if tile == 1 else f"{name} * {tile}"
            if kind != "int":
                scaled = f"({kind}){scaled}"
            out.line(f"const {kind} {start} = {scaled};")
            out.starts[dim] = start

    def _block_numbers(self, uneven: Collection[str]) -> dict[str, str]:
        """Blocks of a cluster are neighbours; clusters have the order that is asked for."""
        order = self.options.flag(ORDER)
        if self.cluster is None:
            return block_numbers(self.tiling.axes, order, uneven)
        inner = self.tiling.cluster_axes
        outer = tuple(axis for axis in self.tiling.axes if axis not in inner)
        found = block_numbers((*inner, *outer), "", uneven)
        of_clusters = block_numbers(outer, order, uneven)
        cluster = f"(pid // {self.tiling.cluster_blocks})"
        found |= {d: text.replace("pid", cluster) for d, text in of_clusters.items()}
        return found

    def _whole_positions(self, section: int) -> None:
        """Dimensions of which this section sees all."""
        loop = self.block.sections[section].loop
        for dim in self.facts.program.dim_names:
            if dim not in self.out.block_names and dim != loop:
                self.out.starts[dim] = "0"

    def _loop(self, number: int, dim: str) -> None:
        out, section = self.out, self.block.sections[number]
        states = [n for n in section.nodes if self.block.nodes[n].op.startswith("accum")]
        for state in states:
            self.accumulators.initialise(state)
        tile = self.tiling.padded(dim, number)
        first, stop = loop_bounds(self.tiling, number, self.live[number], out.starts)
        variable = out.fresh(f"{identifier(dim)}_start")
        with out.memory.loop(may_be_empty=not always_iterates(self.tiling, number)):
            self.pipeline.begin_loop(number, dim, (first, stop, tile), section.nodes)
            self._hoist(section.nodes)
            if self.live[number]:
                self._await_tiles(section.nodes)
            out.has_exchanged = False
            is_overlapped = self.overlap.begin(number)
            begin = first
            if is_overlapped:
                with out.indented(""):
                    out.line(f"[[maybe_unused]] const {out.index_type} {variable} = {first};")
                    self._iteration(number, dim, variable, (first, tile))
                self.overlap.behind_first()
                begin = added(first, str(tile))
            whole = whole_below(self.tiling, number)
            if whole:
                out.line(f"{out.index_type} {variable} = {begin};")
                begin = ""
                out.comment("Tiles all over which the masks hold, then the others.")
                edge = whole_stop(self.tiling, whole, stop, out.starts)
                out.held_masks = loop_masks(self.block, number)
                head = f"for (; {variable} + {tile} <= {edge}; {variable} += {tile})"
                with out.indented(head):
                    self._iteration(number, dim, variable, (first, tile))
                out.held_masks = ()
            start = f"{out.index_type} {variable} = {begin}" if begin else ""
            with out.indented(f"for ({start}; {variable} < {stop}; {variable} += {tile})"):
                self._iteration(number, dim, variable, (first, tile))
            self.overlap.finish()
        self.accumulators.finish(states)

    def _iteration(self, number: int, dim: str, variable: str, bounds: tuple[str, int]) -> None:
        out = self.out
        with out.scope():
            out.starts[dim] = variable
            self.overlap.begin_iteration(variable, bounds)
            self.pipeline.begin_iteration(number)
            self._phases(self.meetings.phases(self.block.sections[number].nodes))
            self.products.groups.settle()
            self.overlap.end_iteration(f"{variable} > {atom(bounds[0])}")
            self.pipeline.end_iteration(number, out.has_exchanged)

    def _hoist(self, nodes: Sequence[int]) -> None:
        """What a loop reads of earlier sections is brought into its layouts in front of it."""
        made = set(nodes)
        wants: list[tuple[int, Layout]] = []
        for number in nodes:
            if number not in self.facts.emitted:
                continue
            product = self.facts.fused_by.get(number, number)
            if product in self.out.layouts.products:
                plan = self.out.layouts.products[product]
                wanted = [
                    (n, layout)
                    for n, layout in plan.sides(self.facts)
                    if not self.products.groups.reads_from_tile(product, n)
                ]
            else:
                layout = self.graphs.loop_layout(number) if number in self.out.layouts.own else None
                if layout is None or self.block.nodes[number].op == "load":
                    continue
                wanted = [
                    (n, layout.of_dims(self.facts.live(n))) for n in self.facts.inputs(number)
                ]
            wants += [(operand, layout) for operand, layout in wanted if operand not in made]
        self.meetings.bring(wants)
        for operand, layout in wants:
            self.need(operand, layout)

    def _await_tiles(self, nodes: Sequence[int]) -> None:
        """Tiles of earlier sections that a loop reads: where it has no iteration, nobody would wait
        for them in it.
        """
        read = (a for n in nodes if self.block.nodes[n].op != "load" for a in self.facts.inputs(n))
        tiles = [a for a in dict.fromkeys(read) if self.pipeline.is_under_way(a)]
        if self.pipeline.wait_for(tiles):
            self.out.barrier("tiles of a loop that may be empty have arrived")

    # -- nodes of a section ----------------------------------------------------------------------

    def _order_of_use(self, nodes: Sequence[int]) -> list[int]:
        """Staged loads of a section, those that are needed first in front; those that only later
        sections read at the end.
        """
        loads: dict[int, None] = {}
        for number in nodes:
            used = self.facts.inputs(number) if self.block.nodes[number].op != "load" else ()
            loads.update((n, None) for n in used if n in self.staged and n in nodes)
        loads.update((n, None) for n in nodes if n in self.staged)
        return [n for n in loads if n not in self.received]

    def _phases(self, phases: Sequence[Sequence[int]]) -> None:
        """The text of a section's nodes."""
        for phase in phases:
            self.products.groups.settle()
            self.meetings.meet(phase)
            self._phase(phase)
        self.products.groups.settle()
        self.meetings.meet(())

    def _phase(self, nodes: Sequence[int]) -> None:
        """The text of nodes: groups of what is elementwise, everything else one by one."""
        pending = list(nodes)
        waiting = set(pending)
        while pending:
            group = self._group(pending, waiting) or [pending[0]]
            self.products.groups.wait_for([a for n in group for a in self.facts.inputs(n)])
            self.meetings.arrive([n for n in group if self.block.nodes[n].op != "load"])
            if self._joins(group[0]):
                self._write_group(group)
            else:
                self._single(group[0])
            waiting.difference_update(group)
            pending = [n for n in pending if n not in group]

    def _joins(self, number: int) -> bool:
        node = self.block.nodes[number]
        if number in self.out.layouts.products or number in self.facts.fused_by:
            return False
        return node.op != "load" and node.op not in STORES

    def _group(self, pending: Sequence[int], waiting: Collection[int]) -> list[int]:
        """The first node, if it is elementwise or a reduction, with all that can join it."""
        first = pending[0]
        if not self._joins(first):
            return []
        if not self.has_threads:
            return [first]
        layout = self.graphs.loop_layout(first)
        group = [first]
        for number in pending[1:]:
            ready = all(
                a not in waiting or (a in group and not self._ends_group(a))
                for a in self.facts.inputs(number)
            )
            if ready and self._joins(number) and self.graphs.loop_layout(number) == layout:
                group.append(number)
        return group

    def _ends_group(self, number: int) -> bool:
        op = self.block.nodes[number].op
        return op in ("sum", "max", "matmul") or op.startswith("accum")

    def _write_group(self, group: Sequence[int]) -> None:
        facts, out = self.facts, self.out
        for number in group:
            self.accumulators.declare_scales(number)
        inner = set(group)
        kept = [
            n for n in group if any(u not in inner for u in self._users(n)) or self._ends_group(n)
        ]
        made = self.graphs.write(group, kept)
        sums = []
        for number, value in made.items():
            if self._ends_group(number):
                if number in out.layouts.own_shifts.values():
                    value = of_one_warp(value, facts.live(number))
                whole = value.layout.of_dims(facts.live(number))
                op = self.graphs.reduction(number)
                sums.append((number, Parts(value, op, facts.live(number), whole)))
            elif self.has_threads:
                out.hold(number, value)
            else:
                out.hold(number, self.exchange.turned(value, value.layout))
        self.meetings.finish(sums)

    def _users(self, number: int) -> list[int]:
        """Who reads a node's registers."""
        nodes = range(len(self.block.nodes))
        sent = [load for load, n in self.facts.sources.items() if self.facts.root(n) == number]
        return sent + [
            n for n in nodes
            if (n in self.facts.emitted or self.block.nodes[n].op in STORES)
            and number in self.facts.inputs(n)
        ]  # fmt: skip

    def _single(self, number: int) -> None:
        node, out = self.block.nodes[number], self.out
        if node.op in STORES:
            self.stores.store(number)
        elif number in self.facts.fused_by:
            self._fused(number, self.facts.fused_by[number])
        elif node.op == "load":
            is_due = number not in self.staged and not out.held(number)
            if is_due and self.facts.reads_in_registers(number):
                out.hold(number, self.copies.loaded(number, out.layouts.own[number]))
        else:
            self._product(number)

    def _product(self, number: int) -> None:
        out, facts = self.out, self.facts
        self.products.prepare(number)
        value = Value(out.names[number], out.layouts.parts[number], F32)
        by_groups = out.layouts.products[number].by_warp_groups
        out.line(value.declaration("" if by_groups else "0.0f"))
        whole = out.layouts.own[number]
        self.overlap.before_early(number)
        if self.products.begin(number, number, value, adds=False):
            self.overlap.after_early(number)
            if whole != value.layout:
                self.products.groups.wait_for([number])
        else:
            self.products.multiply(number, value)
        self.meetings.finish([(number, Parts(value, "sum", facts.live(number), whole))])

    def _fused(self, number: int, product: int) -> None:
        """A product that is added to its accumulator, which may be rescaled first."""
        if self.overlap.is_late(number):
            self.overlap.late(number)
            return
        self.products.prepare(product)
        (state, *_) = self.out.held(number)
        if self.block.nodes[number].op == "accum_rescaled":
            self.graphs.rescaling.rescale(number)
        if not self.products.begin(product, number, state, adds=True):
            self.products.multiply(product, state)

    # -- values in the layouts that are asked for ------------------------------------------------

    def need(self, key: Key, want: Layout) -> Value:
        """A value in registers of a layout, or of one with the same elements in each thread."""
        if isinstance(key, int) and self.meetings.waits(key):
            self.meetings.meet(())
        held = self.out.held(key)
        for value in held:
            if value.layout.has_same_threads(want):
                return value
        if isinstance(key, int) and self.block.nodes[key].op == "load":
            value = self._read_again(key, want)
        else:
            self.products.groups.wait_for([key] if isinstance(key, int) else ())
            value = self.exchange.turned(held[0], want)
        self.out.hold(key, value)
        return value

    def _read_again(self, load: int, want: Layout) -> Value:
        if load in self.staged:
            buffer = self.pipeline.tile_at(load)
            name = self.out.value_name(load)
            return self.copies.read(self.staged[load], buffer, want, name, {})
        return self.copies.loaded(load, want)

    def _made(self, number: int) -> Value:
        """A node's value in its own layout."""
        root = self.facts.root(number)
        if root not in self.out.layouts.own:
            raise ScheduleError(f"%{number} goes to other blocks", where=self.block.name)
        self.products.groups.wait_for([root])
        return self.need(root, self.out.layouts.own[root])

    # -- facts -----------------------------------------------------------------------------------

    @property
    def grid(self) -> int:
        """Blocks of the grid."""
        return self.tiling.grid_blocks

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster; 1 where blocks have nothing to do with one another."""
        return 1 if self.cluster is None else self.tiling.cluster_blocks

    def parameters(self, written: Collection[str]) -> list[str]:
        """The kernel's parameters."""
        texts = []
        for name in self.pointers:
            kind = C_TYPES[self.facts.tensors[name].dtype.name]
            const = "" if name in written else "const "
            texts.append(f"{const}{kind}* __restrict__ {identifier(name)}")
        maps = (f"const __grid_constant__ TensorMap {m.name}" for m in self.pipeline.maps)
        return [*texts, *maps]


def _reach(tensor: Tensor) -> int:
    """How far its last element lies from its first."""
    pairs = zip(tensor.shape, tensor.element_strides, strict=True)
    return sum((extent - 1) * stride for extent, stride in pairs)
