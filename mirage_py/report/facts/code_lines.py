"""Lines of emitted code that compute each node of a block graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.text.names import value_stem
from mirage_py.ugraph.checks.run_time_sizes import run_time_sizes
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Where the text of the kernel itself begins, after what it says of itself.
_BEGINS = {"triton": "@triton.jit", "cuda": "__global__"}
_LOOP = re.compile(r"\s*for ")


def node_lines(plan: Plan, sources: Mapping[str, str]) -> dict[tuple[str, int], int]:
    """Of each node, by its kernel's name and its position, the line of the kernel's source that
    makes its value; ``sources`` are by kernel. A node that others compute along has their line, and
    one that no line was found for is left out.

    Values have the names that emitters give them (``value_stem``), after the rewrites that emitters
    make; nodes that these add are in no µGraph.
    """
    blocks = [k for k in plan.ugraph.kernels if isinstance(k, BlockGraph)]
    typed = lowered(plan.ugraph, blocks, run_time_sizes(plan).dims).blocks
    found: dict[tuple[str, int], int] = {}
    for block, own in zip(blocks, typed, strict=True):
        lines = sources[block.name].splitlines()
        begin = _body(lines, _BEGINS[plan.backend])
        places = _places(own, lines, begin)
        same = _same_nodes(block.nodes, own.block.nodes)
        at = {n: places[same[n]] for n in same if same[n] in places}
        for n in reversed(range(len(block.nodes))):
            if n not in at and (readers := _readers(block, n)):
                shown = [at[r] for r in readers if r in at]
                at.update({n: min(shown)} if shown else {})
        found.update({(block.name, n): line for n, line in at.items()})
    return found


def _body(lines: Sequence[str], sign: str) -> int:
    """The first line after a kernel's parameters."""
    head = next((n for n, text in enumerate(lines) if sign in text), 0)
    ends = (n for n in range(head, len(lines)) if lines[n].rstrip().endswith((") {", "):")))
    return next(ends, head) + 1


def _places(typed: TypedBlock, lines: Sequence[str], begin: int) -> dict[int, int]:
    """The line, from 1 on, of each node of a lowered block graph."""
    names: list[str] = []
    found: dict[int, int] = {}
    for number, node in enumerate(typed.block.nodes):
        names.append(value_stem(number, node, typed.dtypes[number], names))
        # An accumulator is set before its loop; what computes it is inside.
        loop = next((n for n in range(begin, len(lines)) if _LOOP.match(lines[n])), begin)
        first = loop if node.op.startswith("accum") else begin
        for pattern in _patterns(node, names[number]):
            line = next((n for n in range(first, len(lines)) if pattern.search(lines[n])), None)
            if line is not None:
                found[number] = line + 1
                break
    return found


def _patterns(node: Node, name: str) -> Iterator[re.Pattern[str]]:
    """How a line looks that makes a value, the surest first."""
    if node.op in (*STORES, "load"):
        # A tensor whose name means something in the text has another one there.
        tensor = rf"\b(named_)?{re.escape(node.access.tensor)}(_ptr|_map|_desc|_descriptor)?\b"
        if node.op != "load":
            yield re.compile(rf"\bstore\w*\(.*{tensor}")
            yield re.compile(rf"//.*store.*{tensor}")
            yield re.compile(rf"{tensor}.*\] = ")
        else:
            yield re.compile(rf"^\s*(named_)?{name} = ")
            yield re.compile(rf"[#/] (named_)?{re.escape(str(node.access))}")
        yield re.compile(rf"{tensor}(?!.*(__restrict__|^\s*def ))")
        return
    yield re.compile(rf"^\s*([\w:]+\*? )?{name}(\[[^=]*\])* [-+*/]?= ")
    yield re.compile(rf"\b{name}\b")


def _same_nodes(given: Sequence[Node], emitted: Sequence[Node]) -> dict[int, int]:
    """Positions of the nodes that are the same before and after the emitters' rewrites."""
    first, second = ([(n.op, n.dims, str(n.attr)) for n in nodes] for nodes in (given, emitted))
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    return {
        block.a + i: block.b + i
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    }


def _readers(block: BlockGraph, number: int) -> list[int]:
    return [n for n, node in enumerate(block.nodes) if number in node.args]
