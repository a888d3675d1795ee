"""The µGraph: kernels whose bodies are block graphs (Mirage, OSDI'25, section 2, with two changes).

Dimensions are named, so the maps of the paper are read off rather than stored: grid axis x over
dimension d is imap x -> d for every tensor that depends on d and x -> replicate for the others; the
same for a loop (fmap) and for outputs (omap). And a block graph is a list of sections, so that
several loops can follow one another.

A family leaves tiles open (None); instantiating gives them numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from mirage_py.display import Displayed
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.program import Output, Program, Tensor, listed

# Library calls of PyTorch: ATen operators one after the other, or compiled by Inductor.
ATEN, INDUCTOR = "aten", "inductor"
TORCH = (ATEN, INDUCTOR)

# Blocks of a cluster, all of its axes together; more than 8 is for devices that are asked for it
# (CUDA C++ Programming Guide, "Thread Block Clusters").
MAX_CLUSTER_BLOCKS = 16


def format_tile(tile: int | None) -> str:
    """A tile that is still open is a question mark."""
    return "?" if tile is None else str(tile)


@dataclass(frozen=True, slots=True)
class GridAxis:
    """The blocks of a grid axis each take ``tile`` consecutive points of a dimension.

    Along a ``cluster`` axis they run at the same time and read each other's shared memory, so that
    together they hold what a value has along the dimension: it may be reduced over, as if the
    cluster were one large block.
    """

    dim: str
    tile: int | None = None
    cluster: bool = False

    def __repr__(self) -> str:
        # Digests of µGraphs without clusters are older than clusters.
        cluster = ", cluster=True" if self.cluster else ""
        return f"GridAxis(dim={self.dim!r}, tile={self.tile!r}{cluster})"

    def __str__(self) -> str:
        return f"{self.dim} by {format_tile(self.tile)}{' in cluster' if self.cluster else ''}"


@dataclass(frozen=True, slots=True)
class Section:
    """Straight code (``loop`` is None), or a loop over dimension ``loop`` in steps of ``tile``.

    ``nodes`` are positions in the block graph's node list.
    """

    nodes: tuple[int, ...]
    loop: str | None = None
    tile: int | None = None


@dataclass(frozen=True, repr=False)
class BlockGraph:
    """What one thread block does.

    A value's tile extends over all of each of its dimensions that is neither a grid axis nor the
    dimension of the loop around it. A value made in a loop dies with its iteration; accumulators
    carry on. A store whose indices lack a grid axis is made by the first block along it; a
    ``store_add`` adds up what the blocks along it have. Axes of a cluster are no grid axes in this
    sense: what a cluster does is what one block would do that has their dimensions whole
    (``split_axes`` are the others). ``threads`` groups nodes whose intermediate values stay in
    registers (thread graphs).
    """

    name: str
    grid: tuple[GridAxis, ...]
    nodes: tuple[Node, ...]
    sections: tuple[Section, ...]
    threads: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        axes = ", ".join(map(str, self.grid))
        loops = [
            f"loop {s.loop} by {format_tile(s.tile)}" for s in self.sections if s.loop is not None
        ]
        parts = [f"grid {axes}" if axes else "one block", *loops, f"{len(self.nodes)} nodes"]
        return f"<kernel {self.name}: {'; '.join(parts)}>"

    @classmethod
    def whole(
        cls, name: str, nodes: Sequence[Node], outputs: Iterable[Output], dims: Sequence[str]
    ) -> BlockGraph:
        """The nodes of a program as one kernel without grid and loops, ``dims`` in their order."""
        stores = [Node("store", (o.node,), Access(o.tensor.name, o.index), o.dims) for o in outputs]
        ordered = [
            replace(n, dims=tuple(d for d in dims if d in n.dims)) for n in (*nodes, *stores)
        ]
        return cls.straight(name, ordered)

    @classmethod
    def straight(cls, name: str, nodes: Sequence[Node]) -> BlockGraph:
        """Nodes and stores in their order, without grid and loops."""
        return cls(name, (), tuple(nodes), (Section(tuple(range(len(nodes)))),))

    @cached_property
    def section_of(self) -> tuple[int, ...]:
        """For each node the position of its section."""
        where = [0] * len(self.nodes)
        for number, section in enumerate(self.sections):
            for node in section.nodes:
                where[node] = number
        return tuple(where)

    @cached_property
    def grid_tiles(self) -> dict[str, int | None]:
        """Tile that one block has of each gridded dimension, axes of a cluster among them."""
        return {axis.dim: axis.tile for axis in self.grid}

    @cached_property
    def split_axes(self) -> tuple[GridAxis, ...]:
        """The axes whose blocks see nothing of one another: all but those of the cluster."""
        return tuple(axis for axis in self.grid if not axis.cluster)

    @cached_property
    def cluster_dims(self) -> tuple[str, ...]:
        """Dimensions that the blocks of a cluster share; each block has a tile of them."""
        return tuple(axis.dim for axis in self.grid if axis.cluster)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over wiring, attributes and tiles."""
        text = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return hashlib.sha256(f"BlockGraph({text})".encode()).hexdigest()

    def loads(self) -> Iterator[tuple[int, Node]]:
        """Positions and nodes of all loads."""
        return ((i, n) for i, n in enumerate(self.nodes) if n.op == "load")

    def stores(self) -> Iterator[tuple[int, Node]]:
        """Positions and nodes of all stores, those that add among them."""
        return ((i, n) for i, n in enumerate(self.nodes) if n.op in STORES)

    @property
    def read_tensors(self) -> tuple[str, ...]:
        """Tensors that it loads from, once each."""
        return tuple(dict.fromkeys(t for _, n in self.loads() for t in n.access.tensors))

    @property
    def written_tensors(self) -> tuple[str, ...]:
        """Tensors that it stores to, once each."""
        return tuple(dict.fromkeys(n.access.tensor for _, n in self.stores()))

    @property
    def added_tensors(self) -> tuple[str, ...]:
        """Tensors that the kernel adds to, and that are zeroed before it."""
        names = (n.access.tensor for _, n in self.stores() if n.op == "store_add")
        return tuple(dict.fromkeys(names))

    def summed_axes(self, store: Node) -> tuple[str, ...]:
        """Grid axes along which each block has a different share of what a ``store_add`` adds."""
        value = self.nodes[store.args[0]].dims
        return tuple(a.dim for a in self.split_axes if a.dim in value and a.dim not in store.dims)

    def predicated_axes(self, store: Node) -> tuple[str, ...]:
        """Grid axes along which all blocks have the same to store, so that the first one does."""
        value = self.nodes[store.args[0]].dims
        known = (*value, *store.dims)
        return tuple(a.dim for a in self.split_axes if a.dim not in known)

    @property
    def has_loops(self) -> bool:
        """Whether a section goes over a dimension tile by tile."""
        return any(section.loop is not None for section in self.sections)

    @property
    def is_straight_line(self) -> bool:
        """Whether it has neither loops nor matmuls: each block reads its tiles once."""
        return not self.has_loops and all(n.op != "matmul" for n in self.nodes)

    @property
    def is_instance(self) -> bool:
        """Whether every tile has a number."""
        tiles = [a.tile for a in self.grid] + [s.tile for s in self.sections if s.loop]
        return all(t is not None for t in tiles)


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A kernel-graph node that a vendor library computes: ``op`` over tensors, to one tensor.

    A ``convolution`` says what it is one of; other operators are known by their name. What PyTorch
    computes (``TORCH``) is any part of a program, with one result or several: ``body`` says which,
    a block graph without grid and loops.
    """

    name: str
    op: str
    args: tuple[str, ...]
    result: str
    convolution: Convolution | None = None
    body: BlockGraph | None = None

    def __repr__(self) -> str:
        # Digests of µGraphs without convolutions are older than convolutions, and so on.
        more = f", convolution={str(self.convolution)!r}" if self.convolution else ""
        more += f", body={self.body.digest!r}" if self.body else ""
        parts = f"name={self.name!r}, op={self.op!r}, args={self.args!r}, result={self.result!r}"
        return f"LibraryCall({parts}{more})"

    @property
    def read_tensors(self) -> tuple[str, ...]:
        """Its operands, once each."""
        return tuple(dict.fromkeys(self.args))

    @property
    def written_tensors(self) -> tuple[str, ...]:
        """Its result, or several."""
        return self.body.written_tensors if self.body else (self.result,)

    @property
    def digest(self) -> str:
        """SHA-256 over all of it."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


