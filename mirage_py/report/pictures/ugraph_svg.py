"""A µGraph as a picture on three levels: kernels, in them loops, in them thread graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from mirage_py.report.pictures.canvas import CHAR, Canvas
from mirage_py.report.pictures.layered import PAD, Box, Layout, Placed, layout
from mirage_py.ugraph.ir.node import ACCESSES, STORES, Node
from mirage_py.ugraph.ir.threads import steps_of
from mirage_py.ugraph.ir.ugraph import (
    BlockGraph,
    Kernel,
    LibraryCall,
    Section,
    UGraph,
    format_tile,
)
from mirage_py.ugraph.operators import CONTRACT, EFFECT, LEAF, REDUCE, STATE, operator
from mirage_py.ugraph.text.printing import format_grid, format_node, format_number

_LINE = 16.0


@dataclass(frozen=True, slots=True)
class Links:
    """Where boxes lead: a kernel's name or a node ``(kernel, position)`` to an address. A node
    has the identity ``node-KERNEL-POSITION``, by which other parts of a page lead to it.
    """

    kernels: Mapping[str, str]
    nodes: Mapping[tuple[str, int], str]


NO_LINKS = Links({}, {})


@dataclass(frozen=True, slots=True)
class _Leaf:
    """What a box says: its lines, its class, where it leads and what it is called on the page."""

    lines: tuple[str, ...]
    kind: str
    href: str = ""
    name: str = ""
    tip: str = ""


def node_id(kernel: str, position: int) -> str:
    """The identity of a node's box on a page."""
    return f"node-{kernel}-{position}"


def ugraph_svg(ugraph: UGraph, *, standalone: bool = False) -> Markup:
    """The whole µGraph as one picture: device tensors and kernels, with what is inside of them.

    ``standalone``: it brings its colours along, light and dark, as a notebook wants it.
    """
    return _Drawing(ugraph, NO_LINKS).whole(standalone=standalone)


def kernel_graph_svg(ugraph: UGraph, *, links: Links = NO_LINKS) -> Markup:
    """The first level alone: which kernel reads and writes which device tensor."""
    return _Drawing(ugraph, links).kernels()


def block_svg(ugraph: UGraph, kernel: BlockGraph, *, links: Links = NO_LINKS) -> Markup:
    """What a block of one kernel does: its loops, their nodes, thread graphs among them."""
    return _Drawing(ugraph, links).block(kernel)


