"""A µGraph as a Mermaid flowchart, which web pages of code hosts draw by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from mirage_py.ugraph.node import Node
from mirage_py.ugraph.printing import format_node, format_tile
from mirage_py.ugraph.ugraph import BlockGraph, LibraryCall, UGraph


def ugraph_mermaid(ugraph: UGraph) -> str:
    """Device tensors, kernels, loops and nodes; edges follow the data."""
    return "\n".join(_lines(ugraph)) + "\n"


def _lines(ugraph: UGraph) -> Iterator[str]:
    number_of = {name: number for number, name in enumerate(ugraph.tensors)}
    yield "flowchart TD"
    for name, tensor in ugraph.tensors.items():
        yield f"  t{number_of[name]}[({_quoted(str(tensor))})]"
    for position, kernel in enumerate(ugraph.kernels):
        if isinstance(kernel, LibraryCall):
            yield f"  k{position}{{{{{_quoted(f'{kernel.name}: {kernel.op}')}}}}}"
            yield from (f"  t{number_of[a]} --> k{position}" for a in kernel.args)
            yield f"  k{position} --> t{number_of[kernel.result]}"
        else:
            yield from _block(kernel, f"k{position}")
            for at, node in kernel.loads():
                yield f"  t{number_of[node.access.tensor]} --> k{position}n{at}"
            for at, node in kernel.stores():
                yield f"  k{position}n{at} --> t{number_of[node.access.tensor]}"


def _block(block: BlockGraph, name: str) -> Iterator[str]:
    axes = ", ".join(f"{a.dim} by {format_tile(a.tile)}" for a in block.grid)
    title = f"{block.name}, grid {axes}" if axes else block.name
    yield f"  subgraph {name}[{_quoted(title)}]"
    for number, section in enumerate(block.sections):
        if section.loop is not None:
            tile = format_tile(section.tile)
            yield f"    subgraph {name}s{number}[{_quoted(f'loop {section.loop} by {tile}')}]"
        for position in section.nodes:
            yield f"    {name}n{position}[{_quoted(_label(block.nodes[position]))}]"
        if section.loop is not None:
            yield "    end"
    for position, node in enumerate(block.nodes):
        yield from (f"    {name}n{a} --> {name}n{position}" for a in dict.fromkeys(node.args))
    yield "  end"


def _label(node: Node) -> str:
    """Operator and attribute; the edges show the operands."""
    return format_node(node).partition(" %")[0].removesuffix(" =")


def _quoted(text: str) -> str:
    return '"' + text.replace("#", "#35;").replace('"', "#quot;") + '"'