Kernel = BlockGraph | LibraryCall


@dataclass(frozen=True, repr=False)
class UGraph(Displayed):
    """A kernel graph that implements ``program``; kernels run in order.

    ``intermediates`` are device tensors that one kernel writes and a later one reads, row-major.
    """

    program: Program
    kernels: tuple[Kernel, ...]
    intermediates: tuple[Tensor, ...] = ()

    def __repr__(self) -> str:
        between = f"; between them {listed(self.intermediates)}" if self.intermediates else ""
        return f"<UGraph of '{self.program.name}': {listed(self.kernels)}{between}>"

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every device tensor by name: inputs, outputs, intermediates."""
        return {**self.program.tensors, **{t.name: t for t in self.intermediates}}

    @cached_property
    def scope(self) -> Program:
        """The program with the intermediates among its inputs: all that one kernel may refer to."""
        return replace(self.program, inputs=(*self.program.inputs, *self.intermediates))

    @property
    def in_blocks(self) -> UGraph:
        """The same with block graphs for what PyTorch computes, to be evaluated."""
        bodies = [getattr(kernel, "body", None) for kernel in self.kernels]
        if not any(bodies):
            return self
        return replace(
            self, kernels=tuple(b or k for b, k in zip(bodies, self.kernels, strict=True))
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over program, wiring, attributes and tiles."""
        kernels = tuple(kernel.digest for kernel in self.kernels)
        text = repr((self.program.digest, kernels, self.intermediates))
        return hashlib.sha256(text.encode()).hexdigest()
