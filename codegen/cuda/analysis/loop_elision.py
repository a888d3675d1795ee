"""Loop elision: a loop of one iteration becomes straight-line code.

The dimension of such a loop has one tile, so an accumulator equals what its iteration adds. As
straight-line code its loads are issued together with those of the sections around it, before
anything waits: a block that reads memory once waits for memory once.
"""

from __future__ import annotations

from dataclasses import replace

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import unmasked_range
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.threads import with_threads
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section
from mirage_py.ugraph.operators import STATE, operator
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT


def elide_loops(
    program: Program, block: BlockGraph, options: LaunchConfig
) -> tuple[BlockGraph, LaunchConfig]:
    """The block graph with straight code for its loops of one iteration, and the options for the
    loops that are left.

    A loop that some blocks skip stays: what they would compute without it is no value of theirs.
    """
    tiling = Tiling(program, block)
    straight = [
        section.loop is not None
        and tiling.padded(section.loop, number) >= program.sizes[section.loop]
        and not unmasked_range(tiling, number, LOWEST_SHIFT)
        for number, section in enumerate(block.sections)
    ]
    if not any(straight):
        return block, options
    nodes: list[Node] = []
    place: dict[int, int] = {}
    sections: list[Section] = []
    stages: list[int] = []
    loops = 0
    for section, is_straight in zip(block.sections, straight, strict=True):
        begin = len(nodes)
        for number in section.nodes:
            node = block.nodes[number]
            args = tuple(place[a] for a in node.args)
            if is_straight and operator(node.op).kind == STATE:
                value = args[0]
                if node.attr != "shift":
                    place[number] = value
                    continue
                node, args = Node("shift", (), None, node.dims), (value,)
            place[number] = len(nodes)
            nodes.append(replace(node, args=args))
        made = tuple(range(begin, len(nodes)))
        if section.loop is not None:
            stages += options.num_stages[loops : loops + 1] if not is_straight else ()
            loops += 1
        stays = section.loop is not None and not is_straight
        if stays or not sections or sections[-1].loop is not None:
            sections.append(replace(section, nodes=made) if stays else Section(made))
        else:
            sections[-1] = Section((*sections[-1].nodes, *made))
    found = BlockGraph(block.name, block.grid, tuple(nodes), tuple(s for s in sections if s.nodes))
    if block.threads:
        found = with_threads(found)
    return found, replace(options, num_stages=tuple(stages))
