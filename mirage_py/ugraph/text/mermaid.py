"""µGraphs as Mermaid flow charts, which GitHub and most wikis draw."""

from __future__ import annotations

from collections.abc import Iterator

from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, Section, UGraph, format_tile
from mirage_py.ugraph.operators import EFFECT, LEAF, STATE, operator
from mirage_py.ugraph.text.printing import format_grid, format_node, format_number


def format_mermaid(ugraph: UGraph) -> str:
    """The kernel graph; each kernel a box with its sections and thread graphs as boxes inside.

    Device tensors are cylinders, accumulators are rounded, an arrow carries the dimensions of its
    value.
    """
    tensor_ids = {name: f"t{number}" for number, name in enumerate(ugraph.tensors)}
    lines = ["flowchart TB"]
    for name, tensor in ugraph.tensors.items():
        lines.append(f"  {tensor_ids[name]}[({_quoted(str(tensor))})]")
    for number, kernel in enumerate(ugraph.kernels):
        if isinstance(kernel, LibraryCall):
            lines.append(f"  k{number}[[{_quoted(f'{kernel.name}: {kernel.op}')}]]")
            lines += [f"  {tensor_ids[arg]} --> k{number}" for arg in kernel.args]
            lines += [f"  k{number} --> {tensor_ids[name]}" for name in kernel.written_tensors]
        else:
            lines += _kernel(kernel, f"k{number}", tensor_ids)
    return "\n".join(lines) + "\n"


def _kernel(block: BlockGraph, name: str, tensor_ids: dict[str, str]) -> Iterator[str]:
    grid = format_grid(block)
    yield f"  subgraph {name} [{_quoted(f'{block.name}: grid {grid}' if grid else block.name)}]"
    for number, section in enumerate(block.sections):
        if section.loop is None:
            yield from _members(block, section, name, "    ")
            continue
        title = f"loop {section.loop} by {format_tile(section.tile)}"
        yield f"    subgraph {name}_s{number} [{_quoted(title)}]"
        yield from _members(block, section, name, "      ")
        yield "    end"
    yield "  end"
    for position, node in enumerate(block.nodes):
        here = f"{name}_n{position}"
        if node.op == "load":
            yield f"  {tensor_ids[node.access.tensor]} --> {here}"
        for a in node.args:
            dims = ", ".join(block.nodes[a].dims)
            label = f"|{_quoted(dims)}|" if dims else ""
            yield f"  {name}_n{a} -->{label} {here}"
        if operator(node.op).kind == EFFECT:
            yield f"  {here} --> {tensor_ids[node.access.tensor]}"


def _members(block: BlockGraph, section: Section, name: str, indent: str) -> Iterator[str]:
    """The nodes of a section, those of a thread graph in a box of their own."""
    group_of = {n: number for number, group in enumerate(block.threads) for n in group}
    drawn: dict[int, None] = {}
    for position in section.nodes:
        number = group_of.get(position)
        if number is None:
            yield indent + _box(block, position, name)
        elif number not in drawn:
            drawn[number] = None
            yield f"{indent}subgraph {name}_g{number} [{_quoted('thread graph')}]"
            yield from (f"{indent}  {_box(block, n, name)}" for n in block.threads[number])
            yield f"{indent}end"


def _box(block: BlockGraph, position: int, name: str) -> str:
    node = block.nodes[position]
    kind = operator(node.op).kind
    if kind == LEAF:
        label = format_number(node.attr) if node.op == "const" else f"{node.op} {node.attr}"
    else:
        label = f"{node.op} {node.access}" if kind == EFFECT else format_node(node).split(" %")[0]
    text = _quoted(f"%{position} {label}")
    box = f"([{text}])" if kind == STATE else f"[{text}]"
    return f"{name}_n{position}{box}"


def _quoted(text: str) -> str:
    """A label; Mermaid reads entities inside quotes."""
    escaped = text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")
    return f'"{escaped.replace(">", "#gt;")}"'
