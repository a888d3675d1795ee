"""Independent outputs: outputs that share only inputs are computed by kernels of their own.

A kernel for all of them has the columns of every output in one grid, and repeats for each column of
one what it does for the others. So a program whose outputs fall into groups without a common value
is searched group by group, and the kernels found follow one another: a library matmul, or a
generated kernel. Groups of equal extents make the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, product

from mirage_py.search.tilings.kinds import LIBRARY, ONE_KERNEL, has_loops, kind_of
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import Kernel, LibraryCall, UGraph
from mirage_py.ugraph.operators import LEAF, operator
from mirage_py.ugraph.rewrite.rebuild import rebuild

Search = Callable[[Program], Sequence[UGraph]]

# Families of one program: choices double with each kind of group.
_MOST = 8


def with_independent_outputs(
    program: Program, search: Search, may: Callable[[UGraph], bool] = lambda _: True
) -> list[UGraph]:
    """Families of one kernel for each group of outputs; none where all outputs are one group, or a
    group has no family of one kernel. ``search`` finds the families of a program, cheapest first;
    those are taken that ``may`` be.
    """
    groups = _groups(program)
    if len(groups) < 2:
        return []
    found: dict[tuple[int, ...], list[tuple[Kernel, ...]]] = {}
    for extents, chosen in groups:
        choices = _kernels(search(_of_outputs(program, chosen)), may)
        found.setdefault(extents, [() for _ in choices])
        if not choices or len(found[extents]) != len(choices):
            return []
        found[extents] = [(*k, new) for k, new in zip(found[extents], choices, strict=True)]
    families = []
    for choice in islice(product(*found.values()), _MOST):
        kernels = [kernel for group in choice for kernel in group]
        named = (replace(k, name=_name(program, k, n)) for n, k in enumerate(kernels))
        families.append(UGraph(program, tuple(named)))
    return families


def _groups(program: Program) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Positions of outputs that belong together, each with the extents of what they are of.

    Two outputs belong together that need the same computed value, or have a dimension in common
    that not all outputs have.
    """
    outputs = program.outputs
    dims = [program.nodes[o.node].dims for o in outputs]
    everywhere = [d for d in program.dim_names if all(d in own for own in dims)]
    marks: list[dict[object, None]] = []
    for output, own in zip(outputs, dims, strict=True):
        computed = [n for n in cone(program.nodes, [output.node]) if not _is_leaf(program, n)]
        marks.append(dict.fromkeys((*computed, *(d for d in own if d not in everywhere))))
    groups: list[list[int]] = []
    for number, mine in enumerate(marks):
        mixed = [g for g in groups if any(m in marks[other] for other in g for m in mine)]
        groups = [g for g in groups if g not in mixed]
        groups.append(sorted([number, *(n for g in mixed for n in g)]))
    groups.sort()
    return [(tuple(program.sizes[d] for n in g for d in dims[n]), tuple(g)) for g in groups]


def _is_leaf(program: Program, node: int) -> bool:
    return operator(program.nodes[node].op).kind == LEAF


def _of_outputs(program: Program, chosen: Sequence[int]) -> Program:
    """The program with these outputs alone."""
    fewer = replace(program, outputs=tuple(program.outputs[n] for n in chosen))
    return rebuild(fewer, {}, drop_unread_inputs=True)


def _kernels(families: Sequence[UGraph], may: Callable[[UGraph], bool]) -> list[Kernel]:
    """The cheapest library call that is all of a family, and the cheapest kernel of ours: with a
    loop, if one of them has one.
    """
    single = [u for u in families if len(u.kernels) == 1]
    library = [u for u in single if kind_of(u) == LIBRARY]
    ours = [u for u in single if kind_of(u) == ONE_KERNEL]
    ours.sort(key=lambda u: not has_loops(u))
    cheapest = (next((u for u in of_kind if may(u)), None) for of_kind in (library, ours))
    return [u.kernels[0] for u in cheapest if u is not None]


def _name(program: Program, kernel: Kernel, number: int) -> str:
    return f"{kernel.op if isinstance(kernel, LibraryCall) else program.name}{number}"
