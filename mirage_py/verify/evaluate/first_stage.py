"""The first of two stages in which a program with small outputs is evaluated: what large values are
reduced to.

A loss is one number, of which there are no windows; the losses of its rows have some.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.verify.evaluate.windows import first_window
from mirage_py.verify.evaluate.work import peak_elements

# Elements of a window beyond which two stages are worth it, and of a value that is kept whole.
_MOST = _SMALL = 1 << 20


def first_stage(program: Program, most: int = _MOST, small: int = _SMALL) -> Program | None:
    """The program of the small values that large ones are reduced to, which are its outputs by
    the numbers of their nodes. None where windows of the outputs hold no more than ``most``
    elements, and where windows of those values hold no fewer.
    """
    if _largest(program, most) <= most:
        return None
    values = _reduced(program, small)
    if not values:
        return None
    outputs = []
    for number in values:
        dims = program.nodes[number].dims
        tensor = Tensor(str(number), tuple(program.sizes[d] for d in dims), F32)
        outputs.append(Output(tensor, number, tuple(map(ix.dim, dims))))
    stage = replace(program, outputs=tuple(outputs))
    return stage if _largest(stage, most) <= most else None


def _largest(program: Program, most: int) -> int:
    """Elements of the largest value of a window."""
    window = first_window(program, most)
    return peak_elements(program, {d: stop - start for d, (start, stop) in window.items()})


def _reduced(program: Program, small: int) -> list[int]:
    """The small values that are computed from a large one, none of which the outputs read; nothing
    where an output is large, or a value is read at other indices.
    """

    def is_large(number: int) -> bool:
        return prod(program.sizes[d] for d in program.nodes[number].dims) > small

    found: dict[int, None] = {}
    seen: dict[int, None] = {}
    todo = [o.node for o in program.outputs]
    while todo:
        number = todo.pop()
        node = program.nodes[number]
        if is_large(number) or node.op == "read":
            return []
        if number not in seen:
            seen[number] = None
            if any(map(is_large, node.args)):
                found[number] = None
            else:
                todo += node.args
    return sorted(found)
