"""A µGraph as nested boxes with lines of text, for pictures."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.ir.threads import steps_of
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall, Section, UGraph
from mirage_py.ugraph.text.printing import format_grid, format_node, format_tile


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
        call = f"{kernel.op}({', '.join(kernel.args)}) -> {kernel.result}"
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