class _Drawing:
    def __init__(self, ugraph: UGraph, links: Links) -> None:
        self.ugraph = ugraph
        self.links = links
        self.leaves: dict[str, _Leaf] = {}
        self.kinds: dict[str, str] = {}
        self.edges: list[tuple[str, str]] = []

    def whole(self, *, standalone: bool) -> Markup:
        """All levels in one."""
        parts = self._graph(closed=False)
        for kernel in self.ugraph.kernels:
            if isinstance(kernel, BlockGraph):
                self._across(kernel)
        return self._drawn(Box("root", "", parts=tuple(parts)), standalone=standalone)

    def kernels(self) -> Markup:
        """Kernels as plain boxes."""
        return self._drawn(Box("root", "", parts=tuple(self._graph(closed=True))))

    def block(self, kernel: BlockGraph) -> Markup:
        """One kernel alone."""
        return self._drawn(self._kernel(kernel))

    # -- device tensors and kernels ----------------------------------------------------------------

    def _graph(self, *, closed: bool) -> Iterator[Box]:
        """Tensors and kernels, sources first; of ``closed`` kernels nothing inside is drawn."""
        known: set[str] = set()
        for kernel in self.ugraph.kernels:
            read, written = kernel.read_tensors, kernel.written_tensors
            for name in (*read, *written):
                if name not in known and name in read:
                    known.add(name)
                    yield self._tensor(name)
            box = self._closed(kernel) if closed else self._kernel(kernel)
            yield box
            for name in written:
                known.add(name)
                yield self._tensor(name)
            if closed or isinstance(kernel, LibraryCall):
                self.edges += [(f"t/{name}", box.key) for name in read]
                self.edges += [(box.key, f"t/{name}") for name in written]

    def _across(self, kernel: BlockGraph) -> None:
        """Edges between device tensors and the loads and stores of a kernel."""
        for position, node in enumerate(kernel.nodes):
            if node.op in STORES:
                self.edges.append((f"{kernel.name}/{position}", f"t/{node.access.tensor}"))
            elif node.op == "load":
                key = f"{kernel.name}/{position}"
                self.edges += [(f"t/{name}", key) for name in node.access.tensors]

    def _tensor(self, name: str) -> Box:
        tensor = self.ugraph.tensors[name]
        between = any(t.name == name for t in self.ugraph.intermediates)
        lines = (str(tensor), "through device memory") if between else (str(tensor),)
        return self._leaf(f"t/{name}", _Leaf(lines, "tensor"))

    def _closed(self, kernel: Kernel) -> Box:
        if isinstance(kernel, LibraryCall):
            return self._library(kernel)
        href = self.links.kernels.get(kernel.name, "")
        loops = [f"loop {s.loop} by {format_tile(s.tile)}" for s in kernel.sections if s.loop]
        grid = format_grid(kernel)
        lines = (kernel.name, f"grid {grid}" if grid else "one block", *loops)
        return self._leaf(f"k/{kernel.name}", _Leaf(lines, "kernel", href))

    def _library(self, call: LibraryCall) -> Box:
        lines = (call.name, f"library: {call.op}({', '.join(call.args)})")
        return self._leaf(f"k/{call.name}", _Leaf(lines, "library"))

    # -- one kernel --------------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> Box:
        if isinstance(kernel, LibraryCall):
            return self._library(kernel)
        key = f"k/{kernel.name}"
        self.kinds[key] = "kernel"
        for position, node in enumerate(kernel.nodes):
            self.edges += [
                (f"{kernel.name}/{a}", f"{kernel.name}/{position}")
                for a in dict.fromkeys(node.args)
            ]
        grid = format_grid(kernel)
        sections = [
            self._section(kernel, number, section)
            for number, section in enumerate(kernel.sections)
            if section.nodes
        ]
        title = f"{kernel.name}: grid {grid}" if grid else f"{kernel.name}: one block"
        return Box(key, title, parts=tuple(sections), stacked=True)

    def _section(self, kernel: BlockGraph, number: int, section: Section) -> Box:
        key = f"{kernel.name}/s{number}"
        self.kinds[key] = "loop" if section.loop else "straight"
        parts: list[Box] = []
        for step in steps_of(kernel, section):
            leaves = tuple(self._node(kernel, section, n) for n in step)
            if len(step) == 1:
                parts += leaves
                continue
            thread = f"{key}/t{step[0]}"
            self.kinds[thread] = "thread"
            parts.append(Box(thread, "thread graph: in registers", parts=leaves))
        title = f"loop {section.loop} by {format_tile(section.tile)}" if section.loop else ""
        return Box(key, title, parts=tuple(parts))

    def _node(self, kernel: BlockGraph, section: Section, position: int) -> Box:
        node = kernel.nodes[position]
        tiles = {**kernel.grid_tiles, **({section.loop: section.tile} if section.loop else {})}
        shape = _shape(node, tiles, self.ugraph.program.sizes)
        return self._leaf(
            f"{kernel.name}/{position}",
            _Leaf(
                tuple(filter(None, (_label(node, position), shape))),
                _kind(node),
                self.links.nodes.get((kernel.name, position), ""),
                node_id(kernel.name, position),
                format_node(node) if node.op in STORES else f"%{position} = {format_node(node)}",
            ),
        )

    def _leaf(self, key: str, leaf: _Leaf) -> Box:
        self.leaves[key] = leaf
        width = max(len(line) for line in leaf.lines) * CHAR + 16
        return Box(key, width=width, height=len(leaf.lines) * _LINE + 10)

    # -- drawing -----------------------------------------------------------------------------------

    def _drawn(self, root: Box, *, standalone: bool = False) -> Markup:
        found = layout(root, self.edges)
        title = f"µGraph of {self.ugraph.program.name}"
        canvas = Canvas(found.width + 2, found.height + 2, title, "ugraph")
        with canvas.group(transform="translate(1 1)"):
            self._boxes(canvas, root, found)
            for edge in dict.fromkeys(self.edges):
                _edge(canvas, edge, found)
            for key, leaf in self.leaves.items():
                if key in found.places:
                    _leaf(canvas, leaf, found.places[key])
        return canvas.markup(standalone=standalone)

    def _boxes(self, canvas: Canvas, box: Box, found: Layout) -> None:
        if kind := self.kinds.get(box.key):
            at = found.places[box.key]
            canvas.rect(at.x, at.y, at.width, at.height, rx=6, class_=f"mp-box mp-{kind}")
            if box.title:
                canvas.text(at.x + PAD, at.y + 19, box.title, class_="mp-title")
        for part in box.parts:
            self._boxes(canvas, part, found)


def _leaf(canvas: Canvas, leaf: _Leaf, at: Placed) -> None:
    with (
        canvas.group("a" if leaf.href else "g", leaf.tip, id=leaf.name, href=leaf.href,
                     class_="mp-node"),
    ):  # fmt: skip
        round_ = 10 if leaf.kind in ("state", "tensor") else 3
        canvas.rect(at.x, at.y, at.width, at.height, rx=round_, class_=f"mp-box mp-{leaf.kind}")
        for number, line in enumerate(leaf.lines):
            style = "mp-name" if number == 0 else "mp-small"
            y = at.y + 5 + (number + 0.75) * _LINE
            canvas.text(at.middle, y, line, class_=style, text_anchor="middle")


def _edge(canvas: Canvas, edge: tuple[str, str], found: Layout) -> None:
    if edge[0] not in found.places or edge[1] not in found.places:
        return
    start, end = found.places[edge[0]], found.places[edge[1]]
    points = [(start.middle, start.y + start.height), *found.routes.get(edge, ())]
    points.append((end.middle, end.y))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = max((y1 - y0) / 2, 6)
        path += f"C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}"
    canvas.add("path", d=path, class_="mp-edge")


def _label(node: Node, position: int) -> str:
    if operator(node.op).kind == LEAF:
        shown = format_number(node.attr) if node.op == "const" else str(node.attr)
        return f"{node.op} {shown}"
    if node.op in STORES:
        return f"{node.op} {node.access}"
    return f"%{position} {format_node(node).partition(' %')[0]}"


def _shape(node: Node, tiles: Mapping[str, int | None], sizes: Mapping[str, int]) -> str:
    """The part of a value that a block holds at once."""
    if node.op in STORES or not node.dims:
        return ""
    return " × ".join(f"{d} {format_tile(tiles.get(d, sizes.get(d)))}" for d in node.dims)


def _kind(node: Node) -> str:
    kind = operator(node.op).kind
    if node.op in ACCESSES or kind == EFFECT:
        return "memory"
    return {LEAF: "leaf", REDUCE: "reduce", CONTRACT: "contract", STATE: "state"}.get(
        kind, "elementwise"
    )
