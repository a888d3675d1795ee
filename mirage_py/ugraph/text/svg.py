"""A µGraph as a self-contained SVG picture: nested boxes, one line per node."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.ir.threads import steps_of
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, Section, UGraph, format_tile
from mirage_py.ugraph.text.printing import format_grid, format_node

_FONT_PX = 12
_CHAR_PX = 7.25  # width of a letter of a fixed-width font of that size, on the safe side
_LINE_PX = 17
_PAD_PX = 10
_GAP_PX = 8

# Fill and border of each kind of box; light enough to print.
_COLORS = {
    "ugraph": ("#ffffff", "#8a8f98"),
    "library": ("#f2eefb", "#7f6bb3"),
    "kernel": ("#eef4fb", "#3f6fa3"),
    "loop": ("#fdf3e3", "#c28a2b"),
    "straight": ("#ffffff", "#b9c2cc"),
    "thread": ("#e9f6ec", "#4f9a63"),
}
_STYLE = (
    f"text{{font:{_FONT_PX}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#1d2329;white-space:pre}.title{font-weight:bold}"
)


@dataclass(slots=True)
class _Canvas:
    elements: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, line: str, *, bold: bool) -> None:
        style = ' class="title"' if bold else ""
        self.elements.append(f'<text x="{x:g}" y="{y:g}"{style}>{escape(line)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        fill, border = _COLORS[kind]
        self.elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
            f'fill="{fill}" stroke="{border}"/>'
        )


def format_svg(ugraph: UGraph) -> str:
    """The picture as the text of an ``.svg`` file."""
    root = outline(ugraph)
    width, height = _size(root)
    canvas = _Canvas()
    _draw(canvas, root, 0.5, 0.5, width)
    body = "\n".join(canvas.elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 1:g}" height="{height + 1:g}" '
        f'viewBox="0 0 {width + 1:g} {height + 1:g}">\n'
        f"<title>{escape(root.title)}</title>\n<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _size(part: Box | str) -> tuple[float, float]:
    """Width and height in pixels."""
    if isinstance(part, str):
        return len(part) * _CHAR_PX, _LINE_PX
    inner = [_size(p) for p in part.parts]
    title = _LINE_PX if part.title else 0
    width = max([len(part.title) * _CHAR_PX, *(w for w, _ in inner)])
    gaps = sum(_gap(p) for p in part.parts)
    return width + 2 * _PAD_PX, title + sum(h for _, h in inner) + gaps + 2 * _PAD_PX


def _gap(part: Box | str) -> float:
    """Space above a part: boxes stand apart, lines do not."""
    return 0 if isinstance(part, str) else _GAP_PX


def _draw(canvas: _Canvas, box: Box, x: float, y: float, width: float) -> None:
    canvas.box(x, y, width, _size(box)[1], box.kind)
    y += _PAD_PX
    if box.title:
        canvas.text(x + _PAD_PX, y + _FONT_PX, box.title, bold=True)
        y += _LINE_PX
    for part in box.parts:
        y += _gap(part)
        if isinstance(part, str):
            canvas.text(x + _PAD_PX, y + _FONT_PX, part, bold=False)
        else:
            _draw(canvas, part, x + _PAD_PX, y, width - 2 * _PAD_PX)
        y += _size(part)[1]


@dataclass(frozen=True, slots=True)
class Box:
    """``kind`` is ugraph, library, kernel, loop, straight or thread; lines and boxes in order."""

    kind: str
    title: str
    parts: tuple[Box | str, ...]


def outline(ugraph: UGraph) -> Box:
    """The kernel graph, in it the kernels, in them their sections, in them the thread graphs."""
    program = ugraph.program
    header = [f"dims  {', '.join(f'{d.name} = {d.size}' for d in program.dims)}"]
    header += [f"input {t}" for t in program.inputs]
    header += [f"output {o.tensor}" for o in program.outputs]
    header += [f"between kernels: {t}" for t in ugraph.intermediates]
    return Box("ugraph", program.name, (*header, *map(_kernel, ugraph.kernels)))


def _kernel(kernel: Kernel) -> Box:
    if isinstance(kernel, LibraryCall):
        call = f"{kernel.op}({', '.join(kernel.args)}) -> {', '.join(kernel.written_tensors)}"
        return Box("library", f"library {kernel.name}", (call,))
    axes = format_grid(kernel)
    parts = [
        Box(
            "loop" if section.loop else "straight",
            f"loop {section.loop} by {format_tile(section.tile)}" if section.loop else "",
            _lines(kernel, section),
        )
        for section in kernel.sections
        if section.nodes
    ]
    title = f"kernel {kernel.name}" + (f", grid {axes}" if axes else "")
    return Box("kernel", title, tuple(parts))


def _lines(block: BlockGraph, section: Section) -> tuple[Box | str, ...]:
    """The nodes as they run; those of a thread graph stand in a box of their own."""
    parts: list[Box | str] = []
    for step in steps_of(block, section):
        lines = tuple(_line(block, n) for n in step)
        parts += [Box("thread", "in registers", lines)] if len(step) > 1 else lines
    return tuple(parts)


def _line(block: BlockGraph, position: int) -> str:
    node = block.nodes[position]
    text = format_node(node)
    if node.op in STORES:
        return text
    shape = f" : [{', '.join(node.dims)}]" if node.dims else ""
    return f"%{position} = {text}{shape}"
